"""Where a block's training step spends its time, and how little it could take on this machine.

    python benchmarks/block_profile.py

Every part runs by itself, forward and backward, in turn with the whole block and its rivals. The floor is
what no block with this mixing can avoid: its three matrix products, and one read and one write of each
activation each way. An S4 block also needs the transforms of its convolution and the products behind its
kernel; `s4_floor` adds what PyTorch's libraries take for these alone, on data that lie as they like it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from harness import THREADS, interleave, record, show
from layer_speed import FEATURES, candidates
from torch import nn
from torch.nn import functional as F

from torchs4 import S4Block, ops

if TYPE_CHECKING:
    from collections.abc import Callable

# The outputs of norm, convolution, GELU and block, and the mixed features, twice as wide.
ACTIVATIONS = 6
SIZES = ((8, 1024), (2, 4096), (2, 16384))


def parts(batch: int, length: int) -> dict[str, Callable[[], Any]]:
    block = S4Block(FEATURES)
    layer, rows = block.layer, batch * length
    x, wide = torch.randn(rows, FEATURES), torch.randn(rows, 2 * FEATURES)
    weight, target = torch.randn(2 * FEATURES, FEATURES), torch.empty(rows, FEATURES)
    shape = (batch, length, FEATURES)
    kernel = layer.kernel(length).detach()

    def products() -> None:
        """Output, input gradient and weight gradient of the mixing."""
        torch.mm(x, weight.t())
        torch.mm(wide, weight)
        torch.mm(wide.t(), x)

    # Two sequences per complex transform; u, its gradient and y, and for the kernel's gradient u once more.
    signals = torch.randn(batch * FEATURES // 2, 2 * length, dtype=torch.complex64)

    def transforms() -> None:
        for _ in range(5):
            torch.fft.fft(signals)

    # K[jT + i] = (C Ā^(jT)) (Ā^i b): forward one product of coarse rows and fine columns, backward two; and
    # for Ā^T and the coarse rows, which are made forward, made again backward and differentiated, eight.
    states, steps = layer.state_size, round(length**0.5)
    coarse = torch.randn(FEATURES, steps, states, dtype=torch.float64)
    dense = torch.randn(FEATURES, states, states, dtype=torch.float64)

    def kernel_products() -> None:
        for _ in range(3):
            torch.bmm(coarse, coarse.mT)
        for _ in range(8):
            torch.bmm(coarse, dense)

    def passes() -> None:
        """One read and one write of each activation, forward and backward."""
        for _ in range(2 * ACTIVATIONS):
            target.copy_(x)

    return {
        "products": products,
        "passes": passes,
        "transforms": transforms,
        "kernel_products": kernel_products,
        "kernel": both_ways(lambda: layer.kernel(length), torch.ones_like(kernel)),
        "convolution": both_ways(
            lambda u, k: ops.long_convolution(u, k, skip=layer.D).squeeze(2),
            torch.ones(shape),
            torch.randn(shape),
            kernel,
        ),
        "gates": both_ways(
            lambda mixed, residual: ops.gated_residual(mixed, block.mixing.bias, residual),
            torch.ones(shape),
            wide.view(batch, length, -1),
            torch.randn(shape),
        ),
        "gelu": both_ways(F.gelu, torch.ones(shape), torch.randn(shape)),
        "norm": both_ways(nn.LayerNorm(FEATURES), torch.ones(shape), torch.randn(shape)),
    }


def both_ways(
    function: Callable[..., torch.Tensor], grad: torch.Tensor, *inputs: torch.Tensor
) -> Callable[[], None]:
    leaves = [x.clone().requires_grad_() for x in inputs]

    def run() -> None:
        for leaf in leaves:
            leaf.grad = None
        function(*leaves).backward(grad)

    return run


def main() -> None:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    results: dict[str, Any] = {}
    for batch, length in SIZES:
        rivals = ["torchs4"] if length > 4096 else ["torchs4", "lstm", "transformer"]
        times = interleave({**candidates(batch, length, rivals), **parts(batch, length)}, repeats=9)
        found = {name: time["median_ms"] for name, time in times.items()}
        floor = found["products"] + found["passes"]
        s4_floor = floor + found["transforms"] + found["kernel_products"]
        summary = {"floor_ms": floor, "s4_floor_ms": s4_floor}
        for name in rivals:
            summary |= {f"{name} / floor": found[name] / floor, f"{name} / s4_floor": found[name] / s4_floor}
        results[f"B{batch}/L{length}"] = {"times": times, **summary}
        show(
            f"forward + backward, B {batch}, L {length}, H {FEATURES}, N 64, float32",
            ["part", "ms"],
            [[name, time] for name, time in {**found, **summary}.items()],
        )
    record("block_profile", results)


if __name__ == "__main__":
    main()
