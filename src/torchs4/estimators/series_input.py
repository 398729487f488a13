"""Series as people have them, pandas frames or arrays, become checked arrays of numbers and times."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas

from torchs4.data.time_stamps import require_regular
from torchs4.data.time_steps import TOLERANCE, shown, step_of
from torchs4.estimators.series_times import read_times

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float
    from numpy import ndarray
    from numpy.typing import NDArray

    from torchs4.data.time_steps import Step

# More missing numbers of a column, or rows, than this are more guessed than filled.
_MOST_MISSING, _MOST_MISSING_ROWS = 0.5, 1 / 3
# From here on, what was filled in is more than a footnote.
_MANY_MISSING = 0.1


class OneSeries(NamedTuple):
    """Numbers of some columns, row by row at regular times, if times are known. Nothing is missing.

    zone: that dates came in; times are in universal time.
    """

    name: str
    values: Float[ndarray, "rows columns"]
    times: NDArray[Any] | None
    zone: str | None = None


def read_all(
    data: Any,
    columns: Sequence[str | int],
    time: str | None = None,
    series: str | None = None,
    called: str = "data",
    step: Step | None = None,
) -> tuple[tuple[str, ...], list[OneSeries]]:
    """The columns, all if none are named, and every series of the data.

    data: a frame or an array of one series, a list or a dictionary of several, or a frame with a column that
        tells the series of a row. Rows and numbers that are missing are filled in, and a warning says so.
    time: a column of the frame; without it its index, if that holds dates.
    called: what errors call the data. step: a calendar with holes that rows keep to if they can; few rows do
        not tell it.
    """
    parts = _parts(data, series)
    wanted = tuple(map(str, columns))
    found = [_read_one(name, part, wanted, time, called, step) for name, part in parts]
    names = wanted or found[0][0]
    for other, one in found:
        if other != names:
            raise ValueError(
                f"The series {one.name} has the columns {', '.join(other)}; the first one has "
                f"{', '.join(names)}. Name those to read."
            )
    return names, [one for _, one in found]


def of_series(one: OneSeries) -> str:
    """Which series is meant, in a sentence; nothing where there is but one."""
    return f" of {one.name}" if one.name else ""


def scale_of(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and deviation of every column; one that never changes is only shifted."""
    deviation = values.std(axis=0)
    return values.mean(axis=0), np.where(deviation > 0, deviation, 1.0)


def require_changing(found: list[OneSeries], targets: Sequence[str]) -> None:
    """Refuse a column that is to be forecast and never changes."""
    for one in found:
        for place, name in enumerate(targets):
            if not np.ptp(one.values[:, place]):
                raise ValueError(
                    f"The column {name!r}{of_series(one)} is always {one.values[0, place]:g}: there is "
                    f"nothing to forecast. Leave it out."
                )


def as_frame(one: OneSeries, columns: Sequence[str], rows: int) -> pandas.DataFrame:
    """Its first rows as a frame again."""
    index = None if one.times is None else one.times[:rows]
    if index is not None and index.dtype.kind == "M":
        index = pandas.DatetimeIndex(index)
    return pandas.DataFrame(one.values[:rows], columns=list(columns), index=index)


def _parts(data: Any, series: str | None) -> list[tuple[str, Any]]:
    if series is not None:
        frame = _frame(data, "data")
        _require_columns(frame, (series,), "data")
        return [(str(name), part.drop(columns=series)) for name, part in frame.groupby(series, sort=False)]
    if isinstance(data, dict):
        parts = [(str(name), part) for name, part in data.items()]
    elif isinstance(data, list | tuple) and data and np.ndim(data[0]) > 0:
        parts = [(str(place), part) for place, part in enumerate(data)]
    else:
        parts = [("", data)]
    if not parts:
        raise ValueError("data holds no series; expected at least one.")
    return parts


def _frame(data: Any, where: str) -> pandas.DataFrame:
    if isinstance(data, pandas.DataFrame):
        return data.rename(columns=str)
    if isinstance(data, pandas.Series):
        return data.to_frame("value" if data.name is None else str(data.name))
    values = np.asarray(data)
    if values.ndim not in (1, 2) or values.dtype == object:
        raise ValueError(
            f"{where} is a {type(data).__name__} of shape {values.shape}; expected a pandas frame, or "
            f"numbers of "
            f"shape (rows,) or (rows, columns)."
        )
    values = values.reshape(len(values), -1)
    return pandas.DataFrame(values, columns=[str(place) for place in range(values.shape[1])])


def _require_columns(frame: pandas.DataFrame, columns: Sequence[str], where: str) -> None:
    for name in columns:
        if name not in frame.columns:
            known = ", ".join(map(repr, frame.columns))
            raise ValueError(f"{where} has no column {name!r}; it has {known}.")


