"""Section 4.4 at a small scale: starting points of the state matrix, trained or frozen, on LRA's Image task.

python benchmarks/starts.py --folder runs/starts [--examples 5000] [--epochs 8]

Runs that are complete in the folder are not repeated, interrupted ones go on.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from harness import RESULTS, THREADS, console, record, show
from matplotlib.figure import Figure

from torchs4 import LSSLConfig, S4Config, S4DConfig, recipes, train
from torchs4.data import data_folder
from torchs4.data.sequences import SequenceData, Split
from torchs4.recipes.recipe import network
from torchs4.training.config import BudgetOptions, OptimizerOptions
from torchs4.training.run_folder import RunFolder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from torchs4.description import Batch

STATE_SIZE = 32
STARTS: dict[str, Any] = {
    "HiPPO": S4Config(state_size=STATE_SIZE),
    "random, normal plus low rank": S4Config(state_size=STATE_SIZE, start="random"),
    "random diagonal": S4DConfig(state_size=STATE_SIZE, start="random"),
    "random dense": LSSLConfig(state_size=STATE_SIZE, start="gaussian"),
}
COLOURS = dict(zip(STARTS, ("#2e6f9e", "#d1495b", "#edae49", "#66a182"), strict=True))
SEEDS = (0, 1, 2)
# Measured after every epoch: enough for differences of a few points.
VALIDATION = 2000


class Part(Split):
    """The first examples of a split."""

    def __init__(self, whole: Split, count: int) -> None:
        self._whole = whole
        self._count = count

    def __len__(self) -> int:
        return self._count

    def batch(self, rows: NDArray[np.int64], generator: torch.Generator | None = None) -> Batch:
        return self._whole.batch(rows, generator)


def run(data: SequenceData, folder: Path, layer: Any, trained: bool, seed: int, epochs: int) -> RunFolder:
    """Train one of them, or find what is there."""
    block = replace(
        network(layers=2, features=48, norm="batch", dropout=0.1, tied_dropout=True).block,
        layer=replace(layer, train_state_matrix=trained),
    )
    train(
        replace(network(layers=2, features=48), block=block),
        data,
        output=folder,
        resume=True,
        seed=seed,
        optim=OptimizerOptions(lr=0.01, ssm_lr=0.001, weight_decay=0.05, batch_size=50, warmup_steps=100),
        budget=BudgetOptions(epochs=epochs, validation_examples=VALIDATION),
        quiet=True,
    )
    return RunFolder(folder)


def picture(curves: dict[str, dict[str, list[list[dict[str, Any]]]]]) -> Figure:
    """Accuracy on training and validation examples, A frozen and A trained; a line for each seed."""
    figure = Figure(figsize=(9, 6), layout="constrained", dpi=120)
    panels = figure.subplots(2, 2, sharex=True, sharey=True)
    for row, kind in zip(panels, ("train", "validation"), strict=True):
        for axes, how in zip(row, ("A frozen", "A trained"), strict=True):
            for start, seeds in curves[how].items():
                for number, points in enumerate(seeds):
                    axes.plot(
                        [point["epoch"] for point in points],
                        [100 * point[f"{kind}_accuracy"] for point in points],
                        color=COLOURS[start],
                        linewidth=1.2,
                        label=start if number == 0 else None,
                    )
            axes.set_title(f"{'training' if kind == 'train' else kind}, {how}", fontsize=9, loc="left")
            axes.grid(color="#dddddd")
            axes.spines[["top", "right"]].set_visible(False)
    panels[0][0].legend(frameon=False, fontsize=8)
    figure.supxlabel("epoch", fontsize=9)
    figure.supylabel("accuracy (%)", fontsize=9)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, default=Path("runs/starts"))
    parser.add_argument("--examples", type=int, default=5000)
    parser.add_argument("--epochs", type=int, default=8)
    chosen = parser.parse_args()
    torch.set_num_threads(THREADS)
    whole = recipes.find("lra-image").config("cpu").data.load(data_folder(None))
    data = replace(whole, train=Part(whole.train, chosen.examples), test=None)
    results: dict[str, Any] = {}
    curves: dict[str, dict[str, list[list[dict[str, Any]]]]] = {}
    rows = []
    for seed in SEEDS:
        for trained in (False, True):
            how = "A trained" if trained else "A frozen"
            for start, layer in STARTS.items():
                name = f"{start} {how} {seed}".replace(",", "").replace(" ", "-").lower()
                console.print(name)
                done = run(data, chosen.folder / name, layer, trained, seed, chosen.epochs)
                curves.setdefault(how, {}).setdefault(start, []).append(done.metrics())
    for how, by_start in curves.items():
        for start, seeds in by_start.items():
            last = {
                kind: [100 * points[-1][f"{kind}_accuracy"] for points in seeds]
                for kind in ("train", "validation")
            }
            best = [100 * max(point["validation_accuracy"] for point in points) for points in seeds]
            results.setdefault(how, {})[start] = {
                "training_accuracy_at_the_end": last["train"],
                "validation_accuracy_at_the_end": last["validation"],
                "best_validation_accuracy": best,
            }
            spread = statistics.stdev(best)
            rows.append([how, start, statistics.mean(last["train"]), statistics.mean(best), spread])
    show(
        f"LRA Image, {chosen.examples:,} training examples, {chosen.epochs} epochs, {len(SEEDS)} seeds",
        ["A", "start", "training %", "best validation %", "±"],
        rows,
    )
    picture(curves).savefig(RESULTS / "starts.png")
    record(
        "starts",
        {
            "training_examples": chosen.examples,
            "validation_examples": VALIDATION,
            "epochs": chosen.epochs,
            "seeds": list(SEEDS),
            "model": "2 layers, 48 features, state size 32, batch norm, tied dropout 0.1",
            "accuracy": results,
        },
    )


if __name__ == "__main__":
    main()
