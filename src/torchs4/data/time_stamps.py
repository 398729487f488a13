"""Time stamps of the rows of a series: whether they are regular, and what a calendar says about them.

Axes: f calendar features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float, Shaped
    from numpy import ndarray
    from numpy.typing import NDArray

_MINUTE, _HOUR, _DAY = 60, 60 * 60, 24 * 60 * 60
# What a calendar tells: how many there are in a cycle, how many seconds each lasts, and from which step of
# time on it tells nothing: rows an hour apart all have the same minute.
_FEATURES = {
    "second of minute": (60, 1, _MINUTE),
    "minute of hour": (60, _MINUTE, _HOUR),
    "hour of day": (24, _HOUR, _DAY),
    "day of week": (7, _DAY, 7 * _DAY),
    "day of month": (31, _DAY, 28 * _DAY),
    "day of year": (366, _DAY, 365 * _DAY),
}
# How often something has to come round before it counts as a cycle.
_CYCLES = 2
# The first day of computers' calendars was a Thursday.
_FIRST_WEEKDAY = 3
# Of a step: what rounding of written fractions may do to it.
_TOLERANCE = 1e-3


def require_regular(times: NDArray[Any], where: str) -> None:
    """Refuse stamps, dates or plain numbers, that do not rise by the same step from row to row.

    Steps of whole months may differ in days. `where` names the file and the column for the error.
    """
    steps = np.diff(times)
    zero = steps.dtype.type(0)

    def wrong(step: int, found: str) -> ValueError:
        row = step + 1
        return ValueError(f"{where}, row {row + 1}: {_shown(times[row])} {found}")

    if (backward := np.flatnonzero(steps < zero)).size:
        before = _shown(times[backward[0]])
        raise wrong(backward[0], f"comes after {before}; expected rows in the order of time. Sort them.")
    if (repeated := np.flatnonzero(steps == zero)).size:
        raise wrong(repeated[0], "stands in the row before, too; expected one row per time. Leave one out.")
    if not len(steps) or _are_months(times):
        return
    usual = np.sort(steps)[len(steps) // 2]
    allowed = usual * _TOLERANCE if steps.dtype.kind == "f" else zero
    if (uneven := np.flatnonzero(np.abs(steps - usual) > allowed)).size:
        raise wrong(
            uneven[0],
            f"is {_shown(steps[uneven[0]])} after the row before; expected {_shown(usual)}, the step between "
            f"most rows. Fill in what is missing, or bring the rows to one step.",
        )


def is_regular(times: NDArray[Any]) -> bool:
    """Whether stamps rise by the same step from row to row."""
    try:
        require_regular(times, "")
    except ValueError:
        return False
    return True


def following(times: NDArray[Any], count: int) -> NDArray[Any]:
    """The next stamps after regular ones."""
    if len(times) < 2:
        raise ValueError("One row does not tell how far apart rows are; give more of them.")
    steps = np.diff(times)
    if len(np.unique(steps)) == 1 or not _are_months(times):
        return times[-1] + np.arange(1, count + 1) * np.sort(steps)[len(steps) // 2]
    # Months and years differ in length.
    months = times.astype("M8[M]")
    ahead = months[-1] + np.arange(1, count + 1) * (months[1] - months[0])
    into_month = times - months.astype(times.dtype)
    if len(np.unique(into_month)) == 1:
        return ahead.astype(times.dtype) + into_month[0]
    clock = times[-1] - times[-1].astype("M8[D]")
    return ((ahead + 1).astype("M8[D]") - 1).astype(times.dtype) + clock


def _are_months(times: NDArray[Any]) -> bool:
    """Whether stamps are whole months apart, all on the same day or all on the last day of their month."""
    if times.dtype.kind != "M":
        return False
    months = times.astype("M8[M]")
    into_month = times - months.astype(times.dtype)
    # Days that are left of the month: 1 on its last day.
    left = (months + 1).astype("M8[D]") - times.astype("M8[D]")
    same_clock = len(np.unique(times - times.astype("M8[D]").astype(times.dtype))) == 1
    same_day = len(np.unique(into_month)) == 1 or (
        same_clock and bool((left == np.timedelta64(1, "D")).all())
    )
    return same_day and len(np.unique(np.diff(months))) == 1


def _shown(value: Any) -> str:
    """A stamp or a step as a person reads it."""
    return str(value.item()) if isinstance(value, np.datetime64 | np.timedelta64) else f"{value:g}"


def calendar_names(times: Shaped[ndarray, " rows"]) -> tuple[str, ...]:
    """What a calendar tells apart in regular stamps, and what comes round at least twice in them.

    For a year of hours all but seconds and minutes, which never change, and the day of the year: what was so
    on each only once is no reason to expect it again.
    """
    seconds = times.astype("M8[s]").astype(np.int64)
    step, span = (seconds[1] - seconds[0], seconds[-1] - seconds[0]) if len(times) > 1 else (0, 0)
    return tuple(
        name
        for name, (count, unit, longest) in _FEATURES.items()
        if step < longest and _CYCLES * count * unit <= span + step
    )


def calendar_columns(names: tuple[str, ...]) -> tuple[str, ...]:
    """What the columns of `calendar_features` are called."""
    return tuple(f"{name}, {wave}" for name in names for wave in ("sine", "cosine"))


def calendar_features(times: Shaped[ndarray, " rows"], names: tuple[str, ...]) -> Float[ndarray, "rows f"]:
    """Where in its minute, hour, day, week, month or year each stamp is: two numbers, as on a clock's face.

    So the last hour of a day lies beside the first one of the next.
    """
    days = times.astype("M8[D]")
    seconds = (times - days).astype("m8[s]").astype(np.int64)
    found = {
        "second of minute": seconds % 60,
        "minute of hour": seconds // 60 % 60,
        "hour of day": seconds // 3600,
        "day of week": (days.astype(np.int64) + _FIRST_WEEKDAY) % 7,
        "day of month": (days - days.astype("M8[M]").astype("M8[D]")).astype(np.int64),
        "day of year": (days - days.astype("M8[Y]").astype("M8[D]")).astype(np.int64),
    }
    features = np.empty((len(times), 2 * len(names)), np.float32)
    for place, name in enumerate(names):
        angle = 2 * np.pi / _FEATURES[name][0] * found[name]
        features[:, 2 * place], features[:, 2 * place + 1] = np.sin(angle), np.cos(angle)
    return features
