import math
import os
import sys
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchs4.data.series import Columns, Part, SeriesFile, Windows, forecasting_data
from torchs4.data.series_table import Series, read_series
from torchs4.data.time_stamps import calendar_features, calendar_names, is_regular

pytest.importorskip("pyarrow", reason="tables are read with pyarrow")

ROWS = 40
HOURS = np.datetime64("2020-02-28T20:00:00") + np.arange(ROWS) * np.timedelta64(1, "h")
VALUES = np.random.default_rng(0).normal(50, 9, (ROWS, 3)).round(2)
SHORT = {"window": 6, "horizon": 3}
EVERY_NAME = (
    "second of minute",
    "minute of hour",
    "hour of day",
    "day of week",
    "day of month",
    "day of year",
)


def csv_lines(times=HOURS, values=VALUES, names=("a", "b", "c")):
    lines = [",".join(("when", *names))]
    lines += [
        ",".join((str(time).replace("T", " "), *map(str, row)))
        for time, row in zip(times, values, strict=True)
    ]
    return lines


def write_csv(folder, lines=None, name="table.csv"):
    path = folder / name
    path.write_text("\n".join(csv_lines() if lines is None else lines) + "\n", encoding="utf-8")
    return str(path)


def everything(split):
    return split.batch(np.arange(len(split)))


def test_windows_hold_history_then_blanks_and_ask_for_the_horizon(tmp_path):
    data = SeriesFile(write_csv(tmp_path), **SHORT).load(tmp_path)
    values = torch.from_numpy(VALUES.astype(np.float32))
    assert data.task.columns == ("a", "b", "c")
    assert (data.input.kind, data.input.size, data.input.length) == ("values", 3, 9)
    assert len(data.train) == 28 - 9 + 1
    batch = data.train.batch(np.array([5, 0]))
    assert torch.equal(batch.y, torch.stack([values[5:14], values[0:9]]))
    assert torch.equal(batch.x[:, :6], batch.y[:, :6])
    blank = torch.tensor(data.input.scaling.shift)
    assert torch.equal(batch.x[:, 6:], blank.expand(2, 3, 3))
    assert batch.asked.tolist() == [[False] * 6 + [True] * 3] * 2
    assert batch.lengths is None
    assert not data.task.causal


def test_horizons_lie_inside_their_part_and_cover_it(tmp_path):
    data = SeriesFile(write_csv(tmp_path), **SHORT).load(tmp_path)
    values = torch.from_numpy(VALUES.astype(np.float32))
    for split, first, end in ((data.train, 6, 28), (data.validation, 28, 32), (data.test, 32, 40)):
        horizons = everything(split).y[:, 6:]
        assert torch.equal(horizons, torch.stack([values[row : row + 3] for row in range(first, end - 2)]))


def test_scaling_comes_from_training_rows_alone(tmp_path):
    spoilt = VALUES.copy()
    spoilt[28:] *= 1000
    data = SeriesFile(write_csv(tmp_path, csv_lines(values=spoilt)), **SHORT).load(tmp_path)
    known = VALUES[:28].astype(np.float32).astype(np.float64)
    assert data.input.scaling.shift == pytest.approx(known.mean(0))
    assert data.input.scaling.scale == pytest.approx(known.std(0))
    assert data.task.scaling == data.input.scaling


def test_column_that_never_changes_is_only_shifted(tmp_path):
    values = VALUES.copy()
    values[:, 1] = 0.1
    data = SeriesFile(write_csv(tmp_path, csv_lines(values=values)), **SHORT).load(tmp_path)
    assert data.input.scaling.shift[1] == pytest.approx(0.1)
    assert data.input.scaling.scale[1] == 1


def test_without_normalizing_there_is_no_scaling_and_blanks_are_0(tmp_path):
    data = SeriesFile(write_csv(tmp_path), normalize=False, **SHORT).load(tmp_path)
    assert data.input.scaling is None
    assert data.task.scaling is None
    assert not everything(data.test).x[:, 6:].any()


def test_stride_thins_training_windows_alone(tmp_path):
    path = write_csv(tmp_path)
    every, third = (SeriesFile(path, stride=stride, **SHORT).load(tmp_path) for stride in (1, 3))
    assert torch.equal(everything(third.train).y, everything(every.train).y[::3])
    assert len(third.test) == len(every.test)


