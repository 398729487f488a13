"""How fast a whole block trains, against the same block written naively and against other layers.

    python benchmarks/layer_speed.py

About ten minutes on two cores, most of it spent in the naive block at length 16,384.
"""

from __future__ import annotations

from pathlib import Path
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


# How far each layer is taken: beyond, it needs too much time or memory.
LONGEST = {"torchs4": 65536, "lstm": 16384, "transformer": 8192, "naive": 4096}
MODULES = {
    "torchs4": "from torchs4 import S4Block; layer = S4Block(256)",
    "lstm": "layer = torch.nn.LSTM(256, 256, batch_first=True)",
    "transformer": "layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)",
    "naive": "from naive import NaiveBlock; from torchs4 import S4; layer = NaiveBlock(S4(256))",
}


def growth(results: dict[str, Any]) -> None:
    """Time and memory against length, B 1."""
    lengths = [1024, 2048, 4096, 8192, 16384, 32768, 65536]
    found: dict[str, Any] = {name: {"time_ms": {}, "memory_mb": {}} for name in LONGEST}
    for length in lengths:
        names = [name for name, longest in LONGEST.items() if length <= longest]
        for name, time in interleave(candidates(1, length, names)).items():
            found[name]["time_ms"][str(length)] = time["median_ms"]
            found[name]["memory_mb"][str(length)] = memory(name, length)
        print(f"B1 L{length}: {found['torchs4']['time_ms'][str(length)]:.0f} ms", flush=True)
    ours = found["torchs4"]
    for what in ("time_ms", "memory_mb"):
        found[f"torchs4 {what} 65536 / 4096"] = ours[what]["65536"] / ours[what]["4096"]
    results["growth/B1"] = found
    print(found, flush=True)


def memory(name: str, length: int) -> float:
    """Peak memory of one training step above what the layer itself needs."""
    return peak_memory_mb(
        f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
{MODULES[name]}
def run(length):
    y = layer(torch.randn(1, length, {FEATURES}, requires_grad=True))
    (y[0] if isinstance(y, tuple) else y).sum().backward()
run(64)
ready = peak()
run({length})
"""
    )


if __name__ == "__main__":
    main()
