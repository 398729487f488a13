"""How exact single precision is on any device: kernels of 65,536 samples beside double precision.

    python benchmarks/portable_accuracy.py

The largest error over the largest value of each kernel, for step sizes from 1e-4 to 1. Both get the same
float32 parameters. On a CPU; devices round alike, but may add up in another order.
"""

from __future__ import annotations

from typing import Any

import torch
from harness import record, show

from torchs4 import hippo, ops

LENGTH, STEP_SIZES = 65_536, (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


def main() -> None:
    results: dict[str, Any] = {}
    for state_size in (64, 128):
        for start in ("legs", "legt", "random"):
            Lambda, P, B = hippo.dplr_start(start, state_size, torch.Generator().manual_seed(1))
            A, B, C, dt = parameters(Lambda, B, state_size)
            P = torch.view_as_real(P.resolve_conj()).float()[:, None].repeat(1, len(STEP_SIZES), 1, 1)
            results[f"S4 {start}, N {state_size}"] = errors(ops.dplr_kernel, A, P, P, B, C, dt)
        for start in ("legs", "lin", "inv", "real"):
            A, B, C, dt = parameters(*hippo.diagonal_start(start, state_size), state_size)
            for method in ("zoh", "bilinear"):
                found = errors(
                    lambda *inputs, method=method: ops.diagonal_kernel(*inputs, method), A, B, C, dt
                )
                results[f"S4D {start}, {method}, N {state_size}"] = found
    rows = [[name, *found.values()] for name, found in results.items()]
    show("largest error", ["system", *map(str, STEP_SIZES)], rows)
    record("portable_accuracy", results)


def parameters(Lambda: Any, B: Any, state_size: int) -> tuple[torch.Tensor, ...]:
    features = len(STEP_SIZES)
    A, B = (torch.view_as_real(x.resolve_conj()).float().repeat(features, 1, 1) for x in (Lambda, B))
    C = torch.randn(1, features, state_size // 2, 2, generator=torch.Generator().manual_seed(0))
    return A, B, C, torch.tensor(STEP_SIZES)


def errors(kernel: Any, *inputs: torch.Tensor) -> dict[str, float]:
    ops.set_implementation("reference")
    exact = kernel(*(x.double() for x in inputs), LENGTH)
    ops.set_implementation("portable")
    error = (kernel(*inputs, LENGTH) - exact).abs().amax(-1) / exact.abs().amax(-1)
    return dict(zip(map(str, STEP_SIZES), error[0].tolist(), strict=True))


if __name__ == "__main__":
    main()
