"""Where a block's training step spends its time, and how little it could take on this machine.

    python benchmarks/block_profile.py

Every part runs by itself, forward and backward, in turn with the whole block and its rivals. The floor is
what no implementation of this block can avoid: the three matrix products of the mixing, and one read and one
write of each activation each way.
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

    def passes() -> None:
        """One read and one write of each activation, forward and backward."""
        for _ in range(2 * ACTIVATIONS):
            target.copy_(x)

    return {
        "products": products,
        "passes": passes,
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
        summary = {"floor_ms": floor, "block / floor": found["torchs4"] / floor}
        summary |= {f"{name} / floor": found[name] / floor for name in rivals[1:]}
        results[f"B{batch}/L{length}"] = {"times": times, **summary}
        show(
            f"forward + backward, B {batch}, L {length}, H {FEATURES}, N 64, float32",
            ["part", "ms"],
            [[name, time] for name, time in {**found, **summary}.items()],
        )
    record("block_profile", results)


if __name__ == "__main__":
    main()
