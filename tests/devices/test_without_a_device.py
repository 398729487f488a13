"""Devices that are not there: one that holds nothing, and one that computes on the CPU in secret."""

import os
import subprocess
import sys
from pathlib import Path


def run(script, *arguments):
    """What a script prints, line by line; in a process of its own, because devices stay registered."""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name(script)), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout.splitlines()


def test_whole_runs_train_stop_and_go_on_and_read_one_number_a_step(tmp_path):
    assert run("training_proof.py", tmp_path) == [
        "operators: 7 as exact as they should be",
        "streaming: 0 waits in 49 steps, predictions of the CPU",
        "training: 1 wait a step",
        "checkpoint and resume: the same weights, bit for bit",
        "best model loaded onto the device",
    ]


def test_training_and_prediction_go_through_on_a_device_without_double_precision():
    """Nothing reads what the device holds, moves it to the host, or needs float64."""
    lines = run("proof.py")
    assert sum(line.startswith("train step") for line in lines) == 6
    assert sum(line.startswith("prediction") for line in lines) == 5
    assert "operators from the inside" in lines
