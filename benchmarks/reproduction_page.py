"""Renew the tables of docs/reproduction.md and docs/generative.md from the summaries in recipes/measured.

python benchmarks/reproduction_page.py
"""

from __future__ import annotations

import re
from pathlib import Path

from torchs4 import tables

DOCS = Path(__file__).parents[1] / "docs"
PAGES = (DOCS / "reproduction.md", DOCS / "generative.md")


def renewed(text: str) -> str:
    """The page with every `s4 table NAME --markdown` as it is now."""

    def written(match: re.Match[str]) -> str:
        return f"{match[1]}\n{tables.markdown(tables.find(match[2]))}{match[3]}"

    pattern = r"(<!-- s4 table (\w+) --markdown -->)\n.*?(<!-- end of the table -->)"
    return re.sub(pattern, written, text, flags=re.DOTALL)


def main() -> None:
    for page in PAGES:
        page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(page)


if __name__ == "__main__":
    main()
