"""Rows that people give for the times of a forecast: what is known there, or what came."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas

from torchs4.data.time_steps import shown, step_of
from torchs4.estimators.series_input import OneSeries, of_series, read_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float
    from numpy import ndarray
    from numpy.typing import NDArray


def rows_ahead(
    given: Any,
    columns: Sequence[str],
    one: OneSeries,
    ahead: NDArray[Any],
    *,
    time: str | None,
    series: str | None,
    called: str,
) -> Float[ndarray, "H columns"]:
    """Numbers of these columns at the times ahead of a series; nothing where there is no such row.

    given: laid out as what was fit. Rows are found by their times; where they have none, the first one is the
        first ahead. Rows that are all of other times are refused.
    """
    if isinstance(given, dict):
        given = given.get(one.name)
    if not isinstance(given, pandas.DataFrame):
        time = None
    else:
        if series is not None and series in given.columns:
            given = given[given[series].astype(str) == one.name].drop(columns=series)
        if time not in given.columns:
            time = None
    if given is None or not len(given):
        raise ValueError(f"{called} has no rows{of_series(one)}; expected {_told(ahead)}.")
    step = None if one.times is None or len(one.times) < 2 else step_of(one.times)
    read = read_all(given, columns, time, called=called, step=step)[1][0]
    if read.times is None or one.times is None:
        rows = read.values[: len(ahead)]
        return np.concatenate([rows, np.full((len(ahead) - len(rows), len(columns)), np.nan)])
    places = {stamp: place for place, stamp in enumerate(read.times.tolist())}
    found = [places.get(stamp) for stamp in ahead.tolist()]
    if all(place is None for place in found):
        raise ValueError(
            f"{called} has rows of {shown(read.times[0])} to {shown(read.times[-1])}{of_series(one)}, none "
            f"of which is ahead; expected {_told(ahead)}."
        )
    blank = np.full(len(columns), np.nan)
    return np.stack([blank if place is None else read.values[place] for place in found])


def require_rows(
    known: Float[ndarray, "H columns"], one: OneSeries, ahead: NDArray[Any], called: str
) -> None:
    """Refuse what is not there for every row ahead."""
    missing = np.flatnonzero(np.isnan(known).any(axis=1))
    if missing.size:
        raise ValueError(
            f"{called} has {len(known) - len(missing)} rows of those ahead{of_series(one)}, none for "
            f"{shown(ahead[missing[0]])}; expected {_told(ahead)}."
        )


def _told(ahead: NDArray[Any]) -> str:
    return f"{len(ahead)} rows, {shown(ahead[0])} to {shown(ahead[-1])}"
