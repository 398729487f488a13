"""Whole training steps of the `cpu` presets, features mixed by PyTorch's products, oneDNN's, or in bfloat16.

python benchmarks/mixing_speed.py --keep-memory [--data-dir FOLDER]
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from harness import THREADS, console, interleave, record, show

from torchs4 import parameter_groups, recipes
from torchs4.data import data_folder
from torchs4.models import build_model
from torchs4.ops import mixing

PRESETS = ("smnist", "lra-image", "lra-text", "sc10-raw", "sc10-mfcc", "cifar-density")


def training_step(name: str, data_dir: Path | None) -> tuple[Any, int]:
    """A function that trains on one batch of the recipe's real data, and how many examples that has."""
    config = recipes.find(name).config("cpu")
    data = config.data.load(data_folder(data_dir))
    torch.manual_seed(0)
    model = build_model(config.model, data.input, data.task.output)
    optimizer = torch.optim.AdamW(parameter_groups(model, lr=1e-3))
    batch = data.train.batch(np.arange(config.optim.batch_size), torch.Generator().manual_seed(0))

    def step(by_onednn: bool, narrow: bool = False) -> None:
        optimizer.zero_grad()
        with patch.object(mixing, "onednn_is_faster", lambda: by_onednn):
            with torch.autocast("cpu", torch.bfloat16, enabled=narrow):
                loss = data.task.sums_of(model, batch)[0] / data.task.count(batch)
            loss.backward()
            optimizer.step()

    return step, config.optim.batch_size


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--keep-memory", action="store_true", help="as `s4 train` does")
    chosen = parser.parse_args()
    torch.set_num_threads(THREADS)
    if not mixing.onednn_is_faster():
        console.print("On this processor torchs4 leaves the products to PyTorch; measured all the same.")
    results, rows = {}, []
    for name in PRESETS:
        step, examples = training_step(name, chosen.data_dir)
        candidates = {"pytorch": partial(step, False), "onednn": partial(step, True)}
        candidates["bfloat16"] = partial(step, True, narrow=True)
        taken = interleave(candidates, repeats=9, warmup=2)
        speed = {which: examples / times["median_ms"] * 1e3 for which, times in taken.items()}
        ratios = [speed["onednn"] / speed["pytorch"], speed["bfloat16"] / speed["onednn"]]
        results[name] = {"examples_per_second": speed, "ratio": ratios[0], "ratio_of_bfloat16": ratios[1]}
        rows.append([name, *speed.values(), *ratios])
    columns = ["preset cpu of", "PyTorch", "oneDNN", "bfloat16", "oneDNN to PyTorch", "bfloat16 to oneDNN"]
    show("examples per second", columns, rows)
    record("mixing_speed", results)


if __name__ == "__main__":
    main()
