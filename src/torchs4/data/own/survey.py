"""One pass over all numbers: it refuses what is none, and measures those that are trained on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from torchs4.data.own.moments import Moments

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torchs4.data.own.examples import Examples
    from torchs4.data.own.stored import Block, StoredSequences
    from torchs4.data.progress import Progress


def survey(
    stored: StoredSequences,
    members: NDArray[np.int64],
    examples: Examples,
    names: tuple[str, ...],
    progress: Progress | None = None,
) -> Moments | None:
    """Refuse values that are not finite, anywhere; the moments of the members, if there are any."""
    is_member = np.zeros(len(stored), bool)
    is_member[members] = True
    moments: Moments | None = None
    told = 0
    for block in stored.blocks():
        end = block.first + len(block.lengths)
        _require_finite(block, examples, names)
        chosen = is_member[block.first : end]
        values = block.values if chosen.all() else block.values[np.repeat(chosen, block.lengths)]
        if len(values):
            found = Moments.of(values)
            moments = found if moments is None else moments.with_others(found)
        # A whole percent more, or the end: a display need not hear of every block.
        if progress is not None and (end == len(stored) or 100 * (end - told) >= len(stored)):
            progress("Checking values", end, len(stored))
            told = end
    return moments


def is_finite(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values are numbers that single precision holds."""
    with np.errstate(over="ignore"):
        return np.isfinite(values.astype(np.float32, copy=False))


def refuse_value(value: Any, where: str) -> ValueError:
    """The error about a value that is no number or too large."""
    allowed = f"±{float(np.finfo(np.float32).max):.2g}, the largest that single precision holds"
    problem = f"beyond {allowed}" if np.isfinite(value) else "not a number to learn from"
    return ValueError(
        f"{where[0].upper()}{where[1:]} is {value}, which is {problem}. Leave that example out, or put a "
        f"number there that means what the gap means."
    )


def _require_finite(block: Block, examples: Examples, names: tuple[str, ...]) -> None:
    if block.values.dtype.kind in "iub" or (finite := is_finite(block.values)).all():
        return
    place, channel = np.argwhere(~finite)[0]
    ends = np.cumsum(block.lengths)
    row = int(np.searchsorted(ends, place, side="right"))
    position = int(place - (ends[row] - block.lengths[row]))
    column = f"{names[channel]!r}" if names else str(channel)
    raise refuse_value(
        block.values[place, channel],
        f"{examples.name_of(block.first + row)}, position {position}, channel {column}",
    )
