"""Steps in Triton without a GPU: interpreted, beside the plain ones, and compiled for three architectures.

Triton takes a gigabyte and comes with PyTorch for GPUs only: without it these tests are skipped.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed: pip install triton")


@pytest.mark.parametrize(("what", "interpreted"), [("interpret", "1"), ("compile", "0")])
def test_steps_in_triton(what, interpreted):
    """In a process of its own: Triton decides when it is imported whether it interprets."""
    result = subprocess.run(
        [sys.executable, "-W", "ignore", str(Path(__file__).with_name("triton_proof.py")), what],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "TRITON_INTERPRET": interpreted, "OMP_NUM_THREADS": "1"},
    )
    assert result.returncode == 0, result.stderr[-3000:]
    expected = {"interpret": 6, "compile": 12}
    assert len(result.stdout.splitlines()) == expected[what]
