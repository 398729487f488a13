"""The files of a run: written, read again, and refused when they are not what they should be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from torchs4 import recipes
from torchs4.tasks import ACCURACY
from torchs4.training import provenance
from torchs4.training.run_folder import RunFolder, free_folder

if TYPE_CHECKING:
    from pathlib import Path

PRESETS = [(recipe.name, preset) for recipe in recipes.RECIPES.values() for preset in recipe.presets]


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_the_configuration_of_every_recipe_survives(tmp_path: Path, name: str, preset: str) -> None:
    config = recipes.recipe_config(name, preset)  # type: ignore[arg-type]
    folder = RunFolder(tmp_path / "run")
    folder.start(f"{name} ({preset})", config, [ACCURACY])
    assert folder.config() == config
    assert folder.name() == f"{name} ({preset})"
    assert folder.metric() == ACCURACY


def test_a_used_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    config = recipes.recipe_config("digits")
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path, tmp_path / "file"):
        with pytest.raises(ValueError, match=r"is there already\. Choose another folder with --output, or"):
            RunFolder(path).start("digits", config, [ACCURACY])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    (tmp_path / "empty").mkdir()
    RunFolder(tmp_path / "empty").start("digits", config, [ACCURACY])


def test_metrics_are_appended_and_read(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.metrics() == []
    folder.add_metrics({"epoch": 1})
    folder.add_metrics({"epoch": 2})
    assert folder.metrics() == [{"epoch": 1}, {"epoch": 2}]
    assert folder.keep_metrics(1) == [{"epoch": 1}]
    assert folder.metrics() == [{"epoch": 1}]


def test_a_last_line_that_a_kill_cut_off_is_forgotten(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 1}\n{"epoch": 2, "tra')
    assert folder.metrics() == [{"epoch": 1}]
    folder.keep_metrics(1)
    folder.add_metrics({"epoch": 2})
    assert folder.metrics() == [{"epoch": 1}, {"epoch": 2}]


def test_a_damaged_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 1}\n{"epoch\n{"epoch": 3}\n')
    with pytest.raises(ValueError, match=r"metrics.jsonl, line 2 is damaged"):
        RunFolder(tmp_path).metrics()


WRONG = [b"3", b"[]", b"null", b'"text"']
GOOD = {
    "epoch": 1, "step": 3, "seconds": 1.5, "train_loss": 1.0, "validation_loss": 2.0,
    "train_accuracy": 0.5, "validation_accuracy": 0.25,
}  # fmt: skip


@pytest.mark.parametrize("line", WRONG)
def test_a_line_that_is_no_table_is_refused(tmp_path: Path, line: bytes) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b'{"epoch": 1}\n' + line + b"\n")
    with pytest.raises(ValueError, match=r"metrics.jsonl, line 2 is .*; expected a table"):
        RunFolder(tmp_path).metrics()


def test_metrics_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_bytes(b"\xff\xfe\n")
    with pytest.raises(ValueError, match="it is no text"):
        RunFolder(tmp_path).metrics()


@pytest.mark.parametrize("name", list(GOOD))
@pytest.mark.parametrize("value", [None, "3", True, [1], {"a": 1}, 10**400])
def test_a_curve_has_all_its_numbers(tmp_path: Path, name: str, value: object) -> None:
    folder = RunFolder(tmp_path)
    folder.add_metrics(GOOD)
    assert folder.curve(ACCURACY) == [GOOD]
    folder.add_metrics({**GOOD, name: value})
    with pytest.raises(ValueError, match=rf"metrics.jsonl, line 2: {name} is .*; expected a number"):
        folder.curve(ACCURACY)


@pytest.mark.parametrize("value", ["3", True, [1], {"a": 1}, 10**400])
def test_a_result_is_a_number(tmp_path: Path, value: object) -> None:
    folder = RunFolder(tmp_path)
    assert folder.result("parameters") is None
    folder.write_summary({"parameters": value, "seconds": 2})
    assert folder.result("seconds") == 2
    with pytest.raises(ValueError, match=r"summary.json: parameters is .*; expected a number"):
        folder.result("parameters")


def test_the_summary_says_that_a_run_is_complete(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert folder.summary() is None
    folder.write_summary({"test_accuracy": 0.5})
    assert folder.summary() == {"test_accuracy": 0.5}


def _change(path: Path, **changes: object) -> None:
    plain = json.loads(path.read_text())
    plain["training"].update(changes)
    path.write_text(json.dumps(plain))


def test_a_configuration_of_another_version_is_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.start("digits (cpu)", recipes.recipe_config("digits"), [ACCURACY])
    file = tmp_path / "config.json"
    good = file.read_text()
    for changes, match in (
        ({"data": {"kind": "ImageNet"}}, "data is of kind 'ImageNet'; this version of torchs4 knows Bundled"),
        ({"data": {"cut_short": 0.5}}, "data is of kind None"),
        ({"optim": {"kind": "OptimizerOptions", "momentum": 1}}, "OptimizerOptions has no field momentum"),
        ({"optim": {"kind": "OptimizerOptions", "lr": "fast"}}, "lr is 'fast'; expected float"),
        ({"optim": {"kind": "OptimizerOptions", "batch_size": True}}, "batch_size is True; expected int"),
        ({"model": None}, "model is None; expected"),
        ({"seed": 1e300}, "seed is 1e\\+300; expected int"),
        ({"seed": 10**30}, "seed is 1000.*; it must be at most"),
        ({"budget": {"kind": "BudgetOptions", "epochs": 10**400}}, "epochs is 1000.*; it must be at most"),
        ({"optim": {"kind": "OptimizerOptions", "lr": 10**400}}, "lr is 1000.*; expected float"),
        ({"optim": {"kind": "OptimizerOptions", "lr": 1e308}}, "lr is 1e\\+308; it must be at most"),
        ({"optim": {"kind": "OptimizerOptions", "decay": 2.0}}, "decay is 2.0; it must be at most 1"),
    ):
        _change(file, **changes)
        with pytest.raises(ValueError, match=match):
            folder.config()
        file.write_text(good)
    for text, match in (("{", "is not readable JSON"), ("[1]", r"does not describe a run: it holds \[1\]")):
        file.write_text(text)
        with pytest.raises(ValueError, match=match):
            folder.config()


@pytest.mark.parametrize("place", [3, ["a"], {"a": 1}, True, "a\0b"])
def test_a_data_folder_is_a_path(tmp_path: Path, place: object) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"data_dir": place}))
    with pytest.raises(ValueError, match=r"config.json: data_dir is .*; expected the path of a folder"):
        RunFolder(tmp_path).data_dir()


@pytest.mark.parametrize("depth", [900, 100_000])
def test_deep_nesting_is_refused(tmp_path: Path, depth: int) -> None:
    nest = "[" * depth + "]" * depth
    text = f'{{"metrics": [{{"name": {nest}}}], "training": {{"seed": {nest}}}}}'
    (tmp_path / "config.json").write_text(text)
    for read in (RunFolder(tmp_path).config, RunFolder(tmp_path).metric):
        with pytest.raises(ValueError, match=r"config\.json"):
            read()


def test_another_folder_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"it holds no config.json\. Pass a folder of `s4 train`"):
        RunFolder(tmp_path / "nowhere").config()


def test_free_names_are_numbered(tmp_path: Path) -> None:
    assert free_folder(tmp_path / "nowhere", "run") == tmp_path / "nowhere" / "run"
    for expected in ("run", "run-2", "run-3"):
        free = free_folder(tmp_path, "run")
        assert free == tmp_path / expected
        free.mkdir()


def test_a_result_names_the_commit_that_its_process_began_with(monkeypatch: pytest.MonkeyPatch) -> None:
    commits = iter(["before", "after"])
    monkeypatch.setattr(provenance, "_git", lambda folder, *asked: next(commits) if "HEAD" in asked else "")
    provenance.source_commit.cache_clear()
    try:
        assert provenance.source_commit() == "before"
        assert provenance.provenance()["commit"] == "before"
    finally:
        provenance.source_commit.cache_clear()
