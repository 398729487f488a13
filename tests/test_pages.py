"""Every Python snippet of the README and of the pages in docs/ runs as it stands, a page in order."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from torchs4.layers import LAYERS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]


def snippets(page: Path) -> list[tuple[int, str]]:
    """The Python snippets of a page, each with the number of its first line."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)
    return [(text[: match.start(1)].count("\n") + 1, match[1]) for match in found]


PAGES_WITH_SNIPPETS = [page for page in PAGES if snippets(page)]


def test_the_readme_has_snippets() -> None:
    assert len(snippets(PAGES[0])) >= 2


@pytest.mark.parametrize("page", PAGES_WITH_SNIPPETS, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_snippets_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    registered = dict(LAYERS)
    namespace: dict[str, object] = {"__name__": "__main__"}
    try:
        for line, snippet in snippets(page):
            # Errors then name the page's own lines.
            exec(compile("\n" * (line - 1) + snippet, str(page), "exec"), namespace)
    finally:
        # A layer that a page registers is not for the tests after it.
        LAYERS.clear()
        LAYERS.update(registered)
