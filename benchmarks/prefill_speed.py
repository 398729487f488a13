"""How fast a chunk passes from one state to the next, against the same layer called on a whole sequence.

python benchmarks/prefill_speed.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from harness import THREADS, interleave, record, show

from torchs4 import S4, S4D

if TYPE_CHECKING:
    from collections.abc import Callable

FEATURES = 256
SIZES = ((8, 1024), (2, 4096), (2, 16384), (1, 4096), (1, 65536))


def candidates(layer: Any, batch: int, length: int) -> dict[str, Callable[[], Any]]:
    x = torch.randn(batch, length, FEATURES)
    grad = torch.randn(batch, length, FEATURES)

    def predict(run: Callable[..., Any]) -> Callable[[], Any]:
        return torch.no_grad()(lambda: run(x))

    def train(run: Callable[..., Any]) -> Callable[[], None]:
        signal = x.clone().requires_grad_()

        def step() -> None:
            layer.zero_grad()
            signal.grad = None
            run(signal).backward(grad)

        return step

    def in_one_chunk(signal: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = layer.prefill(signal)[0]
        return outputs

    def convolve(signal: torch.Tensor) -> torch.Tensor:
        return torch.ops.torchs4.long_convolution(signal, layer.kernel(length), None, layer.D)[0]

    return {
        "predict": predict(layer),
        "predict by prefill": predict(in_one_chunk),
        "train by convolution": train(convolve),
        "train by prefill": train(in_one_chunk),
    }


def main() -> None:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    results: dict[str, Any] = {}
    rows = []
    for layer in (S4(FEATURES), S4D(FEATURES)):
        for batch, length in SIZES:
            times = interleave(candidates(layer, batch, length), warmup=2)
            found = {name: time["median_ms"] for name, time in times.items()}
            ratios = {
                "predict by prefill / predict": found["predict by prefill"] / found["predict"],
                "train by prefill / train by convolution": found["train by prefill"]
                / found["train by convolution"],
            }
            name = type(layer).__name__
            results[f"{name}/B{batch}/L{length}"] = {"times": times, **ratios}
            rows.append([f"{name}, B {batch}, L {length}", *found.values(), *ratios.values()])
    show(
        f"a layer of {FEATURES} features and 64 states: ms",
        ["", *found, "ratio, predicting", "ratio, training"],
        rows,
    )
    record("prefill_speed", results)


if __name__ == "__main__":
    main()
