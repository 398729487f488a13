"""Pictures of Pathfinder: dashed curves and two discs, laid out and drawn by compiled code.

A picture shows two long dashed curves that keep clear of each other and of themselves, some short ones to
distract, and two discs: one at the start of a long curve, the other at the end of the same curve (label 1) or
of the other one (label 0).

Curves are laid out in whole numbers, sixteenths of a pixel, so that a picture is the same on every machine.
"""

from __future__ import annotations

import math
import os
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torchs4.ops.cpu.compiling import compiled, compiled_entry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from jaxtyping import Float, UInt8
    from numpy import ndarray
    from numpy.typing import NDArray

    from torchs4.data.pathfinder import Size

_DISTRACTOR_DASHES = 4
_PADDING = 1
_UNIT = 16
# Pixels are covered by 8 × 8 samples, whose centres lie on odd numbers of units.
_SAMPLES = 8
# More layouts than any picture needs; without a limit, a mistake in the measures would run forever.
_MAX_LAYOUTS = 100_000
_MAX_DISTRACTOR_TRIES = 200
# Enough to be worth handing over to a thread, few enough to tell progress by.
_CHUNK = 500


def draw_pictures(
    size: Size, count: int, seed: int, dashes: int = 14, threads: int | None = None
) -> Iterator[UInt8[ndarray, "chunk pixels"]]:
    """Pictures 0 … count - 1 in chunks, in order; label i is i modulo 2.

    Each picture has random numbers of its own, so it depends on size, dashes, seed and its number only. By
    default there are as many threads as available cores: compiled code lets them run at the same time.
    """
    threads = threads or _available_cores()
    # Has everything compiled here and once, instead of by several threads that wait for each other.
    draw_picture(size, seed, 0, dashes)
    waiting: deque[Future[NDArray[np.uint8]]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for start in range(0, count, _CHUNK):
            numbers = range(start, min(start + _CHUNK, count))
            waiting.append(pool.submit(_draw_chunk, size, seed, numbers, dashes))
            # No thread draws far ahead of a slow disk: memory stays flat.
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        # Whoever stops early, like a full disk or a user, need not wait for what is not yet begun.
        pool.shutdown(cancel_futures=True)


def _available_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _draw_chunk(size: Size, seed: int, numbers: range, dashes: int) -> UInt8[ndarray, "chunk pixels"]:
    return np.stack([draw_picture(size, seed, number, dashes).image.ravel() for number in numbers])


class _Measures(NamedTuple):
    """How a picture of some size is drawn, lengths in pixels; each picture has one of the margins."""

    dash: int
    thickness: float
    margins: tuple[int, ...]
    disc_radius: float
    start_distance: int
    continuity: float
    distractors: int
    curve_brightness: float
    distractor_brightness: float


_MEASURES = {
    32: _Measures(2, 0.5, (1,), 1.5, 7, 1.0, 5, 1.5, 2.0),
    64: _Measures(5, 1.0, (1,), 2.5, 12, 1.8, 5, 0.8, 0.8),
    128: _Measures(5, 1.5, (2, 3), 3.0, 20, 1.8, 8, 0.9, 0.9),
}


class _Rules(NamedTuple):
    """What the compiled layout needs to know, for one size and margin, in whole units.

    A curve turns at pivots, which lie a margin after one dash and a margin before the next.

    dashes, margins: steps along a dash and a margin, in each direction that a curve may take.
    turns: weight of turning from one direction to another.
    starts: steps from the start of one curve to where the other may start.
    low, high: places that dashes must not leave. centre_low, centre_high: where the first curve starts.
    clearance: least distance between dashes that do not follow each other, squared; more than half a dash.
    reach: dashes whose beginnings are further apart are clear of each other.
    disc_distance: least distance between a start and an end, squared.
    distractors: how many short curves to add.
    """

    dashes: NDArray[np.int64]
    margins: NDArray[np.int64]
    turns: NDArray[np.int64]
    starts: NDArray[np.int64]
    low: int
    high: int
    centre_low: int
    centre_high: int
    clearance: int
    reach: int
    disc_distance: int
    distractors: int


@cache
def _rules(size: Size, margin: int) -> _Rules:
    measures = _MEASURES[size]
    directions = _directions(measures.dash + margin)
    angles = np.arccos(np.clip(directions @ directions.T, -1, 1))
    turns = np.cos(np.minimum(measures.continuity * angles, math.pi / 2)) ** 2
    # Dashes keep their margins free, and a pixel to a disc at any end of another curve.
    beside_disc = measures.disc_radius + measures.thickness / 2 + 1
    clearance = round(_UNIT * max(2 * margin + measures.thickness, beside_disc))
    return _Rules(
        dashes=_whole(_UNIT * measures.dash * directions),
        margins=_whole(_UNIT * margin * directions),
        turns=_whole(2**20 * turns),
        starts=_whole(_UNIT * measures.start_distance * _directions(measures.start_distance)),
        low=_UNIT * (_PADDING + margin),
        high=_UNIT * (size - 1 - _PADDING - margin),
        centre_low=_UNIT * 2 * measures.start_distance,
        centre_high=_UNIT * (size - 1 - 2 * measures.start_distance),
        clearance=clearance**2,
        reach=clearance + 2 * _UNIT * measures.dash + 2,
        disc_distance=round(_UNIT * (2 * measures.disc_radius + 1)) ** 2,
        distractors=measures.distractors,
    )


def _directions(radius: int) -> Float[ndarray, "count 2"]:
    """Unit steps (y, x) to the pixels on a circle."""
    grid = np.mgrid[-radius - 1 : radius + 2, -radius - 1 : radius + 2].reshape(2, -1).T
    circle = grid[np.rint(np.hypot(*grid.T)) == radius]
    return circle / np.hypot(*circle.T)[:, None]


def _whole(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(numbers).astype(np.int64)


class Picture(NamedTuple):
    """A picture and what is on it: dashes from (y, x) to (y, x), in pixels, and the centres of two discs."""

    image: UInt8[ndarray, "size size"]
    label: int
    curves: Float[ndarray, "2 dashes 2 2"]
    distractors: Float[ndarray, "count 4 2 2"]
    discs: Float[ndarray, "2 2"]


def draw_picture(size: Size, seed: int, number: int, dashes: int = 14) -> Picture:
    """One picture of those that this seed gives, whose long curves have so many dashes.

    Numbers that are odd get label 1.
    """
    measures = _MEASURES[size]
    random = np.random.default_rng([seed, number])
    label = number % 2
    margin = measures.margins[int(random.integers(len(measures.margins)))]
    rules = _rules(size, margin)
    strokes = np.zeros((2 * dashes + _DISTRACTOR_DASHES * measures.distractors, 4), dtype=np.int64)
    count = _lay_out(random, strokes, dashes, rules)
    if count == 0:
        raise RuntimeError(f"No Pathfinder picture of size {size} found in {_MAX_LAYOUTS:,} layouts.")
    strokes = strokes[:count]
    # The two curves took turns.
    curves = np.stack([strokes[0 : 2 * dashes : 2], strokes[1 : 2 * dashes : 2]])
    distractors = strokes[2 * dashes :]
    first = int(random.integers(2))
    discs = np.stack([curves[first, 0, :2], curves[first if label else 1 - first, -1, 2:]])

    image = np.zeros((size, size), dtype=np.uint8)
    half_thickness = round(_UNIT * measures.thickness / 2)
    _draw_strokes(image, curves.reshape(-1, 4), half_thickness, _levels(measures.curve_brightness))
    _draw_strokes(image, distractors, half_thickness, _levels(measures.distractor_brightness))
    _draw_strokes(image, np.tile(discs, 2), round(_UNIT * measures.disc_radius), _levels(1.0))
    return Picture(
        image,
        label,
        curves.reshape(2, dashes, 2, 2) / _UNIT,
        distractors.reshape(-1, _DISTRACTOR_DASHES, 2, 2) / _UNIT,
        discs / _UNIT,
    )


@cache
def _levels(brightness: float) -> UInt8[ndarray, " samples"]:
    """Grey value of a pixel by the number of its samples that are covered; too bright is white."""
    covered = np.arange(_SAMPLES**2 + 1) / _SAMPLES**2
    return np.minimum(np.rint(255 * brightness * covered), 255).astype(np.uint8)


@compiled_entry()
def _lay_out(random: Any, dashes: Any, length: Any, rules: Any) -> Any:
    """Fill in dashes: the long curves in turns, then distractors. Returns how many; 0 is failure."""
    weights = np.zeros(len(rules.dashes), dtype=np.int64)
    pivots = np.zeros((2, 2), dtype=np.int64)
    directions = np.zeros(2, dtype=np.int64)
    for _ in range(_MAX_LAYOUTS):
        y = _draw_number(random, rules.centre_low, rules.centre_high)
        x = _draw_number(random, rules.centre_low, rules.centre_high)
        apart = rules.starts[_draw_number(random, 0, len(rules.starts) - 1)]
        for curve in range(2):
            directions[curve] = _start_curve(
                random, dashes, curve, y + curve * apart[0], x + curve * apart[1], pivots[curve], rules
            )
        complete = directions[0] >= 0 and directions[1] >= 0
        for row in range(2, 2 * length):
            if complete:
                curve = row % 2
                directions[curve] = _extend_curve(
                    random, dashes, row, row - 2, pivots[curve], directions[curve], weights, rules
                )
                complete = directions[curve] >= 0
        if complete and _ends_are_apart(dashes, length, rules.disc_distance):
            return _add_distractors(random, dashes, 2 * length, pivots[0], weights, rules)
    return 0


@compiled()
def _add_distractors(random: Any, dashes: Any, count: Any, pivot: Any, weights: Any, rules: Any) -> Any:
    """As many as find room."""
    for _ in range(rules.distractors):
        for _ in range(_MAX_DISTRACTOR_TRIES):
            y = _draw_number(random, rules.low, rules.high)
            x = _draw_number(random, rules.low, rules.high)
            direction = _start_curve(random, dashes, count, y, x, pivot, rules)
            length = 1
            while direction >= 0 and length < _DISTRACTOR_DASHES:
                row = count + length
                direction = _extend_curve(random, dashes, row, row - 1, pivot, direction, weights, rules)
                length += 1
            if direction >= 0:
                count += length
                break
    return count


@compiled()
def _start_curve(random: Any, dashes: Any, row: Any, y: Any, x: Any, pivot: Any, rules: Any) -> Any:
    """Put a dash from (y, x) in any direction into a row, if it is free. Returns the direction or -1."""
    direction = _draw_number(random, 0, len(rules.dashes) - 1)
    pivot[0], pivot[1] = y - rules.margins[direction, 0], x - rules.margins[direction, 1]
    _place(dashes[row], pivot, direction, rules)
    if not _is_free(dashes[row], dashes, row, -1, rules):
        return -1
    _advance(pivot, direction, rules)
    return direction


@compiled()
def _extend_curve(
    random: Any, dashes: Any, row: Any, last: Any, pivot: Any, direction: Any, weights: Any, rules: Any
) -> Any:
    """Put the next dash of the curve that ends with row `last` into a row. Returns its direction or -1."""
    total = 0
    for choice in range(len(weights)):
        weights[choice] = rules.turns[direction, choice]
        total += weights[choice]
    # Drawing until one is free chooses among the free ones by weight, without testing them all.
    while total > 0:
        rest = _draw_number(random, 0, total - 1)
        choice = 0
        while rest >= weights[choice]:
            rest -= weights[choice]
            choice += 1
        _place(dashes[row], pivot, choice, rules)
        if _is_free(dashes[row], dashes, row, last, rules):
            _advance(pivot, choice, rules)
            return choice
        total -= weights[choice]
        weights[choice] = 0
    return -1


@compiled()
def _place(dash: Any, pivot: Any, direction: Any, rules: Any) -> Any:
    for axis in range(2):
        dash[axis] = pivot[axis] + rules.margins[direction, axis]
        dash[2 + axis] = dash[axis] + rules.dashes[direction, axis]


@compiled()
def _advance(pivot: Any, direction: Any, rules: Any) -> Any:
    for axis in range(2):
        pivot[axis] += rules.dashes[direction, axis] + 2 * rules.margins[direction, axis]


@compiled()
def _draw_number(random: Any, low: Any, high: Any) -> Any:
    """A whole number from low to high. Generator.integers would take long to compile."""
    return low + int(random.random() * (high - low + 1))


@compiled()
def _is_free(dash: Any, dashes: Any, count: Any, last: Any, rules: Any) -> Any:
    """Whether a dash is inside the picture and clear of the first `count` dashes, its curve's last excepted.

    No test for crossing is needed: dashes that cross are closer than half their length at some end, and
    the clearance is more than that.
    """
    for place in dash:
        if not rules.low <= place <= rules.high:
            return False
    for row in range(count):
        if row == last or max(abs(dash[0] - dashes[row, 0]), abs(dash[1] - dashes[row, 1])) > rules.reach:
            continue
        if (
            _is_near(dash[0], dash[1], dashes[row], rules.clearance)
            or _is_near(dash[2], dash[3], dashes[row], rules.clearance)
            or _is_near(dashes[row, 0], dashes[row, 1], dash, rules.clearance)
            or _is_near(dashes[row, 2], dashes[row, 3], dash, rules.clearance)
        ):
            return False
    return True


@compiled()
def _is_near(y: Any, x: Any, dash: Any, limit: Any) -> Any:
    """Whether the squared distance of a point to a dash is below the limit."""
    dy, dx = y - dash[0], x - dash[1]
    along_y, along_x = dash[2] - dash[0], dash[3] - dash[1]
    length = along_y * along_y + along_x * along_x
    along = dy * along_y + dx * along_x
    if along <= 0:
        return dy * dy + dx * dx < limit
    if along >= length:
        return (y - dash[2]) ** 2 + (x - dash[3]) ** 2 < limit
    across = dy * along_x - dx * along_y
    return across * across < limit * length


@compiled()
def _ends_are_apart(dashes: Any, length: Any, limit: Any) -> Any:
    """Whether discs at any start and any end would leave a gap; so the choice of discs never matters here."""
    for start in range(2):
        for end in range(2 * length - 2, 2 * length):
            dy, dx = dashes[start, 0] - dashes[end, 2], dashes[start, 1] - dashes[end, 3]
            if dy * dy + dx * dx < limit:
                return False
    return True


@compiled_entry()
def _draw_strokes(image: Any, strokes: Any, radius: Any, levels: Any) -> Any:
    """Draw dashes with flat ends, twice the radius thick; a stroke without length is a disc."""
    for stroke in strokes:
        along_y, along_x = stroke[2] - stroke[0], stroke[3] - stroke[1]
        length = along_y * along_y + along_x * along_x
        for pixel_y in _touched(stroke[0], stroke[2], radius, len(image)):
            for pixel_x in _touched(stroke[1], stroke[3], radius, len(image)):
                covered = 0
                for sample in range(_SAMPLES * _SAMPLES):
                    dy = _UNIT * pixel_y + 2 * (sample // _SAMPLES) + 1 - _SAMPLES - stroke[0]
                    dx = _UNIT * pixel_x + 2 * (sample % _SAMPLES) + 1 - _SAMPLES - stroke[1]
                    if length == 0:
                        covered += dy * dy + dx * dx <= radius * radius
                    else:
                        along, across = dy * along_y + dx * along_x, dy * along_x - dx * along_y
                        covered += 0 <= along <= length and across * across <= radius * radius * length
                image[pixel_y, pixel_x] = max(image[pixel_y, pixel_x], levels[covered])


@compiled()
def _touched(one: Any, other: Any, radius: Any, size: Any) -> Any:
    """Pixels, along one axis, that a stroke between two places may cover; pixel 0 reaches from -½ to ½."""
    half = _UNIT // 2
    first = (min(one, other) - radius + half) // _UNIT
    last = (max(one, other) + radius + half) // _UNIT
    return range(max(first, 0), min(last + 1, size))
