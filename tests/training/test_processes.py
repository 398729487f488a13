"""Two processes do what one does with the joined batch."""

import json
import os
import subprocess
import sys
from pathlib import Path

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
