"""Scripts that measure: asked for help they measure nothing, and what was measured is not lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize(
    ("argument", "code", "told"),
    [("--help", 0, "time of a training step against length"), ("--fast", 2, "--fast: this script takes")],
)
def test_a_script_without_options_tells_what_it_does(argument: str, code: int, told: str) -> None:
    before = (BENCHMARKS / "results" / "efficiency_attentions.json").read_bytes()
    command = [sys.executable, BENCHMARKS / "efficiency_attentions.py", argument]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, told in result.stdout) == (code, True), result
    assert (BENCHMARKS / "results" / "efficiency_attentions.json").read_bytes() == before


@pytest.fixture
def arena(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import arena

    monkeypatch.setattr(arena, "PIECES", tmp_path)
    return arena


def test_the_arena_goes_on_from_its_result_file(arena: Any) -> None:
    found = json.loads((BENCHMARKS / "results" / "arena.json").read_text(encoding="utf-8"))["results"]
    assert arena.recorded(found["minutes"]) == found["tasks"]
    # Pieces of other budgets do not count.
    assert arena.recorded(2 * found["minutes"]) == {}
    before = {"Text": {"S4": {"test_accuracy": 0.5}}}
    done = arena.pieces_done(found["minutes"], before)
    assert done == {"ListOps": {}, "Text": before["Text"], "Image": {}, "Pathfinder": {}}


def test_a_lead_of_a_few_examples_is_chance(arena: Any) -> None:
    def pieces(first: float, second: float) -> dict[str, dict[str, float]]:
        shares = {"S4": first, "Luna-256": second, "FNet": 0.1}
        return {model: {"test_accuracy": share, "test_examples": 1000} for model, share in shares.items()}

    near = arena.lead(pieces(0.53, 0.51))
    assert (near["next"], near["points"], near["beyond_chance"]) == ("Luna-256", 2.0, False)
    # Of a share p among n, the deviation is √(p (1 - p) / n).
    assert near["standard_error"] == pytest.approx(100 * (2 * 0.25 / 1000) ** 0.5, abs=0.01)
    assert arena.lead(pieces(0.6, 0.5))["beyond_chance"]
    assert not arena.lead(pieces(0.4, 0.5))["beyond_chance"]
