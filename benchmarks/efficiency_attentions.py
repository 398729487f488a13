"""All fourteen attentions and S4 in the same block, width 256: time of a training step against length.

    python benchmarks/efficiency_attentions.py       # about two minutes; wants an idle machine

Every step has 4,096 positions. Layers have their usual options and see both directions: S4 has two kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from harness import RESULTS, THREADS, Pieces, interleave, record, show

from torchs4 import S4Block, S4BlockConfig
from torchs4.configuration import with_options
from torchs4.tables.arena import MODELS

if TYPE_CHECKING:
    from collections.abc import Callable

FEATURES, POSITIONS, REPEATS = 256, 4096, 3
LENGTHS = (512, 1024, 2048, 4096)


def training_step(layer: str, length: int) -> Callable[[], None]:
    config = with_options(S4BlockConfig(), layer=layer)
    if not config.layer.bidirectional:
        config = with_options(config, bidirectional=True)
    block, x = S4Block(FEATURES, config), torch.randn(POSITIONS // length, length, FEATURES)

    def run() -> None:
        block.zero_grad()
        block(x).square().mean().backward()

    return run


def times(length: int) -> dict[str, Any]:
    return interleave({name: training_step(layer, length) for name, layer in MODELS.items()}, REPEATS)


def main() -> None:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    pieces = Pieces("efficiency_attentions")
    found = {str(length): pieces.measure(f"ms/{length}", lambda k=length: times(k)) for length in LENGTHS}
    record(
        "efficiency_attentions",
        {"pieces": pieces.about, "positions": POSITIONS, "features": FEATURES, "lengths": found},
    )
    rows = [[name, *(one[name]["median_ms"] for one in found.values())] for name in MODELS]
    show("ms for 4,096 positions", ["model", *found], rows)
    draw(found)


def draw(found: dict[str, Any]) -> None:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(9, 5), layout="constrained")
    last = list(found)[-1]
    order = sorted(MODELS, key=lambda name: found[last][name]["median_ms"], reverse=True)
    colours = plt.get_cmap("tab20")
    for number, name in enumerate(order):
        # Interleaved times compare within a length: between two the machine may have become busier.
        values = [one[name]["median_ms"] / one["S4"]["median_ms"] for one in found.values()]
        style = (
            {"linewidth": 3, "color": "black"}
            if name == "S4"
            else {"linewidth": 1.2, "color": colours(number)}
        )
        axis.plot([int(length) for length in found], values, "o-", markersize=4, label=name, **style)
    axis.set(xscale="log", yscale="log", xlabel="length of the sequence", ylabel="time of a step, S4's = 1")
    axis.set_xticks(ticks := [int(length) for length in found], [f"{tick:,}" for tick in ticks])
    axis.set_yticks(ticks := [1, 2, 5, 10], [str(tick) for tick in ticks])
    axis.minorticks_off()
    axis.grid(alpha=0.3)
    axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axis.set_title(f"One training step of one block, width {FEATURES}, on {THREADS} CPU cores")
    path = RESULTS / "efficiency_attentions.png"
    figure.savefig(path, dpi=150)
    print(f"Wrote {path}")


if __name__ == "__main__":
    main()
