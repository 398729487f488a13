"""How fast a whole block trains, against the same block written naively and against other layers.

    python benchmarks/layer_speed.py

About ten minutes on two cores, most of it spent in the naive block at length 16,384.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from harness import THREADS, interleave, peak_memory_mb, record, show
from naive import NaiveBlock
from torch import nn

from torchs4 import S4, S4Block

if TYPE_CHECKING:
    from collections.abc import Callable

FEATURES = 256


class LastOfTuple(nn.Module):
    """A recurrent layer's outputs without its states."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The outputs alone."""
        return self.layer(x)[0]


def train_step(module: nn.Module, batch: int, length: int) -> Callable[[], None]:
    x = torch.randn(batch, length, FEATURES, requires_grad=True)
    grad = torch.ones(batch, length, FEATURES)

    def run() -> None:
        module.zero_grad()
        x.grad = None
        module(x).backward(grad)

    return run


def candidates(batch: int, length: int, names: list[str]) -> dict[str, Callable[[], None]]:
    modules: dict[str, Callable[[], nn.Module]] = {
        "torchs4": lambda: S4Block(FEATURES),
        "naive": lambda: NaiveBlock(S4(FEATURES)),
        "lstm": lambda: LastOfTuple(nn.LSTM(FEATURES, FEATURES, batch_first=True)),
        "gru": lambda: LastOfTuple(nn.GRU(FEATURES, FEATURES, batch_first=True)),
        "transformer": lambda: nn.TransformerEncoderLayer(FEATURES, 4, 1024, dropout=0.0, batch_first=True),
    }
    return {name: train_step(modules[name](), batch, length) for name in names}


def main() -> None:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    results: dict[str, Any] = {}
    rows = []
    for batch, length, names in (
        (8, 1024, ["torchs4", "naive", "lstm", "gru", "transformer"]),
        (2, 4096, ["torchs4", "lstm", "transformer"]),
    ):
        times = interleave(candidates(batch, length, names))
        for name in names[1:]:
            ratio = times[name]["median_ms"] / times["torchs4"]["median_ms"]
            rows.append(
                [
                    f"B {batch}, L {length}",
                    name,
                    times["torchs4"]["median_ms"],
                    times[name]["median_ms"],
                    ratio,
                ]
            )
            times[name]["ratio"] = ratio
            print(f"B{batch} L{length}: {name} {ratio:.1f}x", flush=True)
        results[f"block/B{batch}/L{length}"] = times
    rows.append(long_block(results))
    growth(results)
    show("forward + backward, H 256, N 64, float32", ["size", "baseline", "torchs4 ms", "ms", "ratio"], rows)
    record("layer_speed", results)


def long_block(results: dict[str, Any]) -> list[Any]:
    """B 2, L 16,384. The naive block runs on a quarter of the features and its time counts four times:
    whole, it needs about 22 GB. Its mixing is then 16 times too cheap, in its favour.
    """
    quarter = NaiveBlock(S4(FEATURES // 4))
    x = torch.randn(2, 16384, FEATURES // 4, requires_grad=True)

    def naive() -> None:
        quarter.zero_grad()
        quarter(x).backward(torch.ones_like(x))

    times = interleave({"torchs4": train_step(S4Block(FEATURES), 2, 16384), "naive_quarter": naive})
    ours, theirs = times["torchs4"]["median_ms"], 4 * times["naive_quarter"]["median_ms"]
    results["block/B2/L16384"] = {**times, "ratio": theirs / ours}
    print(f"B2 L16384: naive {theirs / ours:.1f}x", flush=True)
    return ["B 2, L 16384", "naive (4 × a quarter)", ours, theirs, theirs / ours]


def growth(results: dict[str, Any]) -> None:
    """Time and memory against length, B 1."""
    lengths = [1024, 2048, 4096, 8192, 16384, 32768, 65536]
    block = S4Block(FEATURES)
    times = interleave({str(length): train_step(block, 1, length) for length in lengths})
    memory = {
        str(length): peak_memory_mb(
            f"""
from torchs4 import S4Block
block = S4Block({FEATURES})
block(torch.randn(1, 64, {FEATURES})).sum().backward()
ready = peak()
block(torch.randn(1, {length}, {FEATURES}, requires_grad=True)).sum().backward()
"""
        )
        for length in lengths
    }
    results["growth/B1"] = {
        "time_ms": {length: t["median_ms"] for length, t in times.items()},
        "memory_mb": memory,
        "time_ratio_65536_to_4096": times["65536"]["median_ms"] / times["4096"]["median_ms"],
        "memory_ratio_65536_to_4096": memory["65536"] / memory["4096"],
    }
    print(results["growth/B1"], flush=True)


if __name__ == "__main__":
    main()
