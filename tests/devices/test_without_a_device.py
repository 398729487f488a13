import os
import subprocess
import sys
from pathlib import Path


def test_training_and_prediction_go_through_on_a_device_without_double_precision():
    """Nothing reads what the device holds, moves it to the host, or needs float64."""
    script = Path(__file__).with_name("proof.py")
    result = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    lines = result.stdout.splitlines()
    assert sum(line.startswith("train step") for line in lines) == 6
    assert sum(line.startswith("prediction") for line in lines) == 5
    assert "operators from the inside" in lines
