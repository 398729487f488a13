"""Series as people have them, pandas frames or arrays, become checked arrays of numbers and times."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas

from torchs4.data.time_stamps import require_regular

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float
    from numpy import ndarray
    from numpy.typing import NDArray

# More missing numbers than this are more guessed than filled.
_MOST_MISSING = 0.5


class OneSeries(NamedTuple):
    """Numbers of some columns, row by row at regular times, if times are known. Nothing is missing."""

    name: str
    values: Float[ndarray, "rows columns"]
    times: NDArray[Any] | None


def read_all(
    data: Any, columns: Sequence[str | int], time: str | None = None, series: str | None = None
) -> tuple[tuple[str, ...], list[OneSeries]]:
    """The columns, all if none are named, and every series of the data.

    data: a frame or an array of one series, a list or a dictionary of several, or a frame with a column that
        tells the series of a row. Rows and numbers that are missing are filled in, and a warning says so.
    time: a column of the frame; without it its index, if that holds dates.
    """
    parts = _parts(data, series)
    wanted = tuple(map(str, columns))
    found = [_read_one(name, part, wanted, time) for name, part in parts]
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
    name: str, data: Any, columns: tuple[str, ...], time: str | None
) -> tuple[tuple[str, ...], OneSeries]:
    where = f"The series {name}" if name else str(getattr(data, "attrs", {}).get("source", "data"))
    frame = _frame(data, where)
    times = None
    if time is not None:
        _require_columns(frame, (time,), where)
        times, frame = _times(frame[time], f"{where}, column {time!r}"), frame.drop(columns=time)
    elif isinstance(frame.index, pandas.DatetimeIndex | pandas.PeriodIndex):
        times = _times(frame.index, f"{where}, index")
    _require_columns(frame, columns, where)
    columns = columns or tuple(frame.columns)
    if not len(frame) or not columns:
        raise ValueError(
            f"{where} holds {len(frame)} rows and {len(columns)} columns; expected some of each."
        )
    values = np.stack([_numbers(frame[column], column, where) for column in columns], axis=1)
    if times is not None:
        times, values = _complete(times, values, where)
    return columns, OneSeries(name, _filled(values, columns, where), times)


def _times(stamps: Any, where: str) -> NDArray[Any]:
    """Dates in universal time, or plain numbers."""
    if isinstance(stamps, pandas.PeriodIndex):
        stamps = stamps.to_timestamp()
    if pandas.api.types.is_numeric_dtype(stamps):
        return np.asarray(stamps, np.float64)
    read = pandas.to_datetime(pandas.Series(np.asarray(stamps)), errors="coerce", utc=True)
    if read.isna().any():
        row = int(np.flatnonzero(read.isna())[0])
        raise ValueError(
            f"{where}, row {row + 1}: found {np.asarray(stamps)[row]!r}; expected a date and time such as "
            f"2016-07-01 00:00:00."
        )
    return read.dt.tz_localize(None).to_numpy().astype("M8[us]")


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


def _complete(
    times: NDArray[Any], values: NDArray[np.float64], where: str
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """With rows of nothing where rows are missing; other times than that are refused."""
    steps = np.diff(times)
    if not len(steps) or (steps <= steps.dtype.type(0)).any():
        require_regular(times, where)
        return times, values
    usual = np.sort(steps)[len(steps) // 2]
    places = np.concatenate([[0.0], np.cumsum(steps / usual)])
    rows = round(places[-1]) + 1
    try:
        require_regular(times, where)
        return times, values
    except ValueError:
        on_steps = np.abs(places - places.round()).max() < 1e-3
        if not on_steps or (rows - len(times)) > _MOST_MISSING * rows:
            raise
    complete = np.full((rows, values.shape[1]), np.nan)
    complete[places.round().astype(np.int64)] = values
    return times[0] + np.arange(rows) * usual, complete


def _filled(values: NDArray[np.float64], columns: tuple[str, ...], where: str) -> NDArray[np.float64]:
    """Straight lines across what is missing, and a warning that says how much that was."""
    missing = np.isnan(values)
    told = []
    for place, name in enumerate(columns):
        gaps = missing[:, place]
        if not gaps.any():
            continue
        if gaps.mean() > _MOST_MISSING:
            raise ValueError(
                f"{where}, column {name!r}: {int(gaps.sum()):,} of {len(gaps):,} numbers are missing, "
                f"which are "
                f"too many to fill in. Leave the column out, or give what is missing."
            )
        rows = np.arange(len(values))
        values[gaps, place] = np.interp(rows[gaps], rows[~gaps], values[~gaps, place])
        told.append(f"{int(gaps.sum()):,} in {name!r}")
    if told:
        warnings.warn(
            f"{where}: {len(values):,} rows, in which numbers were missing: {', '.join(told)}. They were "
            f"filled "
            f"in along straight lines.",
            stacklevel=5,
        )
    return values
