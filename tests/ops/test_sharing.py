"""Work is shared among threads, and done by one thread where threads cannot be had."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from torchs4.ops.cpu.debugging import DEBUGGING
from torchs4.ops.cpu.sharing import shared

FORK = """
import os, sys, torch
torch.set_num_threads(2)
from torchs4 import S4Block, S4Config
block = S4Block(16, layer=S4Config(state_size=8))
x = torch.randn(4, 50, 16)
def use():
    block.zero_grad()
    y = block(x)
    y.square().sum().backward()
    with torch.no_grad():
        return [y.detach(), block.prefill(x)[0], block.layer.C.grad.clone()]
before = use()
class Samples(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, index): return torch.stack([torch.dist(a, b) for a, b in zip(use(), before)])
for distances in torch.utils.data.DataLoader(Samples(), num_workers=2, multiprocessing_context="fork"):
    assert distances.max() < 1e-3, distances
# A fork of one's own, without a loader that sets the number of threads.
child = os.fork()
if child == 0:
    from torchs4.ops import cpu
    y = cpu.long_convolution(x, torch.ones(1, 16, 50), None, None)
    os._exit(0 if torch.allclose(y[0], x.cumsum(1), atol=1e-3) else 1)
assert os.waitpid(child, 0)[1] == 0
after = use()
assert all(torch.allclose(a, b) for a, b in zip(before, after))
print("fine")
"""


@shared
def _count(task, numbers, together):
    numbers[task] += 1
    together[task] = numbers.shape[0]


@pytest.mark.parametrize("tasks", [0, 1, 2, 3, 1000])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_task_is_done_once(tasks, threads):
    before = torch.get_num_threads()
    numbers, together = np.zeros(tasks, np.int64), np.zeros(tasks)
    torch.set_num_threads(threads)
    try:
        _count(tasks, numbers, together)
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert (numbers == 1).all()
    assert (together == tasks).all()


@shared
def _fail(task, numbers):
    if task == 3:
        raise MemoryError
    numbers[task] = 1


@pytest.mark.skipif(DEBUGGING, reason="raises what the function raised")
def test_a_failure_is_not_silent():
    with pytest.raises(MemoryError, match="Use a smaller batch"):
        _fail(5, np.zeros(5))


def test_other_types_and_layouts_get_code_of_their_own():
    for kind in (np.float32, np.float64, np.int64):
        numbers = np.zeros((4, 4), kind)
        _count(4, numbers[:, 0], np.zeros(4))
        assert (numbers[:, 0] == 1).all()
        assert numbers.sum() == 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_layers_work_in_forked_processes_after_their_parent_used_them():
    environment = {**os.environ, "OMP_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-c", FORK], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode != -signal.SIGTERM, done.stderr
    assert done.stdout == "fine\n", done.stderr
