"""Tables of time and memory, and the arena's rows: published numbers alone, and ours beside them."""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from torchs4 import tables
from torchs4.cli import main
from torchs4.description import InputDescription
from torchs4.layers import LAYERS
from torchs4.tables import arena, efficiency
from torchs4.tasks import Classification

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
KEPT_LSSL = {
    "where": "A Processor, 2 threads, commit 0123456",
    "batch": 1,
    "length": 1024,
    "widths": {"128": {"ms": {"lssl": 500.0, "s4": 10.0}, "mb": {"lssl": 600.0, "s4": 3.0}}},
}
KEPT_TRANSFORMERS = {
    "where": "A Processor, 2 threads, commit 0123456",
    "budget_mb": 6000,
    "parameters": {"Transformer": 528_000, "S4": 600_000},
    "lengths": {
        "1024": {
            "batch": 32,
            "ms": {"Transformer": 100.0, "S4": 50.0},
            "mb": {"Transformer": 10.0, "S4": 2.0},
        },
        "8192": {"batch": 1, "ms": {"S4": 50.0}, "mb": {"S4": 2.0}},
    },
}
KEPT_ARENA = {
    "minutes": 10.0,
    "machine": "A Processor, 2 threads",
    "commit": "0123456789",
    "tasks": {"Text": {"S4": 80.5, "Performer": 64.25}, "Image": {"S4": 60.0}},
}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "measured"
    folder.mkdir()
    for name, content in (
        ("efficiency_lssl", KEPT_LSSL),
        ("efficiency_transformers", KEPT_TRANSFORMERS),
        ("arena", KEPT_ARENA),
    ):
        (folder / f"{name}.json").write_text(json.dumps(content))
    for module in (efficiency, arena):
        monkeypatch.setattr(module, "files", lambda package: tmp_path)