def test_columns_and_targets_choose_what_is_read_and_predicted(tmp_path):
    path = write_csv(tmp_path)
    for columns, targets, read, predicted in (
        ((), ("c",), "abc", "c"),
        (("b", "a"), (), "ba", "ba"),
        (("b",), ("c", "b"), "b", "cb"),
    ):
        data = SeriesFile(path, targets=targets, columns=columns, **SHORT).load(tmp_path)
        batch = everything(data.train)
        assert data.task.columns == tuple(predicted)
        assert data.input.size == len(read)
        for place, name in enumerate(read):
            assert torch.equal(batch.x[0, :6, place], torch.from_numpy(VALUES)[:6, "abc".index(name)].float())
        for place, name in enumerate(predicted):
            assert torch.equal(batch.y[0, :, place], torch.from_numpy(VALUES)[:9, "abc".index(name)].float())


def test_test_part_may_be_left_out(tmp_path):
    data = SeriesFile(write_csv(tmp_path), test_fraction=0, validation_fraction=0.25, **SHORT).load(tmp_path)
    assert data.test is None
    assert torch.equal(everything(data.validation).y[-1], torch.from_numpy(VALUES[-9:]).float())


def test_calendar_follows_the_columns_and_is_known_for_the_horizon(tmp_path):
    times = np.datetime64("2020-02-28T20:00:00") + np.arange(80) * np.timedelta64(1, "h")
    path = write_csv(tmp_path, csv_lines(times, np.tile(VALUES, (2, 1))))
    data = SeriesFile(path, calendar=True, **SHORT).load(tmp_path)
    # A day or two of hours tell nothing about weeks.
    assert data.input.names[3:] == ("hour of day, sine", "hour of day, cosine")
    assert data.input.scaling.shift[3:] == (0,) * 2
    assert data.input.scaling.scale[3:] == (1,) * 2
    # The second window ends on Saturday 29 February 2020 at 05:00.
    sine, cosine = data.train.batch(np.array([1])).x[0, -1, 3:].tolist()
    assert sine == pytest.approx(math.sin(2 * math.pi * 5 / 24), abs=1e-6)
    assert cosine == pytest.approx(math.cos(2 * math.pi * 5 / 24), abs=1e-6)


@given(start=st.datetimes(max_value=datetime(9000, 1, 1)), minutes=st.integers(1, 60 * 24 * 20))
def test_calendar_is_that_of_the_standard_library(start, minutes):
    times = np.datetime64(start, "us") + np.arange(3) * np.timedelta64(minutes, "m")
    names = EVERY_NAME
    features = calendar_features(times, names)
    for row, time in enumerate(times.tolist()):
        expected = {
            "second of minute": time.second / 60,
            "minute of hour": time.minute / 60,
            "hour of day": time.hour / 24,
            "day of week": time.weekday() / 7,
            "day of month": (time.day - 1) / 31,
            "day of year": (time.timetuple().tm_yday - 1) / 366,
        }
        angles = [2 * math.pi * expected[name] for name in names]
        waves = [wave(angle) for angle in angles for wave in (math.sin, math.cos)]
        assert features[row] == pytest.approx(waves, abs=1e-6)


@pytest.mark.parametrize(
    ("step", "rows", "names"),
    [
        ("s", 3 * 60, ("second of minute",)),
        ("m", 3 * 24 * 60, ("minute of hour", "hour of day")),
        ("h", 365 * 24, ("hour of day", "day of week", "day of month")),
        ("D", 2 * 366, ("day of week", "day of month", "day of year")),
        ("D", 1, ()),
    ],
)
def test_calendar_leaves_out_what_never_changes_or_comes_but_once(step, rows, names):
    times = np.datetime64("2020-01-01T00:00:00") + np.arange(rows) * np.timedelta64(1, step)
    assert calendar_names(times) == names


def test_calendar_needs_dates(tmp_path):
    lines = [line.split(",", 1)[1] for line in csv_lines()]
    path = write_csv(tmp_path, lines)
    with pytest.raises(ValueError, match=r"table\.csv: calendar needs the time of every row"):
        SeriesFile(path, calendar=True, **SHORT).load(tmp_path)
    numbered = write_csv(tmp_path, ["a,n", *(f"{n % 7},{n}" for n in range(ROWS))])
    with pytest.raises(ValueError, match="calendar needs dates, not plain numbers"):
        SeriesFile(numbered, time="n", calendar=True, **SHORT).load(tmp_path)


