"""Series as people have them: gaps, calendars with holes, dates written either way, forgotten names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas
import pytest

from torchs4.data.time_steps import Step
from torchs4.estimators.series_input import OneSeries, read_all
from torchs4.estimators.series_times import index_of


def numbered(index: Any) -> pandas.DataFrame:
    return pandas.DataFrame({"load": np.arange(len(index)) % 17 * 1.0, "price": 1.0}, index=index)


def hours(rows: int = 400) -> pandas.DataFrame:
    return numbered(pandas.date_range("2024-01-01", periods=rows, freq="h"))


def written(style: str, index: Any) -> pandas.DataFrame:
    return numbered(index).assign(when=index.strftime(style))


def read(frame: pandas.DataFrame, time: str | None = None) -> OneSeries:
    return read_all(frame, ("load",), time)[1][0]


def test_missing_rows_and_numbers_are_filled_in_and_said() -> None:
    frame = hours()
    frame.iloc[5:8, 0] = np.nan
    frame = frame.drop(frame.index[[50, 51]])
    with pytest.warns(UserWarning, match="missing") as said:
        _, (one,) = read_all(frame, ())
    texts = [str(warning.message) for warning in said]
    assert texts[0].startswith(
        "data: 2 rows between 2024-01-03 02:00:00 and 2024-01-03 03:00:00 were missing"
    )
    assert "398 rows, in which numbers were missing: 3 in 'load'" in texts[1]
    assert one.values.shape == (400, 2)
    assert np.allclose(one.values[4:9, 0], np.linspace(frame["load"].iloc[4], frame["load"].iloc[8], 5))


def test_many_missing_rows_are_said_loudly_and_more_refused() -> None:
    frame = hours()
    with pytest.warns(
        UserWarning, match=r"100 rows .* 25% of all rows: what is learned from them was invented"
    ):
        read(frame.drop(frame.index[200:300]))
    with pytest.raises(ValueError, match=r"180 of 400 rows between .* too many to fill in"):
        read(frame.drop(frame.index[100:280]))


@pytest.mark.parametrize("frequency", ["B", "MS", "ME", "C", "QS"])
def test_calendars_with_holes_are_regular(frequency: str) -> None:
    options: dict[str, Any] = {"weekmask": "Mon Tue Wed Thu Fri Sat"} if frequency == "C" else {}
    offset = pandas.offsets.CustomBusinessDay(**options) if options else frequency
    index = pandas.date_range("2021-01-01", periods=60, freq=offset)
    one = read(numbered(index))
    assert one.times is not None
    assert list(one.times) == list(index.to_numpy().astype("M8[us]"))
    with pytest.warns(UserWarning, match=r"1 row, .*, was missing"):
        gap = read(numbered(index.delete(30)))
    assert gap.times is not None
    assert list(gap.times) == list(one.times)


@pytest.mark.parametrize("style", ["%d/%m/%Y %H:%M", "%d.%m.%Y %H:%M", "%m/%d/%Y %H:%M", "%Y-%m-%d %H:%M"])
@pytest.mark.parametrize("rows", [2000, 264])
@pytest.mark.filterwarnings("ignore:.*days come first")
def test_dates_are_read_whether_day_or_month_comes_first(style: str, rows: int) -> None:
    index = pandas.date_range("2023-03-01", periods=rows, freq="h")
    one = read(written(style, index), "when")
    assert one.times is not None
    assert list(one.times) == list(index.to_numpy().astype("M8[us]"))


def test_days_that_come_first_are_said() -> None:
    index = pandas.date_range("2023-03-01", periods=264, freq="h")
    with pytest.warns(UserWarning, match="column 'when': days come first, '01/03/2023 00:00' is 2023-03-01"):
        read(written("%d/%m/%Y %H:%M", index), "when")


def test_dates_that_could_be_either_are_refused() -> None:
    index = pandas.date_range("2023-03-05", periods=20, freq="h")
    with pytest.raises(
        ValueError, match=r"row 1: '05/03/2023 00:00' is 2023-05-03 or 2023-03-05.*such as 2023-03-05"
    ):
        read(written("%d/%m/%Y %H:%M", index), "when")


@pytest.mark.parametrize(
    "stacked",
    [pandas.concat([hours(50), hours(50)]), pandas.concat([hours(50), hours(50)]).sort_index()],
    ids=["one after the other", "interleaved"],
)
def test_rows_of_several_series_ask_for_the_column_that_tells_them_apart(stacked: pandas.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"if several series stand in the table, .* apart: series=…"):
        read(stacked)


def test_zones_and_whole_numbers_are_kept() -> None:
    index = pandas.date_range("2024-03-30", periods=48, freq="h", tz="Europe/Berlin")
    one = read(numbered(index))
    assert one.times is not None
    assert index_of(one.times, one.zone).equals(index)
    winter = pandas.date_range("2024-01-01", periods=48, freq="h", tz="+01:00")
    one = read(numbered(winter).assign(when=[stamp.isoformat() for stamp in winter]), "when")
    assert one.times is not None
    assert [stamp.isoformat() for stamp in index_of(one.times, one.zone)] == [s.isoformat() for s in winter]
    years = read(numbered(range(30)).assign(year=range(1990, 2020)), "year")
    assert years.times is not None
    assert years.times.dtype == np.int64
    with pytest.raises(ValueError, match="column 'year', row 2: found nothing; expected a time"):
        read(numbered(range(3)).assign(year=[1990, None, 1992]), "year")


def test_days_of_a_zone_with_summer_time_say_what_to_do() -> None:
    index = pandas.date_range("2024-03-01", periods=60, tz="Europe/Berlin")
    with pytest.raises(ValueError, match=r"23:00:00 after .* Europe/Berlin: .* leave the zone out"):
        read(numbered(index))


def test_a_known_calendar_tells_what_few_rows_do_not() -> None:
    index = pandas.bdate_range("2024-03-06", periods=6)
    with pytest.warns(UserWarning, match="2 rows between 2024-03-09"):
        assert len(read(numbered(index)).values) == 8
    _, (one,) = read_all(numbered(index), ("load",), step=Step("1111100", "days"))
    assert len(one.values) == 6
