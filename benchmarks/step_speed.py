"""How fast a whole model steps, against nothing but its own matrix-vector products.

python benchmarks/step_speed.py
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from harness import THREADS, interleave, record, show
from torch import nn

from torchs4 import SequenceModel

STEPS = 200


def run_steps(model: SequenceModel, x: torch.Tensor) -> None:
    with torch.inference_mode():
        state = model.initial_state(len(x))
        for _ in range(STEPS):
            _, state = model.step(x, state)


def run_products(linears: list[nn.Linear], inputs: list[torch.Tensor]) -> None:
    with torch.inference_mode():
        for _ in range(STEPS):
            for linear, vector in zip(linears, inputs, strict=True):
                linear(vector)


def main() -> None:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    model = SequenceModel(input_features=1, output_size=10, features=256, num_layers=6).eval()
    linears = [module for module in model.modules() if isinstance(module, nn.Linear)]
    results: dict[str, Any] = {}
    rows = []
    for batch in (1, 16):
        inputs = [torch.randn(batch, linear.in_features) for linear in linears]
        times = interleave(
            {
                "step": partial(run_steps, model, torch.randn(batch, 1)),
                "products": partial(run_products, linears, inputs),
            },
            repeats=15,
            warmup=2,
        )
        step, product = (times[name]["median_ms"] / STEPS * 1e3 for name in ("step", "products"))
        results[f"batch{batch}"] = {"step_us": step, "products_us": product, "ratio": step / product}
        rows.append([batch, step, product, step / product])
    show("one step of 6 layers, H 256, N 64", ["batch", "step µs", "products alone µs", "ratio"], rows)
    record("step_speed", results)


if __name__ == "__main__":
    main()
