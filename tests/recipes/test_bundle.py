"""Trained models that come with the package: made from runs, found by name, measured again."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from tiny_recipes import tiny_recipe, write_text

from torchs4 import SequenceModel, load_model, recipes
from torchs4.cli import main
from torchs4.models import bundled
from torchs4.recipes.queue import work_through
from torchs4.recipes.runs import runs_of
from torchs4.training.run_folder import RunFolder

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bundle", ROOT / "benchmarks" / "bundle.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    """A finished run of a tiny recipe, with nothing bundled yet."""
    monkeypatch.setitem(recipes.RECIPES, "tiny", tiny_recipe("tiny", write_text(tmp_path)))
    monkeypatch.setattr(bundled, "FOLDER", tmp_path / "pretrained")
    work_through(
        runs_of(["tiny"], (0,)), tmp_path / "runs", tell=lambda text: None, data_dir=tmp_path, quiet=True
    )
    return RunFolder(tmp_path / "runs" / "tiny-cpu")


def test_a_bundled_model_is_found_by_its_name_and_gives_the_stated_number(
    run: RunFolder, script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    summary = script.measured_summary(run, (), None)
    folder = script.bundle(run, "my-tiny", summary)
    assert bundled.bundled_names() == ["my-tiny"]
    monkeypatch.chdir(tmp_path)
    expected = load_model(run.best).state_dict()
    for model in (SequenceModel.from_pretrained("my-tiny"), load_model("my-tiny")):
        for name, value in model.state_dict().items():
            assert torch.equal(value, expected[name])
    assert str(tmp_path) not in json.dumps(RunFolder(folder)._read_config()["data_dir"])
    stated = recipes.find("tiny").metric.show(summary["test_bits"])
    card = (folder / "card.md").read_text()
    for text in (
        stated,
        "CC BY-SA 3.0",
        "`s4 train tiny`",
        summary["commit"] or "unknown",
        "`s4 evaluate my-tiny`",
    ):
        assert text in card
    assert main(["evaluate", "my-tiny"]) == 0
    told = capsys.readouterr().out
    assert f"bits per character {stated}" in told
    assert f"Its card says {stated}." in told
    assert main(["list"]) == 0
    assert "my-tiny" in capsys.readouterr().out


def test_what_rounding_has_changed_since_the_run_can_be_measured_again(
    run: RunFolder, script: ModuleType
) -> None:
    before: Any = run.summary()
    run.write_summary({**before, "test_bits": 0.0, "test_loss": 0.0})
    assert script.measured_summary(run, (), None)["test_bits"] == 0.0
    again = script.measured_summary(run, (), None, again=True)
    assert again["test_bits"] == pytest.approx(before["test_bits"])
    assert again["test_loss"] == pytest.approx(before["test_loss"])
    assert again["commit"] == before["commit"]


def test_a_folder_comes_before_a_bundled_name(
    run: RunFolder, script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.bundle(run, "my-tiny", run.summary())
    monkeypatch.chdir(tmp_path)
    SequenceModel(features=4, num_layers=1, output_size=3).save_pretrained("my-tiny")
    assert SequenceModel.from_pretrained("my-tiny").config.output_size == 3


def test_another_name_is_told_those_that_there_are(run: RunFolder, script: ModuleType, capsys: Any) -> None:
    script.bundle(run, "my-tiny", run.summary())
    for load in (SequenceModel.from_pretrained, load_model):
        with pytest.raises(ValueError, match=r"no folder nothing\. Pass .* comes with torchs4: my-tiny\."):
            load("nothing")
    assert main(["evaluate", "nothing"]) == 1
    assert "comes with torchs4: my-tiny." in " ".join(capsys.readouterr().err.split())


def test_numbers_are_kept_by_recipe_preset_and_seed(
    run: RunFolder, script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "MEASURED", tmp_path)
    assert script.keep_numbers(run, run.summary()) == tmp_path / "tiny.cpu.json"
    work_through(
        runs_of(["tiny"], (3,)), tmp_path / "runs", tell=lambda text: None, data_dir=tmp_path, quiet=True
    )
    other = RunFolder(tmp_path / "runs" / "tiny-cpu-seed3")
    assert script.keep_numbers(other, other.summary()) == tmp_path / "tiny.cpu.seed3.json"


def test_what_is_not_finished_too_large_or_badly_named_is_refused(
    run: RunFolder, script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    summary = run.summary()
    with pytest.raises(ValueError, match="small letters, digits and hyphens"):
        script.bundle(run, "../tiny", summary)
    monkeypatch.setattr(script, "LARGEST", 100)
    with pytest.raises(ValueError, match="a bundled model has at most 100"):
        script.bundle(run, "tiny", summary)
    run._summary.unlink()
    with pytest.raises(ValueError, match="is not finished"):
        script.measured_summary(run, (), None)


@pytest.mark.parametrize("name", bundled.bundled_names())
def test_every_bundled_model_loads_is_small_and_says_what_it_is(name: str) -> None:
    folder = RunFolder(bundled.FOLDER / name)
    load_model(name)
    folder.config()
    summary = folder.summary()
    assert summary is not None
    assert sum(path.stat().st_size for path in folder.path.rglob("*") if path.is_file()) < 4_100_000
    card = (folder.path / "card.md").read_text(encoding="utf-8")
    for text in ("Data:", "Licence of the data:", "Result:", "Command:", "Commit:", summary["commit"]):
        assert text in card
