"""Telling how far a long preparation is."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    # Called with what is being done, how much of it is done, and how much there is to do.
    Progress = Callable[[str, int, int], None]

Item = TypeVar("Item")

# A display that is called for every one of 50,000 files would cost more than reading them.
_REPORTS = 100


def reported(items: Sequence[Item], what: str, progress: Progress | None) -> Iterator[Item]:
    """The items one by one; about a hundred times in between, and at the end, `progress` hears of it."""
    step = max(1, len(items) // _REPORTS)
    for done, item in enumerate(items, start=1):
        yield item
        if progress is not None and (done % step == 0 or done == len(items)):
            progress(what, done, len(items))
