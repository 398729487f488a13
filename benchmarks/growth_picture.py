"""Draw time and memory of one training step against length, from results/layer_speed.json.

python benchmarks/growth_picture.py
"""

from __future__ import annotations

import json

import matplotlib.pyplot as plt
from harness import RESULTS

LABELS = {
    "torchs4": "torchs4 S4Block",
    "lstm": "nn.LSTM",
    "transformer": "nn.TransformerEncoderLayer",
    "naive": "S4 block, written naively",
}


def main() -> None:
    growth = json.loads((RESULTS / "layer_speed.json").read_text(encoding="utf-8"))["results"]["growth/B1"]
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for axis, what, title in zip(
        axes, ("time_ms", "memory_mb"), ("time, ms", "peak memory, MB"), strict=True
    ):
        for name, label in LABELS.items():
            points = {int(length): value for length, value in growth[name][what].items()}
            width = 2.5 if name == "torchs4" else 1.2
            axis.plot(
                list(points), list(points.values()), marker="o", markersize=4, linewidth=width, label=label
            )
        axis.set(xscale="log", yscale="log", xlabel="length of the sequence", title=title)
        axis.set_xticks(ticks := [1024, 4096, 16384, 65536], [f"{tick:,}" for tick in ticks])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[1].legend(frameon=False, loc="upper right", bbox_to_anchor=(1.0, 0.95))
    figure.suptitle("One training step of one layer on two CPU cores (256 features, batch 1)")
    path = RESULTS / "growth.png"
    figure.savefig(path, dpi=150)
    print(f"Wrote {path}")


if __name__ == "__main__":
    main()
