"""The command line as a person uses it: real processes, real signals."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from torchs4.models import load_model

SMALL = ["--model.layers", "1", "--model.features", "4", "--model.state-size", "4", "--model.dropout", "0.1"]
SMALL += ["--budget.max-steps", "12", "--budget.validation-examples", "20", "--checkpoint-seconds", "0"]


ATTENTION = ["--model.layer", "transformer", "--model.heads", "2"]


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", "torchs4.cli", *map(str, arguments)]


def s4(*arguments: object, folder: Path, data: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200", "TORCHS4_DATA": str(data or folder / "no-data")}
    return subprocess.run(
        command(*arguments), capture_output=True, text=True, cwd=folder, env=environment, timeout=240
    )


def start(*arguments: object, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*arguments), cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 200
    while not path.exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    result = s4("train", "digits", "--output", "run", *SMALL, folder=folder)
    assert result.returncode == 0, result.stderr
    assert "Test accuracy" in result.stdout
    return folder / "run"


def assert_same_weights(one: Path, other: Path) -> None:
    for name in ("best", "last"):
        expected = load_model(one / name).state_dict()
        for key, tensor in load_model(other / name).state_dict().items():
            assert torch.equal(tensor, expected[key]), f"{name}: {key}"


@pytest.mark.slow
def test_a_run_leaves_a_folder_that_a_person_can_read(whole: Path) -> None:
    names = {path.name for path in whole.iterdir()}
    wanted = {"config.json", "metrics.jsonl", "summary.json", "curves.png", "kernels.png", "best", "last"}
    assert wanted <= names
    summary = json.loads((whole / "summary.json").read_text())
    assert summary["steps"] == 12
    assert "train digits --output run" in summary["command"]


@pytest.mark.slow
@pytest.mark.parametrize("moment", [0.0, 0.15])
def test_a_killed_run_ends_like_one_that_was_not(whole: Path, tmp_path: Path, moment: float) -> None:
    process = start("train", "digits", "--output", "run", *SMALL, folder=tmp_path)
    wait_for(tmp_path / "run" / "last", process)
    time.sleep(moment)
    process.kill()
    process.communicate()
    result = s4("train", "--resume", "run", folder=tmp_path)
    assert result.returncode == 0, result.stderr
    assert_same_weights(whole, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_ctrl_c_leaves_a_run_that_can_be_continued(whole: Path, tmp_path: Path) -> None:
    process = start("train", "digits", "--output", "run", *SMALL, folder=tmp_path)
    wait_for(tmp_path / "run" / "last", process)
    process.send_signal(signal.SIGINT)
    printed = process.communicate()[0]
    assert process.returncode == 130, printed
    assert "Continue with: s4 train --resume run" in printed
    assert "Traceback" not in printed
    assert s4("train", "--resume", "run", folder=tmp_path).returncode == 0
    assert_same_weights(whole, tmp_path / "run")
    again = s4("train", "--resume", "run", folder=tmp_path)
    assert again.returncode == 0
    assert "complete" in again.stdout
    longer = s4("train", "--resume", "run", "--budget.max-steps", 15, folder=tmp_path)
    assert longer.returncode == 0, longer.stderr
    assert "was complete after 12 steps; it goes on to 15" in longer.stdout
    assert "summary-12-steps.json" in longer.stdout
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["steps"] == 15


@pytest.mark.slow
def test_runs_are_evaluated_and_compared(whole: Path, tmp_path: Path) -> None:
    measured = s4("evaluate", whole, folder=tmp_path)
    summary = json.loads((whole / "summary.json").read_text())
    assert f"accuracy {100 * summary['test_accuracy']:.2f} %" in measured.stdout, measured.stderr
    halved = s4("evaluate", whole, "--split", "validation", "--rate", 2, folder=tmp_path)
    assert "500 validation examples, keeping one of 2 samples" in halved.stdout, halved.stderr
    compared = s4("compare", whole, whole, folder=tmp_path)
    assert compared.stdout.count("digits (cpu)") == 2, compared.stderr
    first = (tmp_path / "comparison.png").read_bytes()
    assert first.startswith(b"\x89PNG")
    assert "comparison.png (replaced)" in s4("compare", whole, whole, folder=tmp_path).stdout
    assert "Curves: comparison-2.png" in s4("compare", whole, folder=tmp_path).stdout
    assert (tmp_path / "comparison.png").read_bytes() == first


@pytest.mark.slow
def test_a_run_remembers_where_its_data_lie(tmp_path: Path) -> None:
    # Generated data that are prepared in one folder only.
    train = ["train", "lra-listops", "--data-dir", tmp_path / "here", "--output", "run", *SMALL]
    train += ["--data.train-size", 40, "--data.validation-size", 8, "--data.test-size", 8]
    process = start(*train, "--optim.batch-size", 4, folder=tmp_path)
    wait_for(tmp_path / "run" / "last", process)
    process.kill()
    process.communicate()
    missing = s4("evaluate", "run", folder=tmp_path)
    if not (tmp_path / "run" / "best").exists():
        assert "Continue with: s4 train --resume run" in missing.stderr
    for arguments in (["train", "--resume", "run"], ["evaluate", "run"]):
        result = s4(*arguments, folder=tmp_path)
        assert result.returncode == 0, result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"here", "run"}


@pytest.fixture(scope="module")
def own_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder: a table of sequences, one long series, and a text."""
    folder = tmp_path_factory.mktemp("own")
    draws = np.random.default_rng(0)
    rows = draws.normal(size=(40, 12))
    labels = np.where(rows.mean(1) > 0, "up", "down")
    lines = [",".join([label, *map(str, row.round(3))]) for label, row in zip(labels, rows, strict=True)]
    (folder / "signals.csv").write_text("\n".join(["label," + ",".join(f"t{i}" for i in range(12)), *lines]))
    hours = [f"2024-01-{1 + hour // 24:02d} {hour % 24:02d}:00,{np.sin(hour / 4):.4f}" for hour in range(300)]
    (folder / "series.csv").write_text("\n".join(["date,load", *hours]))
    (folder / "book.txt").write_text("so much depends upon a red wheel barrow. " * 40)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "task", "options", "metric"),
    [
        ("signals.csv", "classification", ["--data.test-fraction", 0.2, "--model.layer", "lstm"], "accuracy"),
        ("series.csv", "forecasting", ["--data.window", 24, "--data.horizon", 4], "scaled MSE"),
        (
            "book.txt",
            "next-token",
            ["--data.length", 16, "--model.layer", "transformer"],
            "bits per character",
        ),
    ],
)
def test_own_files_train_and_continue_after_a_kill(
    own_data: Path, tmp_path: Path, file: str, task: str, options: list[object], metric: str
) -> None:
    small = ["--model.layers", 1, "--model.features", 8, "--budget.max-steps", 12, "--checkpoint-seconds", 0]
    train = ["train", "--data", own_data / file, "--task", task, *small, *options]
    whole = s4(*train, "--output", "whole", folder=tmp_path)
    assert whole.returncode == 0, whole.stderr
    assert f"{metric} " in whole.stdout
    process = start(*train, "--output", "killed", folder=tmp_path)
    wait_for(tmp_path / "killed" / "last", process)
    process.kill()
    process.communicate()
    resumed = s4("train", "--resume", "killed", folder=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert_same_weights(tmp_path / "whole", tmp_path / "killed")
    compared = s4("compare", "whole", "killed", folder=tmp_path)
    assert f"best validation {metric}" in compared.stdout, compared.stderr


@pytest.mark.slow
def test_a_layer_of_ones_own_is_offered_and_restored(own_data: Path, tmp_path: Path) -> None:
    page = Path(__file__).parents[1] / "docs" / "your-own-layer.md"
    layer = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)[0]
    (tmp_path / "mine.py").write_text(layer)
    (name,) = re.findall(r'@register_layer\("(.*?)"\)', layer)
    train = ["train", "--data", own_data / "signals.csv", "--model.layer", name, "--import", "mine"]
    helped = s4(*train, "--help", folder=tmp_path)
    assert f"(default: {name})" in helped.stdout, helped.stderr
    small = ["--model.layers", 1, "--model.features", 8, "--budget.max-steps", 3, "--output", "run"]
    trained = s4(*train, *small, folder=tmp_path)
    assert trained.returncode == 0, trained.stderr
    unknown = s4("evaluate", "run", "--split", "validation", folder=tmp_path)
    assert "has to be registered first" in unknown.stderr
    known = s4("evaluate", "run", "--split", "validation", "--import", "mine", folder=tmp_path)
    assert known.returncode == 0, known.stderr


