"""Times of rows as people have them: dates of a zone, texts with day or month first, plain numbers."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas

from torchs4.data.time_steps import shown, step_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

# 01/02/2023, 1.2.23 and so on: January or February?
_EITHER = r"^\s*\d{1,2}[./-]\d{1,2}[./-]\d{2,4}\b"
# 12:00+01:00, 12:00Z.
_ZONE = r":\d\d(?:\.\d+)?\s*(?:Z|[+-]\d\d:?\d\d)\s*$"


def read_times(stamps: Any, where: str) -> tuple[NDArray[Any], str | None]:
    """Dates in universal time with the name of the zone that they came in, or plain numbers."""
    if isinstance(stamps, pandas.PeriodIndex):
        stamps = stamps.to_timestamp()
    if pandas.api.types.is_numeric_dtype(stamps):
        if pandas.isna(stamps).any():
            row = int(np.flatnonzero(pandas.isna(stamps))[0])
            raise ValueError(f"{where}, row {row + 1}: found nothing; expected a time in every row.")
        whole = pandas.api.types.is_integer_dtype(stamps)
        return np.asarray(stamps, np.int64 if whole else np.float64), None
    texts = pandas.Series(np.asarray(stamps))
    zone = getattr(stamps.dtype, "tz", None)
    readings = {False: parsed_dates(texts)}
    written = bool(texts.map(type).eq(str).all())
    if written and texts.str.match(_EITHER).all():
        readings[True] = parsed_dates(texts, day_first=True)
    whole_ones = {day_first: read for day_first, read in readings.items() if not read.isna().any()}
    if not whole_ones:
        best = min(readings.values(), key=lambda read: int(read.isna().sum()))
        row = int(np.flatnonzero(best.isna())[0])
        raise ValueError(
            f"{where}, row {row + 1}: found {texts[row]!r}; expected a date and time such as "
            f"2016-07-01 00:00:00."
        )
    chosen, read = next(iter(whole_ones.items()))
    if len(whole_ones) == 2 and not whole_ones[False].equals(whole_ones[True]):
        chosen = _day_first(whole_ones, texts[0], where)
        read = whole_ones[chosen]
    if written and texts.str.contains(_ZONE).all():
        zone = _written_zone(texts)
    return _plain(read), None if zone is None else str(zone)


def parsed_dates(texts: pandas.Series, day_first: bool = False) -> pandas.Series:
    """Dates in universal time; nothing where there is none."""
    with warnings.catch_warnings():
        # What pandas guesses is looked at below.
        warnings.simplefilter("ignore", UserWarning)
        return pandas.to_datetime(texts, errors="coerce", utc=True, dayfirst=day_first)


def index_of(times: NDArray[Any], zone: str | None) -> pandas.Index:
    """Times as they came: dates of a zone in that zone."""
    if zone is None or times.dtype.kind != "M":
        return pandas.Index(times)
    return pandas.DatetimeIndex(times, tz="UTC").tz_convert(zone)


def _plain(read: pandas.Series) -> NDArray[Any]:
    return np.asarray(read.dt.tz_localize(None).to_numpy().astype("M8[us]"))


def _day_first(readings: dict[bool, pandas.Series], first: str, where: str) -> bool:
    """Whether the day comes first: what is 3 February here is 2 March elsewhere, but only one is regular."""
    missing = {day_first: _missing_rows(_plain(read)) for day_first, read in readings.items()}
    if missing[False] == missing[True]:
        month, day = (shown(_plain(readings[day_first])[0]).split()[0] for day_first in (False, True))
        raise ValueError(
            f"{where}, row 1: {first!r} is {month} or {day}, and the other rows do not tell whether day or "
            f"month comes first. Write dates with the year first, such as {day}."
        )
    chosen = missing[True] < missing[False]
    if chosen:
        told = shown(_plain(readings[True])[0]).split()[0]
        warnings.warn(f"{where}: days come first, {first!r} is {told}.", stacklevel=6)
    return chosen


def _missing_rows(times: NDArray[Any]) -> float:
    """How many rows a reading leaves out; infinitely many where it makes no regular times at all."""
    # Whether rows are sorted, or of several series, is another question.
    times = np.unique(times)
    if len(times) < 2:
        return np.inf
    places = step_of(times).places(times)
    return float(places[-1].round() + 1 - len(times)) if (places == places.round()).all() else np.inf


def _written_zone(texts: pandas.Series) -> Any:
    """The zone that every text names; none where they differ, as between summer and winter."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return getattr(pandas.to_datetime(texts).dtype, "tz", None)
    except ValueError:
        return None
