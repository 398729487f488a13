"""Mistakes in compiled code show: wrong ways in, wrong places, memory that is read before it is written."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import torchs4
from torchs4.ops.cpu.debugging import DEBUGGING
from torchs4.ops.cpu.products import add_product
from torchs4.ops.cpu.sharing import shared

# Written to a file, because compiled code is kept beside the file that it comes from.
MISTAKES = """
import numpy as np
from torchs4.ops.cpu.compiling import compiled_entry
from torchs4.ops.cpu.modal_rows import inner_product
from torchs4.ops.cpu.sharing import shared
from torchs4.ops.cpu.workspaces import empty

@shared
def one_too_far(task, x):
    x[task + 1] = 1.0

@compiled_entry()
def eight_too_far(x, total):
    inner_product(total, x, x, 0, 0, 8, 8)

@compiled_entry()
def read_before_written(count):
    return empty(count, np.float64).sum()

def attempt(function, *arguments):
    try:
        return repr(function(*arguments))
    except IndexError as error:
        return f"IndexError: {error}"

print(attempt(one_too_far, 4, np.zeros(8)))
# What lies behind the array is ours, so that the usual code does no harm.
print(attempt(one_too_far, 4, np.zeros(8)[:4]))
print(attempt(eight_too_far, np.zeros(16), np.zeros(1)))
print(attempt(eight_too_far, np.zeros(16)[:8], np.zeros(1)))
print(attempt(read_before_written, 3))
"""


def run_mistakes(folder, debug):
    file = folder / "mistakes.py"
    file.write_text(MISTAKES)
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment |= {"PYTHONPATH": str(Path(torchs4.__file__).parents[1]), "TORCHS4_DEBUG": debug}
    done = subprocess.run(
        [sys.executable, str(file)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_debug_mode_checks_bounds_and_poisons_memory_and_its_code_is_kept_apart(tmp_path):
    beyond = "IndexError: index is out of bounds"
    assert run_mistakes(tmp_path, "1") == ["None", beyond, "None", beyond, "nan"]
    cache = tmp_path / "__pycache__"
    assert list((cache / "debug").glob("*.nbc"))
    assert not list(cache.glob("*.nbc"))
    # Had the two kinds of code been mixed, this would read what debug mode wrote.
    assert run_mistakes(tmp_path, "0")[:4] == ["None"] * 4
    assert list(cache.glob("*.nbc"))


def test_functions_for_inside_use_say_that_python_cannot_call_them():
    with pytest.raises(
        TypeError, match=r"add_product is compiled for other compiled functions .* compiled_entry"
    ):
        add_product(np.zeros((4, 8)), np.zeros((4, 4)), np.zeros((4, 8)), 4, 4, 8)


@shared
def _worker(task, x):
    x[task] = task


@pytest.mark.skipif(DEBUGGING, reason="Python calls workers")
def test_a_worker_says_so_too_and_still_works():
    with pytest.raises(TypeError, match="_worker is compiled for other compiled functions"):
        _worker._worker(0, np.zeros(2))
    x = np.zeros(3)
    _worker(3, x)
    assert x.tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
def test_memory_is_poisoned_in_tests(dtype):
    like = torch.zeros(3, dtype=dtype)
    for memory in (torch.empty(3, dtype=dtype), torch.empty_like(like), like.new_empty((2, 3))):
        assert memory.isnan().all()