def test_parquet_gives_what_csv_gives(tmp_path):
    import pyarrow
    from pyarrow import parquet

    columns = {name: VALUES[:, place] for place, name in enumerate("abc")}
    parquet.write_table(pyarrow.table({**columns, "when": HOURS}), tmp_path / "table.parquet")
    one = SeriesFile(str(tmp_path / "table.parquet"), calendar=True, **SHORT).load(tmp_path)
    other = SeriesFile(write_csv(tmp_path), calendar=True, **SHORT).load(tmp_path)
    for got, expected in zip(everything(one.test), everything(other.test), strict=True):
        assert (got is None and expected is None) or torch.equal(got, expected)
    assert one.input == other.input


@pytest.mark.parametrize(
    "written",
    [
        "{0:%Y-%m-%d %H:%M:%S}",
        "{0:%Y-%m-%dT%H:%M:%SZ}",
        "{0:%Y/%m/%d %H:%M}",
        "{0.month}/{0.day}/{0.year} {0.hour}:{0:%M}",
        "{0.day}/{0.month}/{0.year} {0.hour}:{0:%M}",
        "{0.day}.{0.month}.{0.year} {0:%H:%M:%S}",
    ],
)
def test_dates_of_many_spellings_are_understood(tmp_path, written):
    spelt = [written.format(time) for time in HOURS.tolist()]
    path = write_csv(tmp_path, csv_lines(times=spelt))
    assert np.array_equal(read_series(Path(path)).times, HOURS)


@pytest.mark.parametrize(
    "times",
    [
        np.arange("2020-01", "2022-01", dtype="M8[M]").astype("M8[s]"),
        np.arange("2020-02", "2022-01", dtype="M8[M]").astype("M8[D]") - 1,
        np.arange("2000", "2030", dtype="M8[Y]").astype("M8[us]"),
        np.arange("2020-01-01", "2020-04-01", 7, dtype="M8[D]"),
        np.busday_offset("2020-01-01", np.arange(30)).astype("M8[us]"),
        np.arange(5) * 0.1 + 7,
        np.arange(3, 40, 4),
        np.array(["2020-01-01"], "M8[s]"),
    ],
    ids=["months", "ends of months", "years", "weeks", "weekdays", "fractions", "whole numbers", "one row"],
)
def test_regular_stamps_are_known(times):
    assert is_regular(times)
    if len(times) > 4:
        assert not is_regular(np.delete(times, 2))
        assert not is_regular(times[::-1])
        assert not is_regular(np.repeat(times, 2))


def test_other_separators_and_a_byte_order_mark_are_read(tmp_path):
    expected = read_series(Path(write_csv(tmp_path)))
    for separator in ";\t":
        lines = [line.replace(",", separator) for line in csv_lines()]
        path = tmp_path / "other.csv"
        path.write_text("\n".join(lines), encoding="utf-8-sig")
        got = read_series(path)
        assert got.columns == expected.columns
        assert np.array_equal(got.values, expected.values)
        assert np.array_equal(got.times, expected.times)


