import os
from pathlib import Path

import numpy as np
import pytest
import torch
from official_files import ETT_COLUMNS, ett_values, write_ett

from torchs4.data.ett import ETT
from torchs4.data.location import DatasetMissingError

MONTH = 30 * 24


def test_windows_are_those_of_twelve_four_and_four_months(tmp_path):
    write_ett(tmp_path)
    data = ETT(window=100, horizon=10).load(tmp_path)
    values = torch.from_numpy(ett_values().astype(np.float32))
    assert len(data.train) == 12 * MONTH - 100 - 10 + 1
    assert len(data.validation) == len(data.test) == 4 * MONTH - 10 + 1
    for split, first, last in (
        (data.train, 0, 12 * MONTH - 1),
        (data.validation, 12 * MONTH - 100, 16 * MONTH - 1),
        (data.test, 16 * MONTH - 100, 20 * MONTH - 1),
    ):
        batch = split.batch(np.array([0, len(split) - 1]))
        assert torch.equal(batch.y[0], values[first : first + 110])
        assert torch.equal(batch.y[1], values[last - 109 : last + 1])
    assert data.task.columns == ETT_COLUMNS
    assert data.input.size == 7


def test_quarters_of_hours_have_four_times_the_rows(tmp_path):
    write_ett(tmp_path, "ETTm2", 4 * 20 * MONTH)
    data = ETT("ETTm2", horizon=96).load(tmp_path)
    assert len(data.train) == 4 * 12 * MONTH - 168 - 96 + 1
    assert len(data.validation) == len(data.test) == 4 * 4 * MONTH - 96 + 1


def test_univariate_is_the_oil_temperature_alone(tmp_path):
    write_ett(tmp_path)
    data = ETT(univariate=True, calendar=True).load(tmp_path)
    assert data.task.columns == ("OT",)
    oil = ett_values()[: 12 * MONTH, 6].astype(np.float32).astype(np.float64)
    assert data.task.scaling.shift == pytest.approx((oil.mean(),))
    assert data.task.scaling.scale == pytest.approx((oil.std(),))
    # In a year of hours a calendar tells hour, weekday and day of month, each by sine and cosine.
    assert data.input.size == 1 + 6
    assert data.input.scaling.shift[1:] == (0,) * 6
    assert data.input.scaling.scale[1:] == (1,) * 6


def test_missing_file_says_how_to_get_it(tmp_path):
    with pytest.raises(DatasetMissingError, match="s4 data get ett"):
        ETT().load(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: ["date,OT\n", *lines[1:]], "begins with 'date,OT'; expected the columns of ETT"),
        (lambda lines: lines[:-100], "cut short: it has 14,305 rows; expected 14,400"),
        (lambda lines: [*lines[:5], lines[5][:40] + "\n", *lines[6:]], "damaged: .*columns"),
        (lambda lines: [*lines[:5], *lines[6:]], r"row 5: 2016-07-01 05:00:00 is 2:00:00 after"),
        (lambda lines: [*lines[:5], lines[5].replace("-", "x"), *lines[6:]], "damaged: "),
    ],
)
def test_damaged_file_is_told(tmp_path, change, message):
    path = write_ett(tmp_path)
    path.write_text("".join(change(path.read_text().splitlines(keepends=True))))
    with pytest.raises(ValueError, match=rf"ETTh1\.csv.*{message}.*s4 data get ett --again"):
        ETT().load(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "ETTh3"}, "name is 'ETTh3'; choose one of 'ETTh1'"),
        ({"window": 0}, "window is 0"),
        ({"horizon": 1.5}, "horizon is 1.5"),
        ({"stride": 0}, "stride is 0"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ETT(**options)


def test_longer_window_than_training_months_is_refused(tmp_path):
    write_ett(tmp_path)
    with pytest.raises(ValueError, match="There are 8,640 rows to train on; a window of 8630 rows"):
        ETT(window=8630).load(tmp_path)


def last_value_score(data, window):
    """What predicting the last value of the history for the whole horizon gets on the test split."""
    sums, count = torch.zeros(2, dtype=torch.float64), 0
    for rows in np.array_split(np.arange(len(data.test)), 20):
        batch = data.test.batch(rows)
        sums += data.task.sums(batch.x[:, window - 1 : window].expand_as(batch.y), batch).double()
        count += data.task.count(batch)
    return data.task.scores((sums / count).tolist())


@pytest.mark.skipif(
    not Path(os.environ.get("TORCHS4_DATA", "/nowhere"), "ETT-small").is_dir(),
    reason="needs ETT-small in the folder that TORCHS4_DATA names",
)
@pytest.mark.parametrize(
    ("options", "mse"),
    [
        ({"univariate": True}, 0.0343),
        ({"univariate": True, "horizon": 168}, 0.087),
        ({"univariate": True, "horizon": 720}, 0.129),
        ({}, 1.222),
    ],
)
def test_last_value_of_real_data_is_as_good_as_known(options, mse, tmp_path):
    (tmp_path / "ETT-small").symlink_to(Path(os.environ["TORCHS4_DATA"], "ETT-small").resolve())
    config = ETT(**options)
    data = config.load(tmp_path)
    assert len(data.validation) == len(data.test) == 2880 - config.horizon + 1
    assert len(data.train) == 8640 - config.window - config.horizon + 1
    assert last_value_score(data, config.window)["mse"] == pytest.approx(mse, abs=0.001)
