"""Renew the tables of docs/reproduction.md from the summaries in recipes/measured.

python benchmarks/reproduction_page.py
"""

from __future__ import annotations

import re
from pathlib import Path

from torchs4 import tables

PAGE = Path(__file__).parents[1] / "docs" / "reproduction.md"


def renewed(text: str) -> str:
    """The page with every `s4 table NAME --markdown` as it is now."""

    def written(match: re.Match[str]) -> str:
        return f"{match[1]}\n{tables.markdown(tables.find(match[2]))}{match[3]}"

    pattern = r"(<!-- s4 table (\w+) --markdown -->)\n.*?(<!-- end of the table -->)"
    return re.sub(pattern, written, text, flags=re.DOTALL)


def main() -> None:
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
