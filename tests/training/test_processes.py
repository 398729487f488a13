"""Two processes do what one does with the joined batch."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from torchs4.models import load_model

# Neither dropout nor batch statistics, which depend on how a batch is shared.
SMALL = ["--model.layers", "1", "--model.features", "4", "--model.state-size", "4", "--model.norm", "layer"]
SMALL += [
    "--optim.average",
    "0.5",
    "--optim.batch-size",
    "10",
    "--budget.validation-examples",
    "21",
    "--data.cut-short",
    "0",
]


def train(folder: Path, processes: int, *arguments: str) -> None:
    script = folder / "train.py"
    script.write_text("import sys; from torchs4.cli import main; sys.exit(main())\n")
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)] if processes > 1 else []
    environment = {**os.environ, "ACCELERATE_USE_CPU": "true", "OMP_NUM_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, "-W", "ignore", *launcher, str(script), "train", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr


def weights(run: Path, which: str) -> dict[str, torch.Tensor]:
    return load_model(run / which).state_dict()


@pytest.mark.slow
def test_two_processes_train_like_one(tmp_path: Path) -> None:
    for processes in (1, 2):
        train(tmp_path, processes, "digits", "--output", f"run{processes}", "--budget.max-steps", "4", *SMALL)
        summary = json.loads((tmp_path / f"run{processes}" / "summary.json").read_text())
        # A launcher that quietly starts one process would make this test pass.
        assert summary["processes"] == processes
        assert summary["test_examples"] == 1000
    for which in ("last", "best"):
        one, two = weights(tmp_path / "run1", which), weights(tmp_path / "run2", which)
        for key, tensor in one.items():
            torch.testing.assert_close(two[key], tensor, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_two_processes_train_the_language_model_like_one(tmp_path: Path) -> None:
    words = np.random.default_rng(0).zipf(1.3, 3000) % 300
    text = " \n".join(" ".join(f"w{word}" for word in line) for line in np.array_split(words, 100))
    place = tmp_path / "data" / "wikitext-103"
    place.mkdir(parents=True)
    for part in ("train", "valid", "test"):
        (place / f"wiki.{part}.tokens").write_text(f"{text} <unk> \n")
    small = ["--model.layers", "2", "--model.features", "8", "--model.state-size", "4"]
    small += ["--model.dropout", "0"]
    small += ["--model.cutoffs", "20", "60", "150", "--data.length", "32", "--optim.batch-size", "4"]
    # In order, and not drawn: then both see the same passages.
    small += ["--optim.carry-state", "--optim.lr", "0.01", "--budget.max-steps", "6"]
    for processes in (1, 2):
        folder = f"run{processes}"
        arguments = ["--data-dir", "data", "--output", folder, *small]
        train(tmp_path, processes, "wikitext-103", "--preset", "paper", *arguments)
        summary = json.loads((tmp_path / folder / "summary.json").read_text())
        assert summary["processes"] == processes
        assert summary["steps"] == 6
    one, two = weights(tmp_path / "run1", "last"), weights(tmp_path / "run2", "last")
    for key, tensor in one.items():
        torch.testing.assert_close(two[key], tensor, rtol=1e-3, atol=1e-5)