def test_mistakes_are_explained_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    (tmp_path / "run" / "best").mkdir(parents=True)
    (tmp_path / "run" / "config.json").touch()
    cases = [
        (["fly"], 2, "no command `s4 fly`"),
        (["trian"], 2, "no command `s4 trian`. Did you mean `s4 train`?"),
        (["train", "lra-txt"], 1, "Did you mean lra-text?"),
        (["train", "digits", "--preset", "modern"], 1, "has no preset 'modern'; it has cpu"),
        (["train", "digits", "--model.layrs", "4"], 2, "--model.layers"),
        (["train", "smnist", "--output", "fresh"], 1, "Run `s4 data get mnist`"),
        (["train", "digits", "--output", "used"], 1, "is there already"),
        (["train", "--resume", "nowhere"], 1, "is not a run"),
        (["generate", "run/best"], 1, "run/best is a part of a run. Pass the whole run: run"),
        (["data", "get", "mnst"], 1, "Did you mean mnist?"),
        (["train", "--data", "nothing.csv"], 1, "There is no"),
        (
            ["train", "--data", "used", "--task", "guess"],
            1,
            "--task is 'guess'; choose one of 'classification'",
        ),
        (["train", "digits", "--model.layer", "s7"], 1, "layer is 's7'; choose one of"),
        (["train", "digits", "--import", "nowhere"], 1, "No module named 'nowhere'"),
        (["train", "digits", "--import", "../x.py"], 1, "--import is '../x.py'; expected the name"),
        (["train", "digits", "--optim.lr", "1e308"], 2, "lr is 1e+308; it must be at most"),
        (["train", "digits", "--model.features", 10**11], 1, "GB to be trained; this machine has"),
        (["train", "digits", "--model.state-size", 10**7], 1, "GB to be trained; this machine has"),
    ]
    for arguments, code, message in cases:
        result = s4(*arguments, folder=tmp_path)
        assert result.returncode == code, (arguments, result.stderr)
        assert message in " ".join(result.stderr.split()), (arguments, result.stderr)
        assert "Traceback" not in result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"used", "run"}


