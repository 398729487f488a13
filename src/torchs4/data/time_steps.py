"""How far apart rows of a series are: a fixed time, months of different lengths, or days that are worked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_DAY = np.timedelta64(1, "D")
# Weeks without a Sunday before it counts as closed.
_WEEKS = 2
# Of a step: what rounding of written fractions may do to it.
TOLERANCE = 1e-3
_WEEK = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
# The first day of computers' calendars was a Thursday.
FIRST_WEEKDAY = 3


class Step(NamedTuple):
    """From row to row.

    unit: "" for a fixed difference of dates or numbers, "month" or "month end" for so many months, "days" for
        one day after the other of those that occur in a week, which are ones in `size`: "1111100".
    """

    size: Any
    unit: str = ""

    def places(self, times: NDArray[Any]) -> NDArray[np.float64]:
        """How many steps after the first each stamp is."""
        if self.unit == "days":
            days = times.astype("M8[D]")
            counted: Any = np.busday_count(days[0], days, weekmask=self.size).astype(np.float64)
            # Days that do not occur stand between two that do.
            return np.asarray(np.where(np.is_busday(days, weekmask=self.size), counted, counted - 0.5))
        if self.unit:
            months = times.astype("M8[M]").astype(np.int64)
            return np.asarray((months - months[0]) / self.size, np.float64)
        return np.asarray((times - times[0]) / self.size, np.float64)

    def holds(self, times: NDArray[Any]) -> bool:
        """Whether every stamp is one step after the one before."""
        if len(times) < 2:
            return True
        if (times.dtype.kind == "M") != (bool(self.unit) or isinstance(self.size, np.timedelta64)):
            return False
        return bool((np.abs(np.diff(self.places(times)) - 1) <= TOLERANCE).all())

    def stamps(self, first: Any, count: int) -> NDArray[Any]:
        """So many stamps, of which the first is given."""
        numbers = np.arange(count)
        if not self.unit:
            return np.asarray(first + numbers * self.size)
        day = first.astype("M8[D]")
        clock = first - day
        if self.unit == "days":
            ahead = np.busday_offset(day, numbers, roll="forward", weekmask=self.size)
            return np.asarray(ahead.astype(first.dtype) + clock)
        months = first.astype("M8[M]") + numbers * self.size
        if self.unit == "month end":
            return np.asarray(((months + 1).astype("M8[D]") - 1).astype(first.dtype) + clock)
        return np.asarray(months.astype(first.dtype) + (first - months[0].astype(first.dtype)))

    def __str__(self) -> str:
        if self.unit == "days":
            return "1 day of " + ", ".join(n for n, on in zip(_WEEK, self.size, strict=True) if on == "1")
        if self.unit:
            return f"{self.size} month{'s' * (self.size != 1)}"
        return shown(self.size)


def step_of(times: NDArray[Any]) -> Step:
    """The step between most of rising stamps, whether or not all keep to it."""
    if len(times) < 2:
        raise ValueError("One row does not tell how far apart rows are; give more of them.")
    steps = np.diff(times)
    usual = np.sort(steps)[len(steps) // 2]
    if times.dtype.kind != "M" or len(np.unique(steps)) == 1:
        return Step(usual)
    return _months(times) or _worked_days(times, usual) or Step(usual)


def seasons(step: Step) -> dict[str, int]:
    """What may come round, and after how many rows: days, weeks, and years of months."""
    if step.unit == "days":
        return {"week": step.size.count("1")}
    if step.unit:
        return {"year": 12 // step.size} if step.size < 12 and 12 % step.size == 0 else {}
    if not isinstance(step.size, np.timedelta64):
        return {}
    found = {"day": _DAY / step.size, "week": 7 * _DAY / step.size}
    return {name: int(rows) for name, rows in found.items() if rows > 1 and rows == int(rows)}


def _months(times: NDArray[Any]) -> Step | None:
    """Months apart, all on the same day or all on the last day of their month."""
    months = times.astype("M8[M]")
    size = int(np.sort(np.diff(months).astype(np.int64))[(len(times) - 1) // 2])
    if size < 1:
        return None
    if len(np.unique(times - months.astype(times.dtype))) == 1:
        return Step(size, "month")
    days = times.astype("M8[D]")
    same_clock = len(np.unique(times - days.astype(times.dtype))) == 1
    # Days that are left of the month: 1 on its last day.
    last = bool(((months + 1).astype("M8[D]") - days == _DAY).all())
    return Step(size, "month end") if same_clock and last else None


def _worked_days(times: NDArray[Any], usual: Any) -> Step | None:
    """A row for each day, but never one for some days of the week."""
    days = times.astype("M8[D]")
    if usual != _DAY or len(np.unique(times - days.astype(times.dtype))) > 1:
        return None
    occurring = np.unique((days.astype(np.int64) + FIRST_WEEKDAY) % 7)
    if len(occurring) == 7 or days[-1] - days[0] < 7 * _WEEKS * _DAY:
        return None
    return Step("".join("1" if day in occurring else "0" for day in range(7)), "days")


def shown(value: Any) -> str:
    """A stamp or a step as a person reads it."""
    if isinstance(value, np.datetime64 | np.timedelta64 | np.integer):
        return str(value.item())
    return f"{value:g}"
