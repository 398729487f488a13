"""A queue of runs: skips, continues, goes on after a failure, stops in time, and may be killed."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_recipes import tiny_recipe, write_text

from torchs4 import recipes
from torchs4.cli.reproduce import EVERYTHING, seconds_of
from torchs4.models import load_model
from torchs4.recipes import queue
from torchs4.recipes.queue import QueueResult, work_through
from torchs4.recipes.runs import RecipeRun, runs_of, status, summaries_in
from torchs4.training.loop import Trainer, TrainingDivergedError
from torchs4.training.run_folder import RunFolder


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Recipes `tiny`, `small` and `missing`; the folder for runs."""
    text = write_text(tmp_path)
    for name in ("tiny", "small"):
        monkeypatch.setitem(recipes.RECIPES, name, tiny_recipe(name, text))
    monkeypatch.setitem(recipes.RECIPES, "missing", tiny_recipe("missing", tmp_path / "nowhere.txt"))
    return tmp_path / "runs"


def work(folder: Path, *names: str, told: list[str] | None = None, **options: Any) -> QueueResult:
    tell = (lambda text: None) if told is None else told.append
    options = {"quiet": True, "checkpoint_seconds": 0.0, "data_dir": folder.parent, **options}
    return work_through(runs_of(names, options.pop("seeds", (0,))), folder, tell=tell, **options)


def weights(folder: Path, name: str) -> dict[str, torch.Tensor]:
    return load_model(folder / name / "last").state_dict()


def states(folder: Path, *names: str) -> list[str]:
    return [status(run, folder).state for run in runs_of(names, (0,))]


