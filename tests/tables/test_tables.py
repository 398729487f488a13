"""The paper's tables: consistent in themselves and with the recipes; our numbers beside them."""

from __future__ import annotations

import importlib.util
import io
import statistics
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from torchs4 import recipes, tables
from torchs4.cli import main
from torchs4.cli.table import SHEETS, print_table
from torchs4.tables.table import Column, PublishedTable, row
from torchs4.training.run_folder import RunFolder

# The best row without state spaces of each column.
BEST_OTHERS = {
    "lra": (37.27, 65.90, 79.56, 47.38, 77.80, 50.00),
    "images": (99.4, 98.54, 74.4),
    "speech": (95.3, 96.25, 65.96),
    "density": (2.80,),
}


def summary(accuracy: float, **more: Any) -> dict[str, Any]:
    return {
        "test_accuracy": accuracy,
        "training_examples": 45_000,
        "test_examples": 10_000,
        "parameters": 90_058,
        "training_seconds": 3600.0,
        "commit": "0123456789abcdef",
        "threads": 2,
        "machine": {"processor": "A Processor", "cores": 2, "accelerator": None},
        **more,
    }


def look_up(results: dict[str, list[dict[str, Any]]]) -> Any:
    return lambda recipe, preset: results.get(f"{recipe.name}.{preset}", [])


def test_averages_are_those_of_the_six_tasks() -> None:
    for each in tables.find("lra").rows:
        # A model that fails on Path-X counts as guessing there.
        numbers = [each.number(index) or 50.0 for index in range(6)]
        assert statistics.fmean(numbers) == pytest.approx(float(each.cells[6]), abs=0.011), each.model


@pytest.mark.parametrize("name", list(tables.TABLES))
def test_the_last_row_is_what_the_recipes_say_was_published(name: str) -> None:
    table = tables.find(name)
    for index, column in enumerate(table.columns):
        if column.recipe is not None and column.rate == 1:
            published = recipes.find(column.recipe).published
            assert table.latest.number(index) == published.get("modern", published["paper"])


@pytest.mark.parametrize("name", list(tables.TABLES))
def test_the_best_rows_without_state_spaces_are_found(name: str) -> None:
    table = tables.find(name)
    for index, expected in enumerate(BEST_OTHERS[name]):
        best = table.best_other(index)
        assert best is not None
        assert best.number(index) == expected


def test_a_row_with_a_cell_too_few_is_refused() -> None:
    with pytest.raises(ValueError, match="LSTM has 1 cells for the 2 columns of mine"):
        PublishedTable("mine", "Mine", (Column("a"), Column("b")), (row("LSTM", "1.0", 6),))


def test_a_wrong_name_is_told_the_right_ones() -> None:
    with pytest.raises(ValueError, match="table is 'sound'; choose one of 'lra', 'images', 'speech'"):
        tables.find("sound")


def test_our_numbers_stand_in_a_row_with_what_they_were_measured_on() -> None:
    text = tables.markdown(tables.find("images"), look_up({"smnist.cpu": [summary(0.9953)]}))
    assert "| **S4, `cpu`** | 99.53* |  |  |" in text
    assert (
        "| sMNIST, `cpu` | 99.53 % (one seed) | 99.4 (LipschitzRNN) | 99.63 | mnist (augment True): "
        "45,000 training, 10,000 test examples | A Processor, 2 threads, 60 minutes | 90,058 | 0123456 |"
        in text
    )
    assert "| pMNIST | not run to its end here yet |" in text
    assert "- sMNIST: Table 11 has no row for MNIST" in text
    for each in tables.find("images").rows:
        assert each.model in text


def test_data_are_told_with_their_options() -> None:
    results = {"sc10-raw.cpu": [summary(0.9)]}
    found = tables.our_rows(tables.find("speech"), look_up(results))["cpu"]["Raw"]
    expected = (
        "speech-commands (version 0.01, split official, augment True): 45,000 training, 10,000 test examples"
    )
    assert found.data == expected


def test_seeds_are_averaged_with_their_spread() -> None:
    results = {"smnist.cpu": [summary(0.99), summary(0.97), summary(0.98)]}
    found = tables.our_rows(tables.find("images"), look_up(results))["cpu"]["sMNIST"]
    assert (found.cell, found.figure) == ("98.00*", "98.00 ± 1.00 % (3 seeds)")


def test_half_the_rate_is_a_column_of_its_own() -> None:
    table = tables.find("speech")
    plain = tables.our_rows(table, look_up({"sc10-raw.cpu": [summary(0.9)]}))
    assert set(plain["cpu"]) == {"Raw"}
    measured = summary(0.9, rates={"2": {"test_accuracy": 0.87}})
    both = tables.our_rows(table, look_up({"sc10-raw.cpu": [measured]}))
    assert {title: one.cell for title, one in both["cpu"].items()} == {"Raw": "90.00*", "0.5×": "87.00*"}


def test_our_average_needs_all_six_tasks() -> None:
    table = tables.find("lra")
    names = [column.recipe for column in table.columns if column.recipe]
    some = tables.markdown(table, look_up({f"{name}.cpu": [summary(0.5)] for name in names[:5]}))
    assert "| **S4, `cpu`** | 50.00* | 50.00* | 50.00* | 50.00* | 50.00* |  |  |" in some
    whole = tables.markdown(table, look_up({f"{name}.cpu": [summary(0.5)] for name in names}))
    assert "50.00* | 50.00* |\n" in whole


@pytest.mark.parametrize("width", [40, 60, 80, 160])
@pytest.mark.parametrize("name", list(tables.TABLES))
def test_no_number_is_cut_on_a_narrow_terminal(name: str, width: int) -> None:
    table = tables.find(name)
    results = {
        f"{column.recipe}.cpu": [summary(0.9953, test_bits=99.53)]
        for column in table.columns
        if column.recipe
    }
    console = Console(file=io.StringIO(), width=width)
    print_table(table, look_up(results), console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert all(len(line) <= width for line in text.splitlines())
    assert "…" not in text
    for each in table.rows:
        assert each.model in text
        for cell in each.cells:
            assert cell in text
    assert "measured here" in " ".join(text.split())
    assert text.count("99.53*") >= min(2, len(results))


def test_the_page_has_the_tables_as_they_are_now(monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(__file__).parents[2] / "benchmarks" / "reproduction_page.py"
    # Scripts find one another in their own folder.
    monkeypatch.syspath_prepend(path.parent)
    spec = importlib.util.spec_from_file_location("reproduction_page", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    texts = [page.read_text(encoding="utf-8") for page in script.PAGES]
    assert sum(text.count("### ") for text in texts) == len(tables.TABLES) + len(SHEETS)
    for text in texts:
        assert script.renewed(text) == text, "Renew it: python benchmarks/reproduction_page.py"


def test_the_command_prints_and_writes_markdown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "lra", "--folder", str(tmp_path)]) == 0
    assert "Nyströmformer" in capsys.readouterr().out
    assert main(["table", "images", "--markdown"]) == 0
    assert capsys.readouterr().out == tables.markdown(tables.find("images"))
    assert main(["table", "sound"]) == 1
    assert "choose one of 'lra', 'images', 'speech'" in " ".join(capsys.readouterr().err.split())


def test_runs_in_a_folder_are_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    RunFolder(tmp_path / "smnist-cpu").path.mkdir()
    RunFolder(tmp_path / "smnist-cpu").write_summary(summary(0.9876))
    assert main(["table", "images", "--folder", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "98.76*" in told
    assert "98.76 % (one seed), 90,058 parameters, measured here on mnist" in told
