"""Intervals that hold as often as they say, by how far validation values lay outside.

Axes: n windows, H rows of a horizon, k targets, q levels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float
    from numpy import ndarray
    from numpy.typing import NDArray


def widening_for(errors: Float[ndarray, "n H k q"], levels: Sequence[float]) -> Float[ndarray, "H k q"]:
    """What to add to each quantile, from how much every value lay above each; the middle one stays."""
    widening = np.zeros(errors.shape[1:])
    for place in range(len(levels) // 2):
        share = 1 - 2 * levels[place]
        # How far outside the interval each value lies; inside, it is negative.
        outside = np.maximum(-errors[..., place], errors[..., -1 - place])
        count = len(outside)
        needed = np.quantile(outside, min(1.0, np.ceil((count + 1) * share) / count), axis=0)
        needed = _smooth(needed)
        widening[..., place], widening[..., -1 - place] = -needed, needed
    return widening


def spread(first: int, last: int, most: int) -> NDArray[np.int64]:
    """Up to so many whole numbers from the first to the last, evenly spread."""
    count = last - first + 1
    return np.unique(np.linspace(first, last, max(0, min(count, most))).astype(np.int64))


def _smooth(values: Float[ndarray, "H k"]) -> Float[ndarray, "H k"]:
    """Averages over an eighth of the horizon: neighbours differ by chance alone."""
    reach = len(values) // 16
    padded = np.pad(values, ((reach, reach), (0, 0)), mode="edge")
    return np.stack([padded[place : place + 2 * reach + 1].mean(axis=0) for place in range(len(values))])
