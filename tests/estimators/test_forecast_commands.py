"""`s4 fit FILE --horizon N` and `s4 predict`: from a table to a table."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pandas
import pytest

from torchs4.cli import main
from torchs4.cli.options import with_flags

if TYPE_CHECKING:
    from pathlib import Path

ROWS = 320


def write(folder: Path, rows: int = ROWS, name: str = "load.csv") -> Path:
    draws = np.random.default_rng(0)
    wave = np.sin(2 * np.pi * np.arange(rows) / 24)
    frame = pandas.DataFrame(
        {
            "date": pandas.date_range("2024-01-01", periods=rows, freq="h"),
            "OT": (20 + 5 * wave + 0.3 * draws.normal(size=rows)).round(3),
            "remark": "fine",
        }
    )
    frame.to_csv(folder / name, index=False)
    return folder / name


def test_fit_tells_how_good_it_is_and_predict_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, run = write(tmp_path), tmp_path / "run"
    arguments = ["--target", "OT", "--horizon", "8", "--time", "date", "--steps", "10", "--history", "24"]
    assert main(["fit", str(path), *arguments, "--output", str(run)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "Left out, because they hold text: remark" in told
    assert "Learning from the first 80% of the rows, to forecast the others …" in told
    assert "Learning from all rows …" in told
    assert "OT: mean absolute error" in told
    assert "that of the last value" in told
    assert re.search(r"that of the last (day|week) 0\.", told)
    assert "of the values in the 80% interval" in told
    assert "The forecaster and forecast.png are in" in told
    assert (run / "forecast.png").stat().st_size > 5000
    newer = write(tmp_path, ROWS + 5, "newer.csv")
    assert main(["predict", str(run), str(newer), "-o", str(tmp_path / "out.csv")]) == 0
    table = pandas.read_csv(tmp_path / "out.csv", parse_dates=["date"])
    bounds = [f"OT {side} {share}" for share in (0.95, 0.8) for side in ("lower", "upper")]
    assert list(table.columns) == ["date", "OT", *bounds]
    assert table["date"].iloc[0] == pandas.Timestamp("2024-01-01") + pandas.Timedelta(hours=ROWS + 5)
    assert len(table) == 8
    truth = 20 + 5 * np.sin(2 * np.pi * np.arange(ROWS + 5, ROWS + 13) / 24)
    assert np.abs(table["OT"] - truth).mean() < 1
    assert main(["predict", str(run), "--horizon", "2"]) == 0
    printed = capsys.readouterr().out.strip().splitlines()
    assert len(printed) == 3
    assert printed[1].startswith("2024-01-14 08:00:00,")
    pandas.read_csv(newer).drop(index=[300]).to_csv(tmp_path / "gap.csv", index=False)
    assert main(["predict", str(run), str(tmp_path / "gap.csv")]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert said.startswith("gap.csv: 1 row, 2024-01-13 12:00:00, was missing")
    rare = pandas.read_csv(newer).iloc[::2]
    rare.to_csv(tmp_path / "rare.csv", index=False)
    assert main(["predict", str(run), str(tmp_path / "rare.csv")]) == 1
    assert "Rows are 2:00:00 apart; they were 1:00:00" in " ".join(capsys.readouterr().err.split())
    assert main(["predict", str(run), "--horizon", "9"]) == 1
    assert "Fit one with --horizon 9." in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "OTT"], "has no column 'OTT'; it has 'OT'"),
        (["--target", "OT", "--time", "when"], "has no column 'when'"),
        (["--target", "remark"], "load.csv, column 'remark', row 1: found 'fine'; expected a number"),
        (["--target", "OT", "--history", "5000"], "too few for a horizon of 8 and a history of 5000"),
        (["--target", "OT", "--history", "5000"], "learns from the first 80% of the rows"),
        (
            ["--target", "OT", "--horizon", "45"],
            "There are 320 rows, too few for a horizon of 45: a backtest",
        ),
        (["--target", "OT", "--horizon", "45"], "takes about 377 rows in all"),
        (["--target", "OT", "--horizon", "45"], "Or do without a backtest: --test-fraction 0."),
        (["--target", "OT", "--history", "0"], "--history is 0"),
        (["--target", "OT", "--test-fraction", "2"], "--test-fraction is 2.0"),
        (["--target", "OT", "--epochs", "5"], "how long to learn from a series is --steps N"),
    ],
)
def test_what_is_wrong_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["fit", str(write(tmp_path)), "--horizon", "8", *arguments]) == 1
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_file_that_is_none_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", str(tmp_path / "no.csv"), "--horizon", "8"]) == 1
    assert "is no file; expected a CSV or Parquet file" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "data.xls").write_text("x")
    assert main(["fit", str(tmp_path / "data.xls"), "--horizon", "8"]) == 1
    assert "ends in '.xls'" in " ".join(capsys.readouterr().err.split())


def test_a_forgotten_series_is_asked_for_by_its_flag(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = pandas.read_csv(write(tmp_path))
    both = pandas.concat([frame.assign(place=1), frame.assign(place=2)])
    for name, table in (("stacked.csv", both), ("mixed.csv", both.sort_values("date"))):
        table.to_csv(tmp_path / name, index=False)
        assert main(["fit", str(tmp_path / name), "--horizon", "8", "--target", "OT"]) == 1
        assert "name the column that tells them apart: --series …" in " ".join(
            capsys.readouterr().err.split()
        )


def test_messages_name_flags() -> None:
    names = ["history", "test_fraction", "series"]
    assert with_flags("try history=168, a larger test_fraction", names) == (
        "try --history 168, a larger --test-fraction"
    )
    assert with_flags("history is 0; the series is short", names) == "--history is 0; the series is short"
