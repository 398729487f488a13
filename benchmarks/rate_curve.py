"""Accuracy at other sampling rates than a model was trained at, without training it again (Table 5).

python benchmarks/rate_curve.py sc10-raw [MODEL …] [--data-dir FOLDER]

At whole numbers samples are left out, without a filter, as in the paper; at other rates the signal is
resampled within its band.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import RESULTS, THREADS, record, show
from matplotlib.figure import Figure
from rich.progress import track

from torchs4 import load_model
from torchs4.data import data_folder
from torchs4.models.bundled import model_folder
from torchs4.training.run_folder import RunFolder

# Step sizes relative to training: 2 has half the samples, 0.5 twice as many.
RATES = (0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 2.5, 3.0, 4.0)


def resampled(x: torch.Tensor, rate: float) -> torch.Tensor:
    """The signals (B, L, F) with the step size `rate`."""
    if rate == round(rate):
        return x[:, :: round(rate)]
    length = round(x.shape[1] / rate)
    spectrum = torch.fft.rfft(x.double(), dim=1)
    count = min(spectrum.shape[1], length // 2 + 1)
    return torch.fft.irfft(spectrum[:, :count], n=length, dim=1).mul(length / x.shape[1]).float()


@torch.inference_mode()
def accuracies(name: str, data_dir: Path | None) -> tuple[dict[str, float], int]:
    """The share of right answers at each rate, and over how many test examples."""
    folder = model_folder(name)
    run = RunFolder(folder if (folder / "best").is_dir() else folder.parent)
    data = run.config().data.load(data_folder(data_dir))
    if data.test is None or data.input.kind != "values":
        raise SystemExit(f"{name} was not trained on signals with test examples.")
    model, right = load_model(folder), dict.fromkeys(RATES, 0)
    for rows in track(np.array_split(np.arange(len(data.test)), -(-len(data.test) // 50)), name):
        batch = data.test.batch(rows)
        for rate in RATES:
            predicted = model(resampled(batch.x, rate), rate=rate).argmax(-1)
            right[rate] += int((predicted == batch.y).sum())
    return {str(rate): count / len(data.test) for rate, count in right.items()}, len(data.test)


def picture(results: dict[str, Any]) -> Figure:
    """Accuracy against the samples per second that are left."""
    figure = Figure(figsize=(7, 4), layout="constrained", dpi=120)
    axes = figure.subplots()
    for name, result in results.items():
        kept = [1 / float(rate) for rate in result["accuracy"]]
        axes.plot(kept, [100 * value for value in result["accuracy"].values()], marker="o", label=name)
    axes.set_xscale("log", base=2)
    axes.set_xticks([0.25, 0.5, 1, 2], ["¼", "½", "1", "2"])
    axes.set_xlabel("sampling rate relative to training")
    axes.set_ylabel("test accuracy (%)")
    axes.grid(color="#dddddd")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--data-dir", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(THREADS)
    results: dict[str, Any] = {}
    for name in chosen.models:
        found, count = accuracies(name, chosen.data_dir)
        results[name] = {"accuracy": found, "test_examples": count}
    rows = [
        [name, *(100 * value for value in result["accuracy"].values())] for name, result in results.items()
    ]
    show("test accuracy (%) by step size relative to training", ["model", *map(str, RATES)], rows)
    picture(results).savefig(RESULTS / "rate_curve.png")
    record("rate_curve", results)


if __name__ == "__main__":
    main()