def _read_one(
    name: str, data: Any, columns: tuple[str, ...], time: str | None, called: str, step: Step | None
) -> tuple[tuple[str, ...], OneSeries]:
    where = f"The series {name}" if name else str(getattr(data, "attrs", {}).get("source", called))
    frame = _frame(data, where)
    times, zone = None, None
    if time is not None:
        _require_columns(frame, (time,), where)
        times, zone = read_times(frame[time], f"{where}, column {time!r}")
        frame = frame.drop(columns=time)
    elif isinstance(frame.index, pandas.DatetimeIndex | pandas.PeriodIndex):
        times, zone = read_times(frame.index, f"{where}, index")
    _require_columns(frame, columns, where)
    columns = columns or tuple(frame.columns)
    if not len(frame) or not columns:
        raise ValueError(
            f"{where} holds {len(frame)} rows and {len(columns)} columns; expected some of each."
        )
    values = np.stack([_numbers(frame[column], column, where) for column in columns], axis=1)
    if times is not None:
        _require_rising(times, where, alone=not name)
        try:
            times, values, there = _complete(times, values, where, step)
        except ValueError as error:
            if zone is None:
                raise
            raise ValueError(
                f"{error} Dates are of the zone {zone}: if its summer time is the reason, leave the zone out."
            ) from error
    else:
        there = np.ones(len(values), np.bool_)
    return columns, OneSeries(name, _filled(values, there, columns, where), times, zone)


def _numbers(column: Any, name: str, where: str) -> NDArray[np.float64]:
    read = pandas.to_numeric(column, errors="coerce")
    values: NDArray[np.float64] = np.asarray(read, np.float64)
    wrong = np.flatnonzero((np.isnan(values) & np.asarray(column.notna())) | np.isinf(values))
    if wrong.size:
        row = int(wrong[0])
        raise ValueError(
            f"{where}, column {name!r}, row {row + 1}: found {column.iloc[row]!r}; expected a number, or "
            f"nothing where one is missing."
        )
    return values


def _require_rising(times: NDArray[Any], where: str, alone: bool) -> None:
    steps = np.diff(times)
    if (steps > steps.dtype.type(0)).all():
        return
    try:
        require_regular(times, where)
    except ValueError as error:
        if not alone:
            raise
        raise ValueError(
            f"{error} But if several series stand in the table, name the column that tells them apart: "
            f"series=…"
        ) from error


def _complete(
    times: NDArray[Any], values: NDArray[np.float64], where: str, known: Step | None
) -> tuple[NDArray[Any], NDArray[np.float64], NDArray[np.bool_]]:
    """With rows of nothing where rows are missing, and which rows were there; uneven times are refused."""
    there = np.ones(len(times), np.bool_)
    if len(times) < 2 or (known is not None and known.unit and known.holds(times)):
        return times, values, there
    if (step := step_of(times)).holds(times):
        return times, values, there
    places = step.places(times)
    if np.abs(places - places.round()).max() >= TOLERANCE:
        require_regular(times, where)
        return times, values, there
    rows = round(places[-1]) + 1
    there = np.zeros(rows, np.bool_)
    there[places.round().astype(np.int64)] = True
    whole = step.stamps(times[0], rows)
    gaps = np.flatnonzero(~there)
    between = f"between {shown(whole[gaps[0]])} and {shown(whole[gaps[-1]])}"
    if len(gaps) > _MOST_MISSING_ROWS * rows:
        raise ValueError(
            f"{where}: {len(gaps):,} of {rows:,} rows {between} are missing, if rows are {step} apart as "
            f"most are: too many to fill in. Give what is missing, or only rows without large gaps; or leave "
            f"the times out, if each row follows the one before all the same."
        )
    told = f"{len(gaps):,} rows {between} were" if len(gaps) > 1 else f"1 row, {shown(whole[gaps[0]])}, was"
    loud = f" These are {len(gaps) / rows:.0%} of all rows: what is learned from them was invented."
    warnings.warn(
        f"{where}: {told} missing and filled in along straight lines."
        + loud * (len(gaps) > _MANY_MISSING * rows),
        stacklevel=5,
    )
    complete = np.full((rows, values.shape[1]), np.nan)
    complete[there] = values
    return whole, complete, there


def _filled(
    values: NDArray[np.float64], there: NDArray[np.bool_], columns: tuple[str, ...], where: str
) -> NDArray[np.float64]:
    """Straight lines across what is missing, and a warning about numbers that rows should have had."""
    missing = np.isnan(values)
    told = []
    for place, name in enumerate(columns):
        gaps = missing[:, place]
        if not gaps.any():
            continue
        if gaps.mean() > _MOST_MISSING:
            raise ValueError(
                f"{where}, column {name!r}: {int(gaps.sum()):,} of {len(gaps):,} numbers are missing, which "
                f"are too many to fill in. Leave the column out, or give what is missing."
            )
        rows = np.arange(len(values))
        values[gaps, place] = np.interp(rows[gaps], rows[~gaps], values[~gaps, place])
        if own := int((gaps & there).sum()):
            told.append(f"{own:,} in {name!r}")
    if told:
        warnings.warn(
            f"{where}: {int(there.sum()):,} rows, in which numbers were missing: {', '.join(told)}. They "
            f"were filled in along straight lines.",
            stacklevel=5,
        )
    return values
