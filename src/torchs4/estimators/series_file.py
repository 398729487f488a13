"""A table on disk as a frame, with its column of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas

from torchs4.estimators.series_times import parsed_dates

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_CSV, _PARQUET = (".csv", ".tsv", ".txt"), (".parquet", ".pq")


def read_frame(
    path: Path, time: str = "", keep: Sequence[str | None] = ()
) -> tuple[pandas.DataFrame, str | None]:
    """The table and the name of its column of time: the one that is named, else the first that holds dates.

    Columns of text are left out, unless they are to be kept: then whatever is wrong with them is told.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path} is no file; expected a CSV or Parquet file.")
    suffix = path.suffix.lower()
    if suffix in _PARQUET:
        frame = pandas.read_parquet(path)
    elif suffix in _CSV:
        # The separator is whatever separates.
        frame = pandas.read_csv(path, sep=None, engine="python", encoding="utf-8-sig")
    else:
        raise ValueError(f"{path} ends in {suffix!r}; expected one of {', '.join(_CSV + _PARQUET)}.")
    frame = frame.rename(columns=str)
    if time and time not in frame.columns:
        raise ValueError(f"{path} has no column {time!r}; it has {', '.join(map(repr, frame.columns))}.")
    texts = [name for name in frame.columns if not pandas.api.types.is_numeric_dtype(frame[name])]
    dates = [name for name in texts if _holds_dates(frame[name])]
    found = time or (dates[0] if dates else None)
    kept = {name for name in (*keep, found) if name}
    left_out = [name for name in texts if name not in kept]
    frame = frame.drop(columns=left_out)
    # What errors call it, and what is not in it.
    frame.attrs |= {"source": path.name, "left_out": left_out}
    return frame, found


def _holds_dates(column: pandas.Series) -> bool:
    """Whether its first row is a date."""
    if pandas.api.types.is_datetime64_any_dtype(column):
        return True
    first = column.dropna().iloc[:1]
    return bool(len(first)) and bool(parsed_dates(first).notna().all())
