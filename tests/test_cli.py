"""The command line as a person uses it: real processes, real signals."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from torchs4.models import load_model

SMALL = ["--model.layers", "1", "--model.features", "4", "--model.state-size", "4", "--model.dropout", "0.1"]
SMALL += ["--budget.max-steps", "12", "--budget.validation-examples", "20", "--checkpoint-seconds", "0"]


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


@pytest.mark.slow
def test_runs_are_evaluated_and_compared(whole: Path, tmp_path: Path) -> None:
    measured = s4("evaluate", whole, folder=tmp_path)
    summary = json.loads((whole / "summary.json").read_text())
    assert f"accuracy {100 * summary['test_accuracy']:.2f} %" in measured.stdout, measured.stderr
    halved = s4("evaluate", whole, "--split", "validation", "--rate", 2, folder=tmp_path)
    assert "500 validation examples, keeping one of 2 samples" in halved.stdout, halved.stderr
    compared = s4("compare", whole, whole, folder=tmp_path)
    assert compared.stdout.count("digits (cpu)") == 2, compared.stderr
    assert (tmp_path / "comparison.png").read_bytes().startswith(b"\x89PNG")


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


def test_mistakes_are_explained_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    cases = [
        (["fly"], 2, "no command `s4 fly`"),
        (["trian"], 2, "no command `s4 trian`. Did you mean `s4 train`?"),
        (["train", "lra-txt"], 1, "Did you mean lra-text?"),
        (["train", "digits", "--preset", "modern"], 1, "has no preset 'modern'; it has cpu"),
        (["train", "digits", "--model.layrs", "4"], 2, "--model.layers"),
        (["train", "smnist", "--output", "fresh"], 1, "Run `s4 data get mnist`"),
        (["train", "digits", "--output", "used"], 1, "is there already"),
        (["train", "--resume", "nowhere"], 1, "is not a run"),
        (["data", "get", "mnst"], 1, "Did you mean mnist?"),
    ]
    for arguments, code, message in cases:
        result = s4(*arguments, folder=tmp_path)
        assert result.returncode == code, (arguments, result.stderr)
        assert message in " ".join(result.stderr.split()), (arguments, result.stderr)
        assert "Traceback" not in result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"used"}


def test_lists_and_help(tmp_path: Path) -> None:
    for arguments, wanted in (
        (["--help"], ["s4 train NAME", "s4 data get"]),
        (["list"], ["lra-path-x", "96.35", "sc10-raw", "98.32"]),
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
