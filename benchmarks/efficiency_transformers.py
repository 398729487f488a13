"""Table 3: a Transformer, its linear kin and S4, four layers each: time and peak memory of a training step.

    python benchmarks/efficiency_transformers.py --memory     # a fresh process for each cell
    python benchmarks/efficiency_transformers.py --speed      # interleaved; wants an idle machine
    python benchmarks/efficiency_transformers.py              # what is missing of both, then the results

As in the paper: width 256, 4 heads, projections 128, about 600,000 parameters; attentions with a norm and a
residual and nothing else, S4 with its gates. Attentions see both directions. The batch is the paper's 32 at
length 1,024; longer sequences share 8,192 positions (the longest, 16,384), since 32 of 4,096 do not fit. What
needs more than BUDGET_MB is not run.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from harness import RESULTS, THREADS, Pieces, interleave, keep_for_tables, peak_memory_mb, record, show
from torch import nn

from torchs4 import BlockStack, S4BlockConfig, S4Config, TransformerConfig
from torchs4.layers.attention import LinearTransformerConfig, PerformerConfig
from torchs4.tables.efficiency import YARDSTICK

if TYPE_CHECKING:
    from collections.abc import Callable

FEATURES, LAYERS, HEADS, PROJECTION = 256, 4, 4, 128
BUDGET_MB = 6000
# Length, batch, and how often: the longest take half a minute a step. The paper's lengths come first.
SIZES = ((256, 32, 5), (1024, 32, 3), (4096, 2, 3), (2048, 4, 3), (8192, 1, 2), (16384, 1, 2))
SHARED: dict[str, Any] = {"heads": HEADS, "projection": PROJECTION, "bidirectional": True}
MODELS: dict[str, Any] = {
    YARDSTICK: TransformerConfig(**SHARED, attention="materialised"),
    "Transformer, fused": TransformerConfig(**SHARED),
    "Performer": PerformerConfig(**SHARED),
    "Linear Trans.": LinearTransformerConfig(**SHARED),
    "S4": S4Config(),
}
# Beyond it the matrices of four layers exceed the budget; fused attention would take minutes a step.
LONGEST = {YARDSTICK: 4096, "Transformer, fused": 8192}


class Residual(nn.Module):
    """x + layer(norm(x)), as a Transformer has it."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(FEATURES)
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layer(self.norm(x))


def network(name: str) -> nn.Module:
    if name == "S4":
        return BlockStack(FEATURES, LAYERS, S4BlockConfig(layer=MODELS[name]))
    return nn.Sequential(*(Residual(MODELS[name].build(FEATURES)) for _ in range(LAYERS)))


def training_step(model: nn.Module, batch: int, length: int) -> Callable[[], None]:
    x = torch.randn(batch, length, FEATURES)

    def run() -> None:
        model.zero_grad()
        model(x).square().mean().backward()

    return run


def names_at(length: int) -> list[str]:
    return [name for name in MODELS if length <= LONGEST.get(name, length)]


def memory(name: str, batch: int, length: int) -> float:
    """How far the peak of a fresh process rises in a step, above what the model and a tiny step need."""
    return peak_memory_mb(
        f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from efficiency_transformers import network, training_step
model = network({name!r})
training_step(model, 1, 64)()
ready = peak()
training_step(model, {batch}, {length})()
"""
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--memory", action="store_true", help="only this, no result file")
    parser.add_argument("--speed", action="store_true", help="only this, no result file")
    chosen = parser.parse_args()
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    pieces = Pieces("efficiency_transformers")
    lengths: dict[str, Any] = {}
    for length, batch, repeats in SIZES:
        found: dict[str, Any] = {"batch": batch}
        if not chosen.speed:
            found["mb"] = {
                name: pieces.measure(
                    f"mb/{length}/{batch}/{name}", lambda n=name, b=batch, k=length: memory(n, b, k)
                )
                for name in names_at(length)
            }
        if not chosen.memory:
            found["times"] = pieces.measure(
                f"ms/{length}/{batch}", lambda b=batch, k=length, r=repeats: times(b, k, r)
            )
            found["ms"] = {name: time["median_ms"] for name, time in found["times"].items()}
        lengths[str(length)] = found
    if chosen.memory or chosen.speed:
        return
    lengths = dict(sorted(lengths.items(), key=lambda one: int(one[0])))
    parameters = {name: sum(p.numel() for p in network(name).parameters()) for name in MODELS}
    results: dict[str, Any] = {"pieces": pieces.about}
    results |= {
        "lengths": lengths,
        "parameters": parameters,
        "budget_mb": BUDGET_MB,
        "claims": claims(lengths),
    }
    path = record("efficiency_transformers", results)
    short = {key: {k: v for k, v in one.items() if k != "times"} for key, one in lengths.items()}
    keep_for_tables(
        "efficiency_transformers",
        path,
        {"lengths": short, "parameters": parameters, "budget_mb": BUDGET_MB},
    )
    for kind in ("ms", "mb"):
        rows = [[name, *(one[kind].get(name, "") for one in lengths.values())] for name in MODELS]
        show(kind, ["model", *lengths], rows)
    for claim, value in results["claims"].items():
        print(f"{claim}: {value}")
    draw(lengths)


def times(batch: int, length: int, repeats: int) -> dict[str, dict[str, float]]:
    candidates = {name: training_step(network(name), batch, length) for name in names_at(length)}
    return interleave(candidates, repeats=repeats)


def claims(lengths: dict[str, Any]) -> dict[str, Any]:
    """S4 beside both Transformers: how many times as fast, and how much of the memory."""
    found: dict[str, Any] = {}
    for length, one in lengths.items():
        for name in (YARDSTICK, "Transformer, fused"):
            if name in one["ms"]:
                found[f"S4's speed beside {name}'s at {length}"] = one["ms"][name] / one["ms"]["S4"]
                found[f"S4's memory beside {name}'s at {length}"] = one["mb"]["S4"] / one["mb"][name]
    return found


def draw(lengths: dict[str, Any]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    # Interleaved times compare within a length: between two of them the machine may have become busier.
    titles = ("time of a step, S4's = 1", "peak memory in kB per position")
    for axis, kind, title in zip(axes, ("ms", "mb"), titles, strict=True):
        for name in MODELS:
            points = {
                int(length): one["ms"][name] / one["ms"]["S4"]
                if kind == "ms"
                else 1000 * one["mb"][name] / (one["batch"] * int(length))
                for length, one in lengths.items()
                if name in one[kind]
            }
            width = 2.5 if name == "S4" else 1.2
            axis.plot(list(points), list(points.values()), "o-", markersize=4, linewidth=width, label=name)
        axis.set(xscale="log", yscale="log", xlabel="length of the sequence", title=title)
        axis.set_xticks(ticks := [int(length) for length in lengths], [f"{tick:,}" for tick in ticks])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.set_yticks(ticks := [1, 2, 5, 10] if kind == "ms" else [30, 100, 300], map(str, ticks))
    axes[1].legend(frameon=False, loc="upper left")
    figure.suptitle(
        f"One training step, four layers, width {FEATURES}, on {THREADS} CPU cores; at most {BUDGET_MB:,} MB"
    )
    path = RESULTS / "efficiency_transformers.png"
    figure.savefig(path, dpi=150)
    print(f"Wrote {path}")


if __name__ == "__main__":
    main()
