"""Speeds of generation: published ones as they stand, measured ones beside the faster Transformer."""

import json
from pathlib import Path

import pytest

from torchs4.cli import main
from torchs4.tables import generation


def cell(rate: float) -> dict[str, float]:
    return {"batch": 4, "words_per_second": rate, "latency_ms": 1.0}


KEPT = {
    "where": "a machine",
    "budget_gb": 4.0,
    "largest_batch": 64,
    "gigabytes_per_second": 20.0,
    "gigaflops": 200.0,
    "s4_bound": 412.3,
    "parameters": {"S4": 249e6, "Transformer": 239e6, "GPT-2": 210e6},
    "images": {"S4": 0.5, "Transformer": 0.25},
    "contexts": {
        "512": {
            "models": {"S4": cell(100.0), "Transformer": cell(50.0), "GPT-2": cell(80.0)},
            "transformer_bound": 400.0,
        },
        "8192": {"models": {"S4": cell(120.0), "Transformer": cell(2.0)}, "transformer_bound": 60.0},
    },
}


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured" / "generation_speed.json").write_text(json.dumps(KEPT))
    monkeypatch.setattr(generation, "files", lambda package: tmp_path)


def test_published_speeds_are_those_of_the_paper() -> None:
    rows = {row[0]: row[1:3] for row in generation.generation_sheet().rows}
    assert rows["S4, base"] == ("20.84 (65.1×)", "48,000 (60×)")
    assert rows["Transformer"] == ("0.32 (1×)", "800 (1×)")
    assert len(generation.PUBLISHED) == 7


@pytest.mark.usefixtures("measured")
def test_ratios_are_to_the_faster_transformer() -> None:
    sheet = generation.generation_sheet()
    assert sheet.header[3:] == ("words / s, 512", "words / s, 8,192")
    ours = {row[0]: row[1:] for row in sheet.rows[-sheet.ours :]}
    assert ours["S4 (249M)*"] == ("0.5 (2×)", "", "100 (1.25×)", "120 (60×)")
    assert ours["GPT-2 (210M)*"] == ("", "", "80 (1×)", "")
    assert "0.25× at 512, 2× at 8,192" in sheet.notes[0]
    assert "at 200 Gflop/s, it would write 412 words a second" in sheet.notes[0]


def test_what_was_not_measured_says_how(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(generation, "files", lambda package: tmp_path)
    assert main(["table", "generation"]) == 0
    assert "Not measured yet: python benchmarks/generation_speed.py" in capsys.readouterr().out


@pytest.mark.usefixtures("measured")
@pytest.mark.parametrize("form", [[], ["--markdown"], ["--csv"]])
def test_the_command_shows_it(form: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "generation", *form]) == 0
    assert "120 (60×)" in capsys.readouterr().out
