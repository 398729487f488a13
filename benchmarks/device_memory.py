"""Which of the paper's models train in the memory of which device: PyTorch's tracker, tensors without data.

    python benchmarks/device_memory.py

Weights, gradients, AdamW's moments and everything that a step of batch B keeps, at its highest, in float32.
The convolution's spectra are made for some features at a time inside one operator, which the tracker does not
see into: their bound is added. What the device's libraries and PyTorch's allocator need is not in it.
"""

from __future__ import annotations

from typing import Any

import torch
from device_sizes import SIZES, Size
from harness import record, show
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from torchs4 import ops
from torchs4.ops.portable.convolution import _GROUP_ELEMENTS, fast_size

DEVICES_GB = (8, 16, 24, 80)


def main() -> None:
    ops.set_implementation("portable")
    results: dict[str, Any] = {}
    for name, size in SIZES.items():
        spectra = convolution_bytes(size)
        whole = step_bytes(size, size.batch) + spectra
        one = step_bytes(size, 1) + spectra
        if size.batch > 1:
            per_example = (whole - one) / (size.batch - 1)
            fits = {f"{gb} GB": max(0, int((gb * 1e9 - one) // per_example) + 1) for gb in DEVICES_GB}
        else:
            fits = {f"{gb} GB": int(whole <= gb * 1e9) for gb in DEVICES_GB}
        results[name] = {
            **size._asdict(),
            "peak_gb": whole / 1e9,
            "peak_gb_of_one_example": one / 1e9,
            "largest_batch": fits,
        }
        print(name, results[name], flush=True)
    rows = [
        [name, r["batch"], r["peak_gb"], *("yes" if r["peak_gb"] <= gb else "no" for gb in DEVICES_GB)]
        for name, r in results.items()
    ]
    show("memory of a training step", ["model", "batch", "GB", *(f"{gb} GB" for gb in DEVICES_GB)], rows)
    record("device_memory", results)


def step_bytes(size: Size, batch: int) -> int:
    """The highest that the tracker sees in a second step, when the optimiser has its moments."""
    model = size.build()
    with FakeTensorMode():
        for module in model.modules():
            for name, weight in module._parameters.items():
                if weight is not None:
                    module._parameters[name] = nn.Parameter(torch.empty(weight.shape))
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)
        optimizer = torch.optim.AdamW(model.parameters())
        x = torch.empty(batch, size.length, 1)
        if size.vocabulary is not None:
            x = torch.zeros(batch, size.length, dtype=torch.long)
        tracker = MemTracker()
        tracker.track_external(model, optimizer, x)
        with tracker:
            for _ in range(2):
                # Tokens have no contents here to be checked.
                model._require_tokens = lambda tokens: None  # type: ignore[method-assign]
                model(x).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
                tracker.reset_mod_stats()
        snapshot = tracker.get_tracker_snapshot("peak")
    return sum(total for kinds in snapshot.values() for kind, total in kinds.items() if str(kind) == "Total")


def convolution_bytes(size: Size) -> int:
    """Of one group of features: padded signals and gradients, their spectra, and the products'."""
    padded = size.batch * size.features * fast_size(2 * size.length)
    return 6 * 4 * min(_GROUP_ELEMENTS, padded)


if __name__ == "__main__":
    main()
