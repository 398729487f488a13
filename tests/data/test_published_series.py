import os
from pathlib import Path

import numpy as np
import pytest
from official_files import WEATHER_ROWS, write_electricity, write_weather

from torchs4.data import DatasetMissingError, Electricity, Weather
from torchs4.data.published_series import usual_parts


def test_parts_are_those_of_the_benchmark():
    # 35,064 rows of Weather: the test part is rounded down, and so is the training part.
    (train,), (validation,), (test,) = usual_parts(35_064)
    assert (train.first, train.end) == (0, 24_544)
    assert (validation.first, validation.end) == (24_544, 28_052)
    assert (test.first, test.end) == (28_052, 35_064)


def test_weather_is_read_with_its_months_before_its_days(tmp_path):
    write_weather(tmp_path)
    data = Weather(window=24, horizon=12).load(tmp_path)
    assert data.task.columns == ("Visibility", "DryBulbFarenheit", "WetBulbCelsius")
    assert len(data.train) == int(0.7 * WEATHER_ROWS) - 24 - 12 + 1
    assert len(data.test) == int(0.2 * WEATHER_ROWS) - 12 + 1


def test_univariate_reads_the_benchmarks_target(tmp_path):
    write_weather(tmp_path)
    write_electricity(tmp_path)
    assert Weather(univariate=True).load(tmp_path).task.columns == ("WetBulbCelsius",)
    assert Electricity(univariate=True).load(tmp_path).task.columns == ("MT_320",)


def test_a_history_may_reach_back_into_the_part_before(tmp_path):
    write_electricity(tmp_path)
    data = Electricity(window=24, horizon=12).load(tmp_path)
    first = data.validation.batch(np.array([0])).x[0, 0]
    assert first.equal(data.train.batch(np.array([len(data.train) - 1])).x[0, 12])


@pytest.mark.parametrize(("config", "name"), [(Weather(), "weather"), (Electricity(), "electricity")])
def test_missing_file_says_where_to_get_it(tmp_path, config, name):
    with pytest.raises(DatasetMissingError, match=f"s4 data get {name}` says where"):
        config.load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: ["date,a\n", *lines[1:]], "begins with 'date,a'; expected 'date,Visibility"),
        (lambda lines: [*lines[:5], *lines[6:]], r"row 5: 2010-01-01 05:00:00 is 2:00:00 after"),
        (lambda lines: [*lines[:5], lines[5].replace(":", ";"), *lines[6:]], "damaged: "),
        (lambda lines: [*lines[:5], lines[5].strip() + "x\n", *lines[6:]], "damaged: "),
    ],
)
def test_damaged_file_is_told(tmp_path, change, message):
    path = write_weather(tmp_path)
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
    with pytest.raises(ValueError, match=rf"WTH\.csv.*{message}.*s4 data get weather"):
        Weather().load(tmp_path)


@pytest.mark.skipif(
    not Path(os.environ.get("TORCHS4_DATA", "/nowhere"), "WTH.csv").is_file(),
    reason="needs WTH.csv in the folder that TORCHS4_DATA names",
)
def test_real_weather_has_the_rows_of_the_benchmark(tmp_path):
    (tmp_path / "WTH.csv").symlink_to(Path(os.environ["TORCHS4_DATA"], "WTH.csv").resolve())
    data = Weather(horizon=720, calendar=True).load(tmp_path)
    assert len(data.task.columns) == 12
    assert (len(data.validation), len(data.test)) == (3_508 - 719, 7_012 - 719)
    # Almost three years: the day of the year has come round.
    assert "day of year, sine" in data.input.names
