import subprocess
import sys
from pathlib import Path

import pytest

# Reference: blocks of nodes and arrays of H·L stay near 750 MB, allocator's slack included. All nodes at once
# would be H·N/2·L/2 complex numbers, 1.1 GB, for each of several intermediate results.
# cpu: spectra of some of the features at a time, beside the kernel and its gradient of 17 MB each.
# Portable: 14 powers of every transition, 4 MB each, and their gradients.
PEAK_LIMIT_MB = {"reference": 1500, "cpu": 250, "portable": 400}

# A fresh interpreter, because what this process has already used would hide the peak. VmHWM, because
# ru_maxrss of a child starts at its parent's peak.
MEASURE = """
import re, sys
from pathlib import Path

import torch
from torchs4 import hippo, ops

ops.set_implementation(sys.argv[1])

def peak_mb():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) // 1024

H, N, L = 256, 64, 16_384
start = hippo.dplr_start("legs", N)
A, P, B = (torch.view_as_real(x.resolve_conj()).float() for x in start)
A, B, P = A.repeat(H, 1, 1), B.repeat(H, 1, 1), P[:, None].repeat(1, H, 1, 1)
inputs = [A, P, P.clone(), B, torch.randn(1, H, N // 2, 2), torch.logspace(-3, -1, H)]
inputs = [x.requires_grad_() for x in inputs]
# What compiling takes is not the kernel's.
ops.dplr_kernel(*inputs, 8).sum().backward()
baseline = peak_mb()
kernel = ops.dplr_kernel(*inputs, L)
kernel.square().sum().backward()
assert all(x.grad.isfinite().all() for x in inputs)
print(peak_mb() - baseline)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from Linux's /proc")
@pytest.mark.parametrize("implementation", PEAK_LIMIT_MB)
def test_kernel_of_a_long_sequence_needs_little_memory(implementation):
    command = [sys.executable, "-c", MEASURE, implementation]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) <= PEAK_LIMIT_MB[implementation]
