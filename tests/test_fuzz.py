"""`make fuzz` finds what is wrong, tells it from rounding, and says how to see it again."""

import importlib
import json
import sys
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
import torch

from torchs4.ops import cpu

FOLDER = Path(__file__).parent / "fuzz"
# Among them are layers that are convolved on a CPU.
CASES = range(1_000_000, 1_000_006)


@pytest.fixture
def fuzz(monkeypatch):
    """Its modules, forgotten afterwards: they have short names."""
    monkeypatch.syspath_prepend(FOLDER)
    threads = torch.get_num_threads()
    names = [path.stem for path in FOLDER.glob("*.py") if path.stem != "__main__"]
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    torch.set_num_threads(threads)
    for name in names:
        del sys.modules[name]


def test_nothing_is_found_where_nothing_is_wrong_and_a_planted_fault_is(fuzz, monkeypatch, capsys):
    sound = [fuzz.trials.attempt(fuzz.networks, case) for case in CASES]
    assert not any(outcome.faults for outcome in sound)
    convolve = cpu.long_convolution
    monkeypatch.setattr(cpu, "long_convolution", lambda *given: 1.01 * convolve(*given))
    broken = {case: fuzz.trials.attempt(fuzz.networks, case) for case in CASES}
    found = {case: outcome for case, outcome in broken.items() if outcome.faults}
    assert found
    case, outcome = found.popitem()
    fuzz.trials.show("networks", case, outcome)
    said = capsys.readouterr().out
    assert f"FAULT: make fuzz CASE=networks:{case}" in said
    assert "forward is" in said


def test_an_error_that_is_not_in_our_words_is_a_fault(fuzz):
    def run(number, outcome):
        raise KeyError("a raw one")

    outcome = fuzz.trials.attempt(SimpleNamespace(run=run), 0)
    assert "KeyError: 'a raw one'" in outcome.faults[0]


def test_damage_follows_its_seed_and_leaves_no_file_as_it_was(fuzz, tmp_path):
    content = json.dumps({"size": [1, 2.5], "name": {"first": "x"}})
    results = []
    for seed in [*range(60), *range(60)]:
        path = tmp_path / "config.json"
        path.write_text(content)
        fuzz.damage.damage(Random(seed), path)
        results.append(path.read_bytes() if path.is_file() else None)
        if path.is_dir():
            path.rmdir()
    assert results[:60] == results[60:]
    unchanged = sum(result == content.encode() for result in results)
    assert unchanged < 10