def replaced(row, column, text):
    """The lines with another cell; row 1 is the first after the header, column 0 the time."""
    lines = csv_lines()
    cells = lines[row].split(",")
    cells[column] = text
    return [*lines[:row], ",".join(cells), *lines[row + 1 :]]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (replaced(7, 2, "n.a."), r"column 'b', row 7: found 'n\.a\.'; expected a number"),
        (replaced(7, 2, ""), r"column 'b', row 7: found nothing; expected a number"),
        (replaced(7, 2, "NaN"), r"column 'b', row 7: found nothing; expected a number"),
        (replaced(7, 3, "inf"), r"column 'c', row 7: found inf; expected a finite number"),
        (replaced(7, 3, "1e300"), r"column 'c', row 7: found 1e\+300; expected a finite number"),
        (replaced(7, 0, "soon"), r"column 'when', row 7: found 'soon'; expected a date"),
        (replaced(7, 0, ""), r"column 'when', row 7: found nothing; expected a date"),
        (csv_lines()[:8] + csv_lines()[9:], r"column 'when', row 8: .* is 2:00:00 after .*expected 1:00:00"),
        (csv_lines()[:8] + csv_lines()[7:], r"column 'when', row 8: .* stands in the row before, too"),
        (
            csv_lines()[:1] + csv_lines()[:0:-1],
            r"row 2: 2020-03-01 10:00:00 comes after 2020-03-01 11:00:00; .*order of time",
        ),
        ([*csv_lines()[:5], "1,2"], r"cannot be read as a table: .*line 6: Expected 4 columns, got 2"),
        (csv_lines()[:1], "holds no rows"),
        ([line.split(",")[0] for line in csv_lines()], "no column besides 'when'"),
        (csv_lines(names=("a", "b", "a")), "has 2 columns 'a'; expected different names"),
        (csv_lines(names=("a", "", "c")), "column 3 has no name"),
        (["a", "1", "", "3"], "column 'a', row 2: found nothing"),
    ],
)
def test_bad_table_is_told_with_file_column_and_row(tmp_path, lines, message):
    path = write_csv(tmp_path, lines)
    with pytest.raises(ValueError, match=rf"table\.csv.*{message}"):
        SeriesFile(path, **SHORT).load(tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_two_columns_of_dates_need_a_choice(tmp_path):
    lines = [f"{line},{line.split(',')[0]}" for line in csv_lines()]
    lines[0] = "when,a,b,c,read"
    path = write_csv(tmp_path, lines)
    with pytest.raises(ValueError, match="has dates in the columns 'when', 'read'; choose"):
        SeriesFile(path, **SHORT).load(tmp_path)
    data = SeriesFile(path, time="read", columns=("a",), **SHORT).load(tmp_path)
    assert data.task.columns == ("a",)


def test_day_and_month_that_could_be_either_are_refused(tmp_path):
    path = write_csv(tmp_path, ["when,a", *(f"1/{n}/2020,{n}" for n in range(1, 13))])
    with pytest.raises(ValueError, match=r"row 1: found '1/1/2020'.*day and month could be either"):
        SeriesFile(path, **SHORT).load(tmp_path)


@pytest.mark.parametrize("option", [{"columns": ("a", "x")}, {"targets": ("x",)}, {"time": "x"}])
def test_unknown_column_gets_the_list(tmp_path, option):
    with pytest.raises(ValueError, match=r"table\.csv has no column 'x'; it has .*'a', 'b', 'c'"):
        SeriesFile(write_csv(tmp_path), **option, **SHORT).load(tmp_path)


def test_text_columns_do_no_harm_when_others_are_chosen(tmp_path):
    lines = [f"{line},Rome" for line in csv_lines()]
    lines[0] = "when,a,b,c,place"
    path = write_csv(tmp_path, lines)
    with pytest.raises(ValueError, match=r"column 'place', row 1: found 'Rome'.*`columns`"):
        SeriesFile(path, **SHORT).load(tmp_path)
    assert SeriesFile(path, columns=("a", "b"), **SHORT).load(tmp_path).input.size == 2


def test_too_short_a_table_is_refused(tmp_path):
    path = write_csv(tmp_path)
    with pytest.raises(ValueError, match=r"table\.csv: There are 28 rows to train on; .* at least 33"):
        SeriesFile(path, window=30, horizon=3).load(tmp_path)
    with pytest.raises(ValueError, match=r"There are 4 rows to validate with; .* at least 5"):
        SeriesFile(path, window=6, horizon=5).load(tmp_path)


def test_numbers_are_kept_and_read_again_when_the_file_changes(tmp_path):
    config = SeriesFile(write_csv(tmp_path), **SHORT)
    config.load(tmp_path)
    calls = []
    config.load(tmp_path, lambda *report: calls.append(report))
    assert not calls
    write_csv(tmp_path, csv_lines(values=VALUES + 1))
    data = config.load(tmp_path, lambda *report: calls.append(report))
    assert calls[-1] == ("Reading table.csv", 3, 3)
    assert torch.equal(everything(data.train).y[0], torch.from_numpy((VALUES + 1)[:9]).float())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": 0}, "window is 0"),
        ({"validation_fraction": 0.0}, "validation_fraction is 0.0"),
        ({"test_fraction": 0.9}, "test_fraction is 0.9, validation_fraction 0.1"),
        ({"test_fraction": float("nan")}, "test_fraction is nan"),
        ({"targets": "OT"}, "targets is 'OT'; expected a tuple"),
        ({"columns": ("a", "a")}, r"columns is \('a', 'a'\); expected a tuple of different"),
        ({"columns": ("t",), "time": "t"}, "columns holds 't', which is the column of time"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        SeriesFile(**options)


@pytest.mark.parametrize("path", ["", "absent.csv", "."])
def test_missing_file_is_told(tmp_path, path):
    with pytest.raises(FileNotFoundError, match="expected a CSV or Parquet file"):
        SeriesFile(path).load(tmp_path)


def test_other_kinds_of_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"table\.xlsx ends in '\.xlsx'; expected one of \.csv"):
        SeriesFile(write_csv(tmp_path, name="table.xlsx")).load(tmp_path)
    (tmp_path / "table.parquet").write_bytes(b"no such thing")
    with pytest.raises(ValueError, match=r"table\.parquet cannot be read as a table"):
        SeriesFile(str(tmp_path / "table.parquet")).load(tmp_path)


def test_without_pyarrow_the_way_to_install_it_is_told(tmp_path, monkeypatch):
    path = write_csv(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'pip install "torchs4\[data\]"'):
        SeriesFile(path).load(tmp_path)


@given(st.data())
def test_every_window_is_a_piece_of_the_series(data):
    rows = data.draw(st.integers(6, 60))
    windows = Windows(
        data.draw(st.integers(1, 4)), data.draw(st.integers(1, 2)), data.draw(st.integers(1, 5))
    )
    train = data.draw(st.integers(windows.history + windows.horizon, rows))
    values = np.arange(rows, dtype=np.float32)[:, None]
    parts = [[Part(0, train)], [Part(max(0, rows - windows.horizon), rows)]]
    made = forecasting_data(Series(values, ("n",), None), parts, windows, Columns(("n",), ("n",)))
    batch = everything(made.train)
    assert torch.equal(batch.y[:, 0, 0], torch.arange(0, len(made.train)) * float(windows.stride))
    assert (batch.y.diff(dim=1) == 1).all()
    assert batch.y.max() < train
    assert everything(made.validation).y.shape == (1, windows.history + windows.horizon, 1)


def test_histories_stay_inside_their_own_series():
    values = np.concatenate([np.arange(20.0), 100 + np.arange(20.0)]).astype(np.float32)[:, None]
    parts = [[Part(0, 15), Part(20, 35, 20)], [Part(15, 20), Part(35, 40, 20)]]
    made = forecasting_data(Series(values, ("n",), None), parts, Windows(4, 2), Columns(("n",), ("n",)))
    assert len(made.train) == 2 * (15 - 6 + 1)
    assert (everything(made.train).y.diff(dim=1) == 1).all()
    assert (everything(made.validation).y.diff(dim=1) == 1).all()


def test_known_columns_are_not_blank_in_the_horizon():
    values = np.stack([np.arange(30.0), 50 + np.arange(30.0), -np.arange(30.0)], axis=1).astype(np.float32)
    columns = Columns(("a", "b"), ("a",), known=("c",))
    parts = [[Part(0, 20)], [Part(20, 30)]]
    made = forecasting_data(Series(values, ("a", "b", "c"), None), parts, Windows(4, 2), columns)
    assert made.input.names == ("a", "b", "c")
    x = made.train.batch(np.array([0])).x[0]
    assert x[4:, :2].tolist() == [list(made.input.scaling.shift[:2])] * 2
    assert x[:, 2].tolist() == [-0.0, -1.0, -2.0, -3.0, -4.0, -5.0]
    assert made.task.continues == (0,)


@pytest.mark.skipif(
    not Path(os.environ.get("TORCHS4_DATA", "/nowhere"), "WTH.csv").is_file(),
    reason="needs WTH.csv in the folder that TORCHS4_DATA names",
)
def test_real_weather_and_clients_are_read(tmp_path):
    folder = Path(os.environ["TORCHS4_DATA"])
    weather = read_series(folder / "WTH.csv")
    assert weather.values.shape == (35_064, 12)
    assert (weather.times[0], weather.times[-1]) == (
        np.datetime64("2010-01-01T00:00"),
        np.datetime64("2013-12-31T23:00"),
    )
    assert weather.columns[-1] == "WetBulbCelsius"
    clients = read_series(folder / "ECL_first6.csv")
    assert clients.values.shape == (26_304, 6)
    assert clients.columns == tuple("012345")
