"""Every preset `paper` and `modern` takes two training steps at full size: time per step and peak memory.

    python benchmarks/preset_steps.py

Data lie where `s4` looks for them: in --data-dir, else $TORCHS4_DATA, else the user's cache folder.
Batches are made smaller where memory asks for it, which the result says. Where a dataset is not in the data
folder, or a smaller version of it is enough, other inputs of the same size take its place, which it says too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import THREADS, record, show

from torchs4 import parameter_groups, recipes
from torchs4.data import DatasetMissingError, Pathfinder, SpeechCommands, WikiText, data_folder
from torchs4.description import Batch, InputDescription
from torchs4.models import build_model
from torchs4.tasks import Classification, NextToken, Task
from torchs4.training.provenance import peak_memory_mb

# Numbers of float32 that a block keeps for each position and feature, roughly, and what they may take.
NUMBERS_PER_FEATURE, MEMORY = 14, 10e9
STEPS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data-dir", type=Path, default=data_folder())
    parser.add_argument("--only", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.only:
        name, preset = options.only.split(":")
        print(json.dumps(take_steps(name, preset, options.data_dir)))
        return
    results: dict[str, Any] = {}
    for recipe in recipes.RECIPES.values():
        for preset in ("paper", "modern"):
            if preset not in recipe.presets:
                continue
            # A process of its own for each, whose peak memory is its own too.
            command = [sys.executable, __file__, "--data-dir", str(options.data_dir)]
            command += ["--only", f"{recipe.name}:{preset}"]
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            results[f"{recipe.name}/{preset}"] = result = json.loads(output.splitlines()[-1])
            print(f"{recipe.name} {preset}: {result}", flush=True)
            record("preset_steps", results)
    columns = ["seconds_per_step", "peak_memory_mb", "batch_size", "preset_batch_size", "parameters"]
    show("two steps", ["preset", *columns], [[name, *(r[c] for c in columns)] for name, r in results.items()])


def take_steps(name: str, preset: Any, data_dir: Path) -> dict[str, Any]:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    config = recipes.recipe_config(name, preset)
    batch_of, description, task, source = inputs(config, data_dir)
    model = build_model(config.model, description, task.output)
    options = config.model
    per_example = 4 * NUMBERS_PER_FEATURE * options.num_layers * options.features * description.length
    per_example *= description.documents
    batch_size = max(2, min(config.optim.batch_size, int(MEMORY / per_example)))
    optim = config.optim
    groups = parameter_groups(model, optim.lr, optim.weight_decay, optim.ssm_lr, optim.step_size_lr)
    optimizer = torch.optim.AdamW(groups)
    times, losses = [], []
    for step in range(STEPS):
        batch = batch_of(np.arange(step * batch_size, (step + 1) * batch_size))
        start = time.perf_counter()
        loss = task.sums_of(model, batch)[0] / task.count(batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
        losses.append(loss.item())
    return {
        # The first one compiles and prepares.
        "seconds_per_step": sum(times[1:]) / (STEPS - 1),
        "peak_memory_mb": peak_memory_mb(),
        "batch_size": batch_size,
        "preset_batch_size": config.optim.batch_size,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "losses": losses,
        "data": source,
    }


def inputs(config: Any, data_dir: Path) -> tuple[Any, InputDescription, Task, str]:
    data_config, source = config.data, "as the preset has it"
    if isinstance(data_config, Pathfinder):
        data_config, source = replace(data_config, count=2000), "2,000 generated pictures"
    if isinstance(data_config, SpeechCommands):
        data_config, source = replace(data_config, version="0.01", split="official"), "v0.01"
    try:
        data = data_config.load(data_dir)
    except DatasetMissingError:
        if isinstance(data_config, WikiText):
            size, length = 267_735, data_config.length
            described = InputDescription("tokens", size, length)
            return random_words(size, length), described, NextToken(size), "random words"
        # Retrieval: pairs of documents of printable characters.
        description = InputDescription("tokens", 98, data_config.max_length, documents=2)
        return random_pairs(description), description, Classification(("no", "yes")), "random characters"
    return data.train.batch, data.input, data.task, source


def random_pairs(description: InputDescription) -> Any:
    def batch(rows: Any) -> Batch:
        count = len(rows)
        x = torch.randint(3, description.size, (count, 2, description.length))
        lengths = torch.full((count, 2), description.length)
        return Batch(x, torch.randint(2, (count,)), lengths)

    return batch


def random_words(size: int, length: int) -> Any:
    # As frequent as words are, nearly: number n in proportion to 1 / n.
    frequencies = 1 / torch.arange(1.0, size + 1)

    def batch(rows: Any) -> Batch:
        words = torch.multinomial(frequencies, len(rows) * (length + 1), replacement=True)
        words = words.reshape(len(rows), length + 1)
        return Batch(words[:, :-1].contiguous(), words[:, 1:].contiguous())

    return batch


if __name__ == "__main__":
    main()
