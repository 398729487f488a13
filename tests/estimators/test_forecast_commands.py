"""`s4 fit FILE --horizon N` and `s4 predict`: from a table to a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas
import pytest

from torchs4.cli import main

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
    assert "OT: mean absolute error" in told
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


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target", "OTT"], "has no column 'OTT'; it has 'OT'"),
        (["--target", "OT", "--time", "when"], "has no column 'when'"),
        (["--target", "remark"], "load.csv, column 'remark', row 1: found 'fine'; expected a number"),
        (["--target", "OT", "--history", "5000"], "too few for a horizon of 8 and a history of 5000"),
        (["--target", "OT", "--history", "5000"], "learns from the first 80% of the rows"),
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
