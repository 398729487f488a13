"""Which of the paper's models train in the memory of which device: PyTorch's tracker, tensors without data.

    python benchmarks/device_memory.py

Weights, gradients, AdamW's moments and everything that a step of batch B keeps, at its highest, in float32.
What is made inside of one operator, which the tracker does not see into, is added as a bound: the spectra of
some features at a time, or the powers of a kernel. What the device's libraries and PyTorch's allocator need
is not in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from device_language_model import GROUPS, LanguageModel
from device_sizes import SIZES, Size
from harness import record, show
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker

from torchs4 import ops
from torchs4.ops.portable.convolution import _GROUP_ELEMENTS, fast_size

if TYPE_CHECKING:
    from collections.abc import Callable

DEVICES_GB = (8, 16, 24, 80)


LANGUAGE_MODEL = "WikiText-103, 249 million parameters"
CONTEXT = 8192


def main() -> None:
    ops.set_implementation("portable")
    results: dict[str, Any] = {}
    for name, size in SIZES.items():
        if size.vocabulary is not None:
            continue

        def loss(model: nn.Module, batch: int, size: Size = size) -> torch.Tensor:
            return model(torch.empty(batch, size.length, 1)).square().mean()

        found = {
            batch: step_bytes(size.build(), loss, batch) + inside(size, batch) for batch in (1, size.batch)
        }
        per_example = (found[size.batch] - found[1]) / (size.batch - 1)
        results[name] = {
            **size._asdict(),
            "peak_gb": found[size.batch] / 1e9,
            "peak_gb_of_one_example": found[1] / 1e9,
            "largest_batch": {
                f"{gb} GB": max(0, int((gb * 1e9 - found[1]) // per_example) + 1) for gb in DEVICES_GB
            },
        }
        print(name, results[name], flush=True)
    results[LANGUAGE_MODEL] = language_model()
    print(LANGUAGE_MODEL, results[LANGUAGE_MODEL])
    rows = [
        [name, r["batch"], r["peak_gb"], *("yes" if r["peak_gb"] <= gb else "no" for gb in DEVICES_GB)]
        for name, r in results.items()
    ]
    show("memory of a training step", ["model", "batch", "GB", *(f"{gb} GB" for gb in DEVICES_GB)], rows)
    record("device_memory", results)


def language_model() -> dict[str, Any]:
    """One sequence of 8,192 words, in float32 and with the feed-forward and mixing layers in bfloat16.

    Counted for one group of layers and for three: every other group adds as much.
    """
    size = Size(1024, 32, 64, CONTEXT, 1, bidirectional=False)

    def loss(model: nn.Module, batch: int) -> torch.Tensor:
        return model(torch.zeros(batch, CONTEXT, dtype=torch.long))

    def half_loss(model: nn.Module, batch: int) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return loss(model, batch)

    def count(groups: int) -> list[int]:
        with torch.device("meta"):
            model = LanguageModel(groups)
        weights = sum(weight.numel() for weight in model.parameters())
        return [weights, *(step_bytes(model, run, 1) for run in (loss, half_loss))]

    few = 1, 3
    first, later = (count(groups) for groups in few)
    parameters, whole, half = (
        a + (b - a) * (GROUPS - few[0]) // (few[1] - few[0]) for a, b in zip(first, later, strict=True)
    )
    return {
        "parameters": parameters,
        "context": CONTEXT,
        "batch": 1,
        "counted_with_groups": few,
        "peak_gb": (whole + inside(size, 1)) / 1e9,
        "peak_gb_bfloat16": (half + inside(size, 1)) / 1e9,
    }


def step_bytes(model: nn.Module, loss: Callable[[Any, int], torch.Tensor], batch: int) -> int:
    """The highest that the tracker sees in a second step, when the optimiser has its moments."""
    with FakeTensorMode():
        for module in model.modules():
            for name, weight in module._parameters.items():
                if weight is not None:
                    module._parameters[name] = nn.Parameter(torch.empty(weight.shape))
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype)
        optimizer = torch.optim.AdamW(model.parameters())
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            for _ in range(2):
                loss(model, batch).backward()
                optimizer.step()
                optimizer.zero_grad()
                tracker.reset_mod_stats()
        snapshot = tracker.get_tracker_snapshot("peak")
    return sum(total for kinds in snapshot.values() for kind, total in kinds.items() if str(kind) == "Total")


def inside(size: Size, batch: int) -> int:
    """What an operator needs for itself: a convolution's group of features, or a kernel's powers."""
    padded = min(_GROUP_ELEMENTS, batch * size.features * fast_size(2 * size.length))
    # Padded signals and gradients, their spectra, and the products'.
    convolution = 6 * 4 * padded
    # Going backward: rungs and their gradients, at most one for each digit of the length, and a few more.
    matrices = 2 * size.length.bit_length() + 8
    return max(convolution, 4 * matrices * size.features * size.state_size**2)


if __name__ == "__main__":
    main()
