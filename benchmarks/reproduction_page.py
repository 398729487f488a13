"""Renew the tables of the pages in docs/ from what is kept in recipes/measured.

python benchmarks/reproduction_page.py
"""

from __future__ import annotations

import re

# Answers --help, too.
from harness import PAGES as DOCS

from torchs4 import tables
from torchs4.cli.table import SHEETS

PAGES = (DOCS / "reproduction.md", DOCS / "generative.md", DOCS / "efficiency.md")


def renewed(text: str) -> str:
    """The page with every `s4 table NAME --markdown` as it is now."""

    def written(match: re.Match[str]) -> str:
        sheet = SHEETS.get(match[2])
        text = tables.markdown(tables.find(match[2])) if sheet is None else sheet().as_markdown()
        return f"{match[1]}\n{text}{match[3]}"

    pattern = r"(<!-- s4 table ([\w-]+) --markdown -->)\n.*?(<!-- end of the table -->)"
    return re.sub(pattern, written, text, flags=re.DOTALL)


def main() -> None:
    for page in PAGES:
        page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(page)


if __name__ == "__main__":
    main()