def test_help_offers_only_the_presets_that_there_are(tmp_path: Path) -> None:
    helped = s4("train", "digits", "--help", folder=tmp_path).stdout
    assert "--preset {cpu}" in helped
    assert "publication" not in helped
    assert "--preset {paper,modern,cpu}" in s4("train", "lra-text", "--help", folder=tmp_path).stdout
    assert "--preset" not in s4("train", "--data", "x.csv", "--help", folder=tmp_path).stdout


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
@pytest.mark.parametrize("module", ["rich", "tyro", "torch"])
def test_ctrl_c_while_importing_shows_no_traceback(tmp_path: Path, module: str) -> None:
    (tmp_path / f"{module}.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(100)\n"
    )
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    result = subprocess.run(
        command("train", "digits"),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        timeout=60,
    )
    assert result.returncode == 130
    assert result.stderr == "Stopped.\n"


def test_lists_and_help(tmp_path: Path) -> None:
    for arguments, wanted in (
        (["--help"], ["s4 train NAME", "s4 data get"]),
        (["--version"], ["torchs4 "]),
        (["list"], ["lra-path-x", "96.35", "sc10-raw", "98.32", "bits per character", "MSE"]),
        (["list", "--help"], ["every experiment"]),
        (["data", "--help"], ["s4 data get NAME"]),
        (["train", "digits", "--model.layer", "transformer", "--help"], ["--model.heads", "--model.stem"]),
        (
            ["train", "--data", "x.csv", "--task", "forecasting", "--help"],
            ["--data.horizon", "--model.layers"],
        ),
        (["data", "list"], ["cifar10", "CC BY 4.0", "generated"]),
        (
            ["train", "lra-text", "--help"],
            ["--model.layers", "(default: 4)", "--optim.lr", "--data.max-length"],
        ),
    ):
        result = s4(*arguments, folder=tmp_path)
        assert result.returncode == 0, result.stderr
        for text in wanted:
            assert text in result.stdout, (arguments, text)
