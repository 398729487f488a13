"""Pictures moved by a few pixels and mirrored: augmentation of images that are read row by row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from jaxtyping import Int, UInt8
    from numpy import ndarray


def moved_pictures(
    rows: UInt8[ndarray, "B ..."], side: int, farthest: int, mirror: bool, generator: torch.Generator
) -> UInt8[ndarray, "B ..."]:
    """Each square picture moved by up to so many pixels in both directions and mirrored by chance.

    What moves into view is the mirror image of the edge.
    """
    count = len(rows)
    down, right = torch.randint(-farthest, farthest + 1, (2, count, 1), generator=generator).numpy()
    place = np.arange(side)
    columns: Any = place
    if mirror:
        mirrored = torch.randint(2, (count, 1), generator=generator).bool().numpy()
        columns = np.where(mirrored, place[::-1], place)
    y, x = _reflect(place + down, side), _reflect(columns + right, side)
    sources = (np.arange(count)[:, None, None] * side + y[:, :, None]) * side + x[:, None, :]
    # Taking whole pixels from one flat list is several times faster than indexing by two arrays.
    moved = rows.reshape(count * side * side, -1).take(sources.ravel(), axis=0)
    return moved.reshape(rows.shape)


def _reflect(place: Int[ndarray, "..."], side: int) -> Int[ndarray, "..."]:
    """Places outside the picture, mirrored at its edge: -1 is 0, -2 is 1."""
    place = np.where(place < 0, -1 - place, place)
    return np.where(place >= side, 2 * side - 1 - place, place)
