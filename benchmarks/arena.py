"""Table 10's protocol at a small scale: S4 and the fourteen attentions, the same size, the same time.

    python benchmarks/arena.py                       # every piece that is missing, then results/arena.json
    python benchmarks/arena.py --list                # the pieces that are missing: task, model
    python benchmarks/arena.py --task Text --model Performer
    python benchmarks/arena.py --collect             # only write the result file
    python benchmarks/arena.py --minutes 0.2 --test-examples 100 --task Image   # a try
    for task in ListOps Text; do python benchmarks/arena.py --task $task & done # two at a time, on two cores

A piece is one training on one task: so many minutes of one core's work (what else runs does not count) for
training and measuring on validation examples, then the best model on test examples, once. S4 is a small
network that reads every position; all fourteen get the width at which they have about as many weights as it
has; weights for single positions (Linformer, Synthesizer) and Luna's packed vectors are counted apart. They
train by the same options but for a layer norm and a learning rate of 0.001, which suit attention better. All
have small batches and warm up for few steps: a slow model takes a hundred steps here. The recipes' presets
are made for longer trainings and lean on what S4 can do, so they are no common ground. Each piece is kept in
runs/arena as soon as it is done; a killed one goes on where it was, and what the result file has is not done
again (--anew does all of it). On one core, all sixty take about three and a half hours.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from harness import RESULTS, record, show

from torchs4.configuration import with_options
from torchs4.data import CIFAR10, IMDB, ListOps, Pathfinder, data_folder
from torchs4.data.sequences import SequenceData, Split
from torchs4.models import build_model
from torchs4.recipes import network
from torchs4.tables.arena import MODELS, TASKS
from torchs4.training.config import BudgetOptions, OptimizerOptions, TrainingConfig
from torchs4.training.run_folder import RunFolder
from torchs4.training.session import run

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import nn

    from torchs4.description import Batch

PIECES = RESULTS.parents[1] / "runs" / "arena"
MEASURED = RESULTS.parents[1] / "src" / "torchs4" / "recipes" / "measured" / "arena.json"
# Of a real run; with another number of minutes nothing is written, only shown.
MINUTES = 3.0
LEARNING_RATE = 1e-3
# For all of them.
SHORT_TRAINING = {"batch_size": 16, "warmup_steps": 30}
# S4 in each task, and the data that all of them read.
CONTESTS: dict[str, TrainingConfig[Any]] = {
    "ListOps": TrainingConfig(
        data=ListOps(),
        model=network(layers=4, features=64, state_size=16, norm="batch", bidirectional=True),
        optim=OptimizerOptions(lr=0.01, ssm_lr=0.005, similar_lengths=True, **SHORT_TRAINING),
    ),
    "Text": TrainingConfig(
        data=IMDB(max_length=2048),
        model=network(
            layers=4,
            features=96,
            state_size=16,
            norm="batch",
            dropout=0.1,
            tied_dropout=True,
            bidirectional=True,
        ),
        optim=OptimizerOptions(lr=0.006, ssm_lr=0.003, similar_lengths=True, **SHORT_TRAINING),
    ),
    "Image": TrainingConfig(
        data=CIFAR10(grey=True, augment=True),
        model=network(
            layers=4,
            features=128,
            state_size=32,
            norm="batch",
            dropout=0.1,
            tied_dropout=True,
            bidirectional=True,
        ),
        optim=OptimizerOptions(lr=0.01, ssm_lr=0.004, **SHORT_TRAINING),
    ),
    "Pathfinder": TrainingConfig(
        data=Pathfinder(size=32, level="easy"),
        model=network(layers=4, features=48, state_size=64, norm="batch", bidirectional=True),
        optim=OptimizerOptions(lr=0.005, ssm_lr=0.002, weight_decay=0.0, **SHORT_TRAINING),
    ),
}
# How often to look, in steps, and at how many examples: a slow model takes few steps in its time.
EVALUATE_EVERY, VALIDATION_EXAMPLES = 100, 500
# Weights that belong to a position or to a packed vector, not to the network.
OF_POSITIONS = ("key_projection", "value_projection", "rows", "columns", "queries")
WIDTHS = range(16, 513, 8)


class Some(Split):
    """Evenly spread examples of a split."""

    def __init__(self, whole: Split, count: int) -> None:
        self.whole = whole
        self.members = np.linspace(0, len(whole) - 1, min(count, len(whole))).round().astype(np.int64)

    def __len__(self) -> int:
        return len(self.members)

    @property
    def lengths(self) -> NDArray[np.int64] | None:
        lengths = self.whole.lengths
        return None if lengths is None else lengths[self.members]

    def batch(self, rows: NDArray[np.int64], generator: torch.Generator | None = None) -> Batch:
        return self.whole.batch(self.members[rows], generator)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of training, for each piece")
    parser.add_argument("--task", choices=TASKS, action="append", help="only this one; may be repeated")
    parser.add_argument("--model", choices=MODELS, action="append", help="only this one; may be repeated")
    parser.add_argument("--test-examples", type=int, default=1000, help="evenly spread over the test split")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="name the pieces that are not done yet")
    parser.add_argument("--collect", action="store_true", help="write the result file from what is there")
    parser.add_argument("--anew", action="store_true", help="what the result file has counts as missing")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    done = pieces_done(chosen.minutes, {} if chosen.anew else recorded(chosen.minutes))
    missing = [
        (task, model)
        for task in chosen.task or TASKS
        for model in chosen.model or MODELS
        if model not in done[task]
    ]
    if chosen.list:
        for task, model in missing:
            print(f"{task}\t{model}")
        return
    if not chosen.collect:
        for task, model in missing:
            if len(missing) == 1:
                do_piece(task, model, load(task, chosen.test_examples), chosen.minutes)
            else:
                # In a process of its own: what one model needs of memory is not kept for the next.
                options = ["--minutes", chosen.minutes, "--test-examples", chosen.test_examples]
                options += ["--anew"] if chosen.anew else []
                piece = ["--task", task, "--model", model, "--threads", chosen.threads, *options]
                subprocess.run([sys.executable, __file__, *map(str, piece)], check=True)
    collect(chosen.minutes, {} if chosen.anew else recorded(chosen.minutes))


def load(task: str, test_examples: int) -> SequenceData:
    print(f"{task}: reading the data; what is generated takes some minutes the first time", flush=True)
    data = CONTESTS[task].data.load(data_folder())
    return dataclasses.replace(data, test=Some(data.test, test_examples))


def do_piece(task: str, model: str, data: SequenceData, minutes: float) -> None:
    folder = folder_of(task, model, minutes)
    config = config_of(task, model, data, minutes)
    run(folder, config, data=data, resume=folder.is_begun(), pictures=False, clock=time.process_time)


def config_of(task: str, model: str, data: SequenceData, minutes: float) -> TrainingConfig[Any]:
    """S4's configuration with another layer, at the width that makes it as large, and with this budget."""
    config = CONTESTS[task]
    budget = BudgetOptions(
        epochs=1000,
        max_minutes=minutes,
        evaluate_every=EVALUATE_EVERY,
        validation_examples=VALIDATION_EXAMPLES,
    )
    config = dataclasses.replace(config, budget=budget)
    if model == "S4":
        return config
    target = sum(sizes(build_model(config.model, data.input, data.task.output)))
    other = with_options(config.model, layer=MODELS[model], norm="layer")
    if not other.block.layer.bidirectional:
        other = with_options(other, bidirectional=True)

    def distance(width: int) -> int:
        candidate = build_model(with_options(other, features=width), data.input, data.task.output)
        return abs(sizes(candidate)[0] - target)

    return dataclasses.replace(
        config,
        model=with_options(other, features=closest(WIDTHS, distance)),
        optim=dataclasses.replace(config.optim, lr=LEARNING_RATE),
    )


