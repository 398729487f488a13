"""A pen's way through a handwritten digit, found from its pixels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_INK = 0.4
# Neighbours of a pixel, once around it, beginning above.
_AROUND = ((1, 0), (1, -1), (0, -1), (-1, -1), (-1, 0), (-1, 1), (0, 1), (1, 1))


def strokes(image: NDArray[np.float32]) -> list[list[tuple[float, float]]]:
    """For each connected part one walk along its middle line and back, as shares of width and height."""
    left = {(int(y), int(x)) for y, x in np.argwhere(_thinned(image > _INK))}
    height, width = image.shape
    walks = []
    while left:
        # An end, if there is one: a pen begins there.
        start = min(left, key=lambda place: (len(_neighbours(place, left)), place))
        left.remove(start)
        way, walk = [start], [start]
        while way:
            following = _neighbours(way[-1], left)
            if following:
                left.remove(following[0])
                way.append(following[0])
            else:
                way.pop()
            walk += way[-1:]
        walks.append([((x + 0.5) / width, (y + 0.5) / height) for y, x in walk])
    return walks


def _neighbours(place: tuple[int, int], left: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """Straight ones before oblique ones."""
    found = [(place[0] + y, place[1] + x) for y, x in (*_AROUND[::2], *_AROUND[1::2])]
    return [neighbour for neighbour in found if neighbour in left]


def _thinned(ink: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Lines one pixel wide that are connected as the ink is (Zhang and Suen, 1984)."""
    ink = np.pad(ink, 1)
    while True:
        before = ink.sum()
        for is_first in (True, False):
            around = [np.roll(ink, shift, (0, 1)) for shift in _AROUND]
            count = np.sum(around, axis=0)
            rises = sum(~around[k] & around[(k + 1) % 8] for k in range(8))
            up, right, down, left = around[::2]
            is_edge = ~(right & down & (up | left)) if is_first else ~(up & left & (right | down))
            ink = ink & ~((count >= 2) & (count <= 6) & (rises == 1) & is_edge)
        if ink.sum() == before:
            return ink[1:-1, 1:-1]
