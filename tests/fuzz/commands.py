"""Random command lines: whatever a person types is done or explained, without a traceback."""

from __future__ import annotations

import shlex
import shutil
import tempfile
from contextlib import chdir
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from calls import run_command
from template import template

if TYPE_CHECKING:
    from outcome import Outcome

VALUES = [
    "0", "1", "-1", "2", "0.5", "1e308", "nan", "inf", "1e-400", "100000000000", "", " ", "None", "True", "x",
    "s4", "lstm", "batch", "mean", "run", "data.npz", "missing", "../x", "/dev/null", "ü", "--", "-", "'",
    "[red]",
]  # fmt: skip
OPTIONS = {
    "train": [
        "--preset", "--seed", "--precision", "--output", "--data-dir", "--checkpoint-seconds", "--resume",
        "--data", "--task", "--import", "--model.features", "--model.layers", "--model.state-size",
        "--model.dropout", "--model.layer", "--model.norm", "--model.pooling", "--model.stem", "--no-stem",
        "--optim.lr", "--optim.batch-size", "--optim.warmup", "--optim.average", "--budget.epochs",
        "--budget.max-steps", "--budget.early-stop", "--data.seed", "--data.validation", "--help", "--wrong",
    ],
    "fit": [
        "--epochs", "--features", "--layers", "--ensemble", "--augment", "--task", "--horizon", "--target",
        "--values", "--id", "--time", "--sample-rate", "--test-fraction", "--output", "--seed", "--help",
    ],
    "predict": ["--rate", "--output", "--data-dir", "--help"],
    "evaluate": ["--split", "--rate", "--data-dir", "--help"],
    "compare": ["--picture", "--help"],
    "stream": ["--every", "--rate", "--output", "--top", "--allow-nan", "--text", "--help"],
    "generate": ["--prompt", "--length", "--temperature", "--top-k", "--top-p", "--seed", "--help"],
    "export": ["-o", "--to", "--chunk", "--rate", "--mixing", "--side", "--onnxruntime-web", "--help"],
    "serve": ["--port", "--help"],
    "table": ["--folder", "--markdown", "--help"],
    "list": ["--help"],
    "data list": ["--data-dir", "--help"],
    "data get": ["--data-dir", "--help"],
    "reproduce": ["--folder", "--seeds", "--stop-after", "--help"],
    "--version": [],
    "trian": [],
    "data": [],
    "help": [],
}  # fmt: skip
PLACES = [
    "run",
    "run/best",
    "model",
    "estimator",
    "digits",
    "missing",
    "data.npz",
    "stream.safetensors",
    ".",
    "",
    "-",
]
# Small enough to be done before anybody waits; options that come later on the line do not make it larger.
SMALL = ["--model.features", "4", "--model.layers", "1", "--model.state-size", "4", "--budget.max-steps", "2"]
QUICK = ["--max-minutes", "0.02"]
# What would train for hours, download or wait for a browser if the line happened to be right.
NEVER_RIGHT = {"reproduce": ["no-such-recipe"], "data get": ["no-such-dataset"], "serve": ["missing"]}


def run(number: int, outcome: Outcome) -> None:
    """Type one line."""
    random = Random(number)
    line = _draw(random)
    outcome.describe(f"s4 {shlex.join(line)}")
    with tempfile.TemporaryDirectory(prefix="torchs4-fuzz-line-") as place:
        folder = Path(place) / "all"
        shutil.copytree(template(), folder)
        with chdir(folder):
            result = run_command(line)
    if "Traceback" in result.said:
        outcome.fault(result.said[-2000:])
    elif result.code != 0 and not result.said.strip():
        outcome.fault(f"exit code {result.code} without a word")
    elif result.code != 0:
        outcome.refused(" ".join(result.said.split())[:200])


def _draw(random: Random) -> list[str]:
    command = random.choice(list(OPTIONS))
    line = command.split()
    if command in NEVER_RIGHT:
        line += NEVER_RIGHT[command]
    elif command == "fit":
        line += [random.choice(["data.npz", "data.npz", "missing.csv", "run", "", "-"]), *QUICK]
    elif command == "train":
        start = random.choice(["digits", "data", "resume", "wrong"])
        line += {
            "digits": ["digits", *SMALL],
            "data": ["--data", "data.npz", "--task", "classification", *SMALL],
            "resume": ["--resume", "run"],
            "wrong": [random.choice(VALUES)],
        }[start]
    else:
        line += [random.choice(PLACES) for _ in range(random.choice([0, 1, 1, 1, 2]))]
    for _ in range(random.choice([0, 1, 1, 2, 3])):
        if OPTIONS[command]:
            line.append(random.choice(OPTIONS[command]))
            if random.random() < 0.9:
                line.append(random.choice(VALUES))
    if command == "train" and "--budget.max-steps" in line[len(SMALL) :]:
        # The last word counts: without this, a large number would.
        line += ["--budget.max-steps", "2"]
    return line
