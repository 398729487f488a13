"""Expressions inside expressions of ListOps: each has a value of its own, so it is an example of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torchs4.data.listops_rules import CLOSE, FIRST_DIGIT, FIRST_OPERATOR, MAX_ARGUMENTS, evaluate

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Expressions that are cut at once: enough for array operations to pay, few enough for little memory.
_AT_ONCE = 2000


class Parts(NamedTuple):
    """Where each part starts in the flat tokens, how long it is, and its value."""

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    values: NDArray[np.uint8]


def draw_parts(
    tokens: NDArray[np.uint8], offsets: NDArray[np.int64], count: int, rng: np.random.Generator
) -> Parts:
    """So many parts of every expression: around a token drawn at random, at a depth drawn at random.

    They are of all lengths, from a few tokens to nearly the whole. Expression i is
    tokens[offsets[i] : offsets[i + 1]]; one without parts gives none.
    """
    pieces = []
    for first in range(0, len(offsets) - 1, _AT_ONCE):
        some = np.asarray(offsets[first : first + _AT_ONCE + 1])
        found = _draw_from(np.asarray(tokens[some[0] : some[-1]]), some - some[0], count, rng)
        pieces.append(found._replace(starts=found.starts + some[0]))
    return Parts(*(np.concatenate(columns) for columns in zip(*pieces, strict=True)))


def _draw_from(
    tokens: NDArray[np.uint8], offsets: NDArray[np.int64], count: int, rng: np.random.Generator
) -> Parts:
    opens = (tokens >= FIRST_OPERATOR) & (tokens < CLOSE)
    closes = tokens == CLOSE
    # How many operators are around each token, its own included: an expression itself is at depth 1.
    depths = np.cumsum(opens) - np.cumsum(closes) + closes
    nodes = _evaluated(tokens, depths, opens, closes)

    # Only tokens inside a part have one around them.
    inside = np.flatnonzero(depths > 1)
    first, last = np.searchsorted(inside, offsets[:-1]), np.searchsorted(inside, offsets[1:])
    has_parts = last > first
    first, last = first[has_parts, None], last[has_parts, None]
    drawn = inside[(first + rng.random((len(first), count)) * (last - first)).astype(np.int64).ravel()]
    # The deeper of two depths: most parts are short, and cost little to learn from.
    chosen = 2 + (rng.random((2, len(drawn))).max(0) * (depths[drawn] - 1)).astype(np.int64)
    size = len(drawn)
    parts = Parts(np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.uint8))
    for depth, at_depth in enumerate(nodes, start=1):
        here = chosen == depth
        # The part of this depth that a token is in is the last one that began before it.
        places = np.searchsorted(at_depth.starts, drawn[here], side="right") - 1
        parts.starts[here] = at_depth.starts[places]
        parts.lengths[here] = at_depth.lengths[places]
        parts.values[here] = at_depth.values[places]
    return parts


def _evaluated(
    tokens: NDArray[np.uint8],
    depths: NDArray[np.int64],
    opens: NDArray[np.bool_],
    closes: NDArray[np.bool_],
) -> list[Parts]:
    """All expressions and their parts, by depth from 1 on."""
    values = tokens - np.uint8(FIRST_DIGIT)
    nodes: list[Parts] = []
    for depth in reversed(range(1, int(depths.max()) + 1)):
        here = np.flatnonzero(opens & (depths == depth))
        ends = np.flatnonzero(closes & (depths == depth)) + 1
        # Its arguments are the operators one deeper and the digits that it is the innermost one around.
        arguments = np.flatnonzero((opens & (depths == depth + 1)) | (~opens & ~closes & (depths == depth)))
        sizes = np.diff(np.searchsorted(arguments, here), append=len(arguments))
        if sizes.min(initial=1) < 1 or sizes.max(initial=1) > MAX_ARGUMENTS:
            raise ValueError(
                f"These are no expressions of ListOps: an operator has {sizes.min()} to {sizes.max()} "
                f"arguments, where 1 to {MAX_ARGUMENTS} are allowed. Read or generate them anew."
            )
        values[here] = evaluate(tokens[here], sizes, values[arguments])
        nodes.append(Parts(here, ends - here, values[here]))
    return nodes[::-1]
