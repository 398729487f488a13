"""The forecasting table: the numbers of Table 9, ours beside them, and all fifty settings counted."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from torchs4 import recipes
from torchs4.cli import main
from torchs4.cli.table import print_forecasts
from torchs4.tables import forecast
from torchs4.training.run_folder import RunFolder

KEPT = {
    "settings": {
        "forecast-etth1-720": {
            "s4": {"mse": 0.1, "mae": 0.25, "seeds": 3},
            "linear": {"mse": 0.11, "mae": 0.26, "seeds": 1},
        },
        "forecast-weather-24": {"s4": {"mse": 0.09, "mae": 0.2, "seeds": 3}},
    }
}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured" / "forecasting.json").write_text(json.dumps(KEPT))
    monkeypatch.setattr(forecast, "files", lambda package: tmp_path)


def test_what_was_published_is_what_the_recipes_say() -> None:
    for name, recipe in recipes.RECIPES.items():
        if recipe.family and recipe.published:
            assert float(forecast.PUBLISHED[name]["S4"][0]) == recipe.published["paper"]
    assert len(forecast.PUBLISHED) == 5


@pytest.mark.usefixtures("kept")
def test_our_numbers_stand_beside_the_published_ones() -> None:
    rows = forecast.forecast_rows()
    assert len(rows) == 50
    text = forecast.forecast_markdown(rows)
    assert "| setting | S4 published | Informer published | S4* | linear map* |" in text
    assert "| etth1-720 | 0.116 / 0.271 | 0.269 / 0.435 | 0.100 / 0.250 | 0.110 / 0.260 |" in text
    assert "| weather-24 |  |  | 0.090 / 0.200 |  |" in text
    assert "| ecl-960 | 0.432 / 0.497 | 0.582 / 0.608 |  |  |" in text
    assert "48 of 50 settings have not been run here" in text


@pytest.mark.usefixtures("kept")
def test_runs_of_a_folder_come_first_and_seeds_are_averaged(tmp_path: Path) -> None:
    for seed, error in (("", 0.2), ("-seed1", 0.4)):
        folder = RunFolder(tmp_path / "runs" / f"forecast-etth1-720-cpu{seed}")
        folder.path.mkdir(parents=True)
        folder.write_summary({"test_mse": error, "test_mae": 2 * error})
    from torchs4.recipes.runs import summaries_in

    rows = {row.recipe: row for row in forecast.forecast_rows(summaries_in(tmp_path / "runs"))}
    assert rows["forecast-etth1-720"].measured["S4"] == "0.300 / 0.600"


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("width", [50, 80, 160])
def test_no_number_is_cut_on_a_narrow_terminal(width: int) -> None:
    console = Console(file=io.StringIO(), width=width)
    print_forecasts(forecast.forecast_rows(), console)
    text: Any = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(len(line) <= width for line in text.splitlines())
    for cell in ("0.116 / 0.271", "0.582 / 0.608", "0.100 / 0.250", "ettm1-672"):
        assert cell in text


def test_the_page_has_the_table_as_it_is_now() -> None:
    page = Path(__file__).parents[2] / "docs" / "forecasting.md"
    expected = forecast.forecast_markdown(forecast.forecast_rows())
    assert expected in page.read_text(encoding="utf-8"), (
        "Renew it: python benchmarks/forecasting.py --collect"
    )


def test_the_command_prints_and_writes_markdown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "forecast"]) == 0
    assert "Informer" in capsys.readouterr().out
    assert main(["table", "forecast", "--markdown"]) == 0
    assert capsys.readouterr().out == forecast.forecast_markdown(forecast.forecast_rows())