@pytest.fixture
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (efficiency, arena):
        monkeypatch.setattr(module, "files", lambda package: tmp_path)


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setattr(sys, "argv", [name])
    spec = importlib.util.spec_from_file_location(name, BENCHMARKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_published_ratios_are_those_that_the_paper_states() -> None:
    ratios = [(row[3], row[6]) for row in efficiency.lssl_sheet().rows[:3]]
    stated = [(1.9, 42.0), (6.7, 133.0), (29.6, 392.0)]
    for told, (speed, memory) in zip(ratios, stated, strict=True):
        assert float(told[0][:-1]) == pytest.approx(speed, rel=0.03)
        assert float(told[1][:-1]) == pytest.approx(memory, rel=0.01)
    assert efficiency.PUBLISHED_TRANSFORMERS["S4"] == ("1.58×", "0.43×", "5.19×", "0.091×")


@pytest.mark.usefixtures("nothing_kept")
@pytest.mark.parametrize("name", ["efficiency-lssl", "efficiency-transformers"])
def test_without_measurements_the_command_says_how_to_get_them(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", name]) == 0
    told = capsys.readouterr().out
    assert f"python benchmarks/{name.replace('-', '_')}.py" in told
    assert (BENCHMARKS / f"{name.replace('-', '_')}.py").is_file()


@pytest.mark.usefixtures("kept")
def test_our_numbers_stand_below_the_published_ones() -> None:
    assert efficiency.lssl_sheet().rows[-1] == ("128*", "500", "10", "50×", "600.0", "3.0", "200×")
    sheet = efficiency.transformers_sheet()
    # At 8,192 there is nothing to compare with.
    assert sheet.header == ("model", "speed 1,024", "memory 1,024")
    assert ("S4", "1.58×", "0.43×") in sheet.rows
    assert sheet.rows[-1] == ("S4 (600k)", "2×*", "0.2×*")
    assert "batch 32 at 1,024;" in sheet.notes[0]


@pytest.mark.usefixtures("kept")
def test_the_arena_stands_in_the_table_of_the_long_range_arena(capsys: pytest.CaptureFixture[str]) -> None:
    text = tables.markdown(tables.find("lra"))
    assert "| S4, 10 min |  | 80.50* |  | 60.00* |  |  |  |" in text
    assert "| Performer, 10 min |  | 64.25* |  |  |  |  |  |" in text
    assert "FNet, 10 min" not in text
    assert "not with the published rows" in text
    assert "10 min" not in tables.markdown(tables.find("images"))
    assert main(["table", "lra"]) == 0
    assert "Performer, 10 min" in capsys.readouterr().out


def test_without_a_name_the_command_lists_the_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table"]) == 0
    told = capsys.readouterr().out
    for name in ("lra", "images", "speech", "forecast", "efficiency-lssl", "efficiency-transformers"):
        assert f"s4 table {name} " in told


@pytest.mark.parametrize("name", ["lra", "forecast", "efficiency-transformers"])
def test_a_spreadsheet_reads_every_table(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", name, "--csv"]) == 0
    rows = list(csv.reader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) > 4
    assert len({len(row) for row in rows}) == 1
    assert main(["table", name, "--csv", "--markdown"]) == 1


def test_the_arena_has_every_row_of_table_10_and_its_layer() -> None:
    published = {row.model for row in tables.find("lra").rows} - {"Random", "S4 (original)", "S4 (updated)"}
    assert set(arena.MODELS) - {"S4"} == published
    assert set(arena.MODELS.values()) <= set(LAYERS)
    assert len(arena.MODELS) == 15
    columns = {column.title: column.recipe for column in tables.find("lra").columns}
    assert all(columns[task] == recipe for task, recipe in arena.TASKS.items())


def test_the_arenas_models_are_about_as_large_as_s4(monkeypatch: pytest.MonkeyPatch) -> None:
    module = script("arena", monkeypatch)

    class Data:
        input = InputDescription(kind="values", size=1, length=64)
        task = Classification(tuple("0123456789"))

    target = None
    for model in ("S4", "Transformer", "Linformer", "Luna-256", "FNet"):
        config = module.config_of("Image", model, Data, 10.0)
        assert config.budget.max_minutes == 10.0
        built = module.build_model(config.model, Data.input, Data.task.output)
        size = module.sizes(built)[0]
        target = target or size
        assert abs(size - target) < 0.12 * target, model
        assert not built.causal


def test_the_closest_width_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    closest = script("arena", monkeypatch).closest
    for target in (0, 17, 100, 511, 9999):
        widths = range(16, 513, 8)
        assert closest(widths, lambda width, t=target: abs(width - t)) == min(
            widths, key=lambda width, t=target: abs(width - t)
        )


def test_some_examples_of_a_split_are_spread_over_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from torchs4.data.sequences import ArraySplit

    inputs = np.arange(100, dtype=np.float32).reshape(100, 1, 1)
    whole = ArraySplit(inputs, np.zeros(100), np.arange(100), lambda rows, generator: torch.from_numpy(rows))
    some = script("arena", monkeypatch).Some(whole, 12)
    assert len(some) == 12
    assert some.batch(np.arange(12)).x.flatten().tolist() == [0, 9, 18, 27, 36, 45, 54, 63, 72, 81, 90, 99]
    assert some.lengths is None


@pytest.mark.parametrize("name", ["efficiency_transformers", "efficiency_lssl", "efficiency_attentions"])
def test_what_is_measured_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = script(name, monkeypatch)
    if name == "efficiency_transformers":
        sizes = {kind: sum(p.numel() for p in module.network(kind).parameters()) for kind in module.MODELS}
        assert all(500_000 < size < 700_000 for size in sizes.values()), sizes
        for kind in module.MODELS:
            module.training_step(module.network(kind), 1, 8)()
    elif name == "efficiency_lssl":
        for kind in ("lssl", "s4"):
            module.training_step(module.layer(kind, 8, 2), 16)()
    else:
        monkeypatch.setattr(module, "POSITIONS", 16)
        for layer in ("s4", "performer"):
            module.training_step(layer, 16)()


def test_a_measured_piece_is_not_measured_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = script("harness", monkeypatch)
    monkeypatch.setattr(module, "RESULTS", tmp_path / "benchmarks" / "results")
    (tmp_path / "benchmarks").mkdir()
    first = module.Pieces("mine").measure("a", lambda: 1.5)
    again = module.Pieces("mine")
    assert again.measure("a", lambda: pytest.fail("measured twice")) == first == 1.5
    assert set(again.about) == {"a"}