def closest(widths: range, distance: Any) -> int:
    """The width with the smallest distance, which falls and then rises."""
    low, high = 0, len(widths) - 1
    while low < high:
        middle = (low + high) // 2
        if distance(widths[middle]) <= distance(widths[middle + 1]):
            high = middle
        else:
            low = middle + 1
    return widths[low]


def sizes(model: nn.Module) -> tuple[int, int]:
    """How many weights the network has, and how many positions have beside it."""
    whole = sum(weight.numel() for weight in model.parameters())
    apart = sum(
        weight.numel() for name, weight in model.named_parameters() if name.rpartition(".")[2] in OF_POSITIONS
    )
    return whole - apart, apart


def folder_of(task: str, model: str, minutes: float) -> RunFolder:
    return RunFolder(PIECES / f"{minutes:g}-minutes" / f"{TASKS[task]}-{MODELS[model]}")


def recorded(minutes: float) -> dict[str, Any]:
    """What the result file has, if its pieces had as many minutes."""
    path = RESULTS / "arena.json"
    results = json.loads(path.read_text(encoding="utf-8"))["results"] if path.is_file() else {}
    return results["tasks"] if results.get("minutes") == minutes else {}


def pieces_done(minutes: float, before: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every piece that is done, by task and model: from its run folder, else as it was before."""
    kept = ("test_accuracy", "test_examples", "best_validation_accuracy", "steps", "parameters")
    kept += ("training_seconds", "threads", "commit", "date")
    done: dict[str, dict[str, Any]] = {task: {} for task in TASKS}
    for task in TASKS:
        for model in MODELS:
            folder = folder_of(task, model, minutes)
            summary = folder.summary()
            if summary is not None:
                width = folder.config().model.features
                done[task][model] = {name: summary[name] for name in kept} | {"width": width}
            elif model in before.get(task, {}):
                done[task][model] = before[task][model]
    return done


def lead(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """By how many points S4 is ahead of the best other model, and whether that is more than chance."""
    other = max((model for model in found if model != "S4"), key=lambda model: found[model]["test_accuracy"])
    first, second = found["S4"], found[other]
    shares = [(one["test_accuracy"], one["test_examples"]) for one in (first, second)]
    deviation = sum(share * (1 - share) / count for share, count in shares) ** 0.5
    points = first["test_accuracy"] - second["test_accuracy"]
    return {
        "next": other,
        "points": round(100 * points, 2),
        "standard_error": round(100 * deviation, 2),
        "beyond_chance": points > 2 * deviation,
    }


def collect(minutes: float, before: dict[str, Any]) -> None:
    """Everything that is there, and whether S4 leads."""
    tasks = pieces_done(minutes, before)
    claims = {
        f"S4 leads in {task}": lead(found) for task, found in tasks.items() if len(found) == len(MODELS)
    }
    rows = [
        [model, *(tasks[task].get(model, {}).get("test_accuracy", "") for task in TASKS)] for model in MODELS
    ]
    show(f"test accuracy after {minutes:g} minutes", ["model", *TASKS], rows)
    for claim, found in claims.items():
        print(f"{claim}: {found}")
    if minutes != MINUTES:
        return
    path = record("arena", {"minutes": minutes, "tasks": tasks, "claims": claims})
    described = json.loads(path.read_text(encoding="utf-8"))
    # What comes with the package, for `s4 table lra`.
    short = {
        "minutes": minutes,
        "machine": f"{described['machine']['processor']}, {described['threads']} thread",
        "commit": described["commit"],
        "tasks": {
            task: {model: round(100 * one["test_accuracy"], 2) for model, one in found.items()}
            for task, found in tasks.items()
            if found
        },
    }
    MEASURED.write_text(json.dumps(short, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
