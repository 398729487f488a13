"""Time stamps of the rows of a series: whether they are regular, and what a calendar says about them.

Axes: f calendar features.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from torchs4.data.time_steps import FIRST_WEEKDAY, TOLERANCE, shown, step_of

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


def require_regular(times: NDArray[Any], where: str) -> None:
    """Refuse stamps, dates or plain numbers, that do not rise by the same step from row to row.

    Steps of whole months may differ in days, and some days of every week may be left out. `where` names the
    file and the column for the error.
    """
    steps = np.diff(times)
    zero = steps.dtype.type(0)

    def wrong(step: int, found: str) -> ValueError:
        row = step + 1
        return ValueError(f"{where}, row {row + 1}: {shown(times[row])} {found}")

    if (backward := np.flatnonzero(steps < zero)).size:
        before = shown(times[backward[0]])
        raise wrong(backward[0], f"comes after {before}; expected rows in the order of time. Sort them.")
    if (repeated := np.flatnonzero(steps == zero)).size:
        raise wrong(repeated[0], "stands in the row before, too; expected one row per time. Leave one out.")
    if not len(steps):
        return
    if (step := step_of(times)).unit and step.holds(times):
        return
    usual = np.sort(steps)[len(steps) // 2]
    allowed = usual * TOLERANCE if steps.dtype.kind == "f" else zero
    if (uneven := np.flatnonzero(np.abs(steps - usual) > allowed)).size:
        raise wrong(
            uneven[0],
            f"is {shown(steps[uneven[0]])} after the row before; expected {shown(usual)}, the step between "
            f"most rows. Fill in what is missing, or bring the rows to one step.",
        )


def is_regular(times: NDArray[Any]) -> bool:
    """Whether stamps rise by the same step from row to row."""
    try:
        require_regular(times, "")
    except ValueError:
        return False
    return True


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
        "day of week": (days.astype(np.int64) + FIRST_WEEKDAY) % 7,
        "day of month": (days - days.astype("M8[M]").astype("M8[D]")).astype(np.int64),
        "day of year": (days - days.astype("M8[Y]").astype("M8[D]")).astype(np.int64),
    }
    features = np.empty((len(times), 2 * len(names)), np.float32)
    for place, name in enumerate(names):
        angle = 2 * np.pi / _FEATURES[name][0] * found[name]
        features[:, 2 * place], features[:, 2 * place + 1] = np.sin(angle), np.cos(angle)
    return features