def test_every_run_gets_its_folder_and_is_skipped_the_second_time(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert work(tiny, "tiny", "small", seeds=(0, 1)) == QueueResult([], True, [])
    names = {"tiny-cpu", "tiny-cpu-seed1", "small-cpu", "small-cpu-seed1"}
    assert {path.name for path in tiny.iterdir()} == names
    assert RunFolder(tiny / "tiny-cpu").name() == "tiny (cpu)"
    assert RunFolder(tiny / "tiny-cpu-seed1").config().seed == 1
    monkeypatch.setattr(Trainer, "run", lambda self: pytest.fail("trained again"))
    told: list[str] = []
    assert work(tiny, "tiny", "small", told=told).is_complete
    assert told[0].startswith("1 of 2: tiny (cpu) is finished: bits per character ")


def test_a_run_that_fails_does_not_stop_the_others(tiny: Path) -> None:
    told: list[str] = []
    result = work(tiny, "missing", "tiny", told=told)
    assert result.is_complete
    ((run, reason),) = result.failures
    assert (run.recipe.name, "nowhere.txt" in reason) == ("missing", True)
    assert told[1].startswith("1 of 2: missing (cpu) failed: ")
    assert states(tiny, "missing", "tiny") == ["waiting", "finished"]


def test_a_run_that_diverges_does_not_stop_the_others(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = Trainer._step

    def diverges(self: Trainer, *arguments: Any) -> Any:
        if self.folder.path.name == "tiny-cpu" and self.progress.step == 3:
            raise TrainingDivergedError("the loss is nan")
        return step(self, *arguments)

    monkeypatch.setattr(Trainer, "_step", diverges)
    result = work(tiny, "tiny", "small")
    assert [failure.reason for failure in result.failures] == ["the loss is nan"]
    assert states(tiny, "tiny", "small") == ["interrupted", "finished"]


def test_a_run_that_another_process_began_meanwhile_is_left_to_it(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert work(tiny, "tiny").is_complete
    # As if that had happened while this one was reading the data.
    monkeypatch.setattr(queue, "_prepare", lambda run, folder: False)
    monkeypatch.setattr(RunFolder, "summary", lambda folder: None)
    result = work(tiny, "tiny")
    assert (result.failures, [run.folder_name for run in result.elsewhere]) == ([], ["tiny-cpu"])


def test_a_folder_that_is_no_run_is_a_failure(tiny: Path) -> None:
    (tiny / "tiny-cpu").mkdir(parents=True)
    (tiny / "tiny-cpu" / "letter.txt").write_text("not yours")
    result = work(tiny, "tiny")
    assert result.elsewhere == []
    assert "is there already" in result.failures[0].reason


def test_a_queue_that_is_stopped_in_time_ends_like_one_that_was_not(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert work(tiny / "whole", "tiny").is_complete
    now = time.monotonic()
    result = work(tiny, "tiny", "small", stop_at=now)
    assert (result.is_complete, tiny.joinpath("tiny-cpu").exists()) == (False, False)
    # The deadline passes while the third step is taken.
    step, taken = Trainer._step, []

    def counted(self: Trainer, *arguments: Any) -> Any:
        taken.append(self.folder.path.name)
        self.stop_at = now if len(taken) == 3 else self.stop_at
        return step(self, *arguments)

    monkeypatch.setattr(Trainer, "_step", counted)
    assert not work(tiny, "tiny", "small").is_complete
    assert taken == ["tiny-cpu"] * 3
    assert states(tiny, "tiny", "small") == ["interrupted", "waiting"]
    assert work(tiny, "tiny", "small").is_complete
    steps = RunFolder(tiny / "tiny-cpu").summary()["steps"]  # type: ignore[index]
    assert taken.count("tiny-cpu") == steps
    expected = weights(tiny / "whole", "tiny-cpu")
    for name, value in weights(tiny, "tiny-cpu").items():
        assert torch.equal(value, expected[name]), name


def test_runs_may_differ_in_precision(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = recipes.RECIPES["small"]
    config = dataclasses.replace(small.config("cpu"), precision="bfloat16")
    monkeypatch.setitem(recipes.RECIPES, "small", dataclasses.replace(small, presets={"cpu": lambda: config}))
    assert work(tiny, "tiny", "small") == QueueResult([], True, [])


def test_a_kill_before_the_first_file_has_its_name_is_no_obstacle(tiny: Path) -> None:
    (tiny / "tiny-cpu").mkdir(parents=True)
    (tiny / "tiny-cpu" / ".config.json.123").write_text("{")
    assert work(tiny, "tiny") == QueueResult([], True, [])


def test_a_run_that_another_process_is_at_is_left_to_it(tiny: Path) -> None:
    (tiny / "tiny-cpu").mkdir(parents=True)
    told: list[str] = []
    with RunFolder(tiny / "tiny-cpu").locked():
        result = work(tiny, "tiny", "small", told=told)
    assert (result.failures, result.is_complete) == ([], True)
    assert [run.folder_name for run in result.elsewhere] == ["tiny-cpu"]
    assert told[1] == "1 of 2: tiny (cpu) is being trained by another process: left to it."
    assert states(tiny, "tiny", "small") == ["waiting", "finished"]
    assert work(tiny, "tiny", "small") == QueueResult([], True, [])


def test_runs_of_another_version_of_a_recipe_are_not_taken_for_this_one(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(tiny, "tiny")
    recipe = recipes.RECIPES["tiny"]
    config = recipe.config("cpu")
    other = dataclasses.replace(config, optim=dataclasses.replace(config.optim, lr=0.002))
    monkeypatch.setitem(recipes.RECIPES, "tiny", dataclasses.replace(recipe, presets={"cpu": lambda: other}))
    ((_, reason),) = work(tiny, "tiny").failures
    assert "begun with other options than tiny's preset cpu has now. Move or delete it" in reason


def test_status_tells_times_and_what_is_left(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (run,) = runs_of(["tiny"], (0,))
    assert status(run, tiny) == dataclasses.replace(status(run, tiny), state="waiting", seconds_left=None)
    monkeypatch.setattr(recipes, "summaries", lambda recipe, preset: [{"training_seconds": 600.0}])
    assert status(run, tiny).seconds_left == 600.0
    folder = RunFolder(tiny / "tiny-cpu")
    folder.start("tiny (cpu)", run.config(), [run.recipe.metric])
    assert status(run, tiny).state == "interrupted"
    name = f"validation_{run.recipe.metric.name}"
    folder.add_metrics({"epoch": 1, "step": 10, "seconds": 30.0, name: 1.0})
    assert status(run, tiny).seconds_left == 570.0
    folder.add_metrics({"epoch": 2, "step": 15, "seconds": 45.0, name: 1.0})
    # Two epochs at 30 seconds each.
    assert status(run, tiny).seconds_left == 15.0
    folder._summary.write_text("{")
    assert "not readable" in status(run, tiny).result


def test_summaries_of_a_folder_come_before_those_of_the_package(tiny: Path) -> None:
    work(tiny, "tiny", seeds=(0, 1))
    look_up = summaries_in(tiny)
    assert [summary["name"] for summary in look_up(recipes.find("tiny"), "cpu")] == [
        "tiny (cpu)",
        "tiny (cpu, seed 1)",
    ]
    digits = recipes.find("digits")
    assert look_up(digits, "cpu") == recipes.summaries(digits, "cpu") != []


def test_names_may_have_a_preset() -> None:
    runs = runs_of(["smnist", "lra-text:modern", "smnist:cpu"], (0, 2))
    assert [run.folder_name for run in runs] == [
        "smnist-cpu",
        "smnist-cpu-seed2",
        "lra-text-modern",
        "lra-text-modern-seed2",
    ]
    with pytest.raises(ValueError, match="no recipe 'sminst'"):
        runs_of(["sminst"], (0,))
    with pytest.raises(ValueError, match="no preset 'large'"):
        runs_of(["smnist:large"], (0,))
    assert all(isinstance(run, RecipeRun) for run in runs_of(EVERYTHING, (0,)))


@pytest.mark.parametrize(
    ("text", "seconds"), [("2h", 7200), ("30m", 1800), ("90s", 90), ("1h30m", 5400), ("0.5h", 1800)]
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "2", "h", "2 hours", "30m1h", "-1h"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="write it like 2h, 90m, 45s or 1h30m"):
        seconds_of(text)


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]),
        "TINY_TEXT": str(folder / "book.txt"),
        "COLUMNS": "200",
    }
    command = [sys.executable, "-W", "ignore", "-m", "torchs4.cli", "reproduce", "--import", "tiny_recipes"]
    return subprocess.Popen(
        [*command, "--checkpoint-seconds", "0", *arguments],
        cwd=folder,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_queue_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    write_text(tmp_path)
    queue = ["tiny", "missing", "small"]
    process = start(tmp_path, *queue)
    deadline = time.monotonic() + 200
    while not (tmp_path / "runs" / "reproduce" / "tiny-cpu" / "last").exists():
        assert time.monotonic() < deadline
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    process.send_signal(number)
    output, _ = process.communicate(timeout=200)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert "The same command goes on." in output
    assert not (tmp_path / "runs" / "reproduce" / "small-cpu").exists()
    again = start(tmp_path, *queue)
    output, _ = again.communicate(timeout=200)
    assert again.returncode == 1, output
    assert "1 of 3: tiny (cpu), continued" in output
    assert "2 of 3: missing (cpu) failed" in output
    assert [line for line in output.splitlines() if "small (cpu)" in line and "finished" in line]
    whole = start(tmp_path, "tiny", "--folder", "whole")
    output, _ = whole.communicate(timeout=200)
    assert whole.returncode == 0, output
    expected = weights(tmp_path / "whole", "tiny-cpu")
    for name, value in weights(tmp_path / "runs" / "reproduce", "tiny-cpu").items():
        assert torch.equal(value, expected[name]), name
