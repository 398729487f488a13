"""Damaged files: what a run, a model or a stream left behind is read, or refused in words."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from contextlib import chdir
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import torch
from calls import run_command
from damage import damage
from template import template

from torchs4.estimators import load_estimator
from torchs4.inference import Stream
from torchs4.models import SequenceModel, load_model
from torchs4.training.loop import TrainingDivergedError
from torchs4.training.run_folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable

    from outcome import Outcome

# What a person is told in words.
IN_WORDS = (ValueError, OSError, TrainingDivergedError, ImportError)
# By what is damaged.
USES = {
    "run": ("load", "read", "compare", "evaluate", "resume", "export"),
    "model": ("load",),
    "estimator": ("estimate",),
    "stream.safetensors": ("stream",),
}


def run(number: int, outcome: Outcome) -> None:
    """Damage one file and use what it belongs to."""
    random = Random(number)
    torch.manual_seed(number)
    with tempfile.TemporaryDirectory(prefix="torchs4-fuzz-case-") as place:
        folder = Path(place) / "all"
        shutil.copytree(template(), folder)
        files = sorted(
            path for path in folder.rglob("*") if path.suffix in (".json", ".jsonl", ".safetensors")
        )
        path = random.choice(files)
        how = damage(random, path)
        lying = random.random() < 0.5 and _settle_checksums(path.parent)
        where = path.relative_to(folder)
        use = random.choice(USES[where.parts[0]])
        outcome.describe(f"{where} {how}{', checksums made to fit' if lying else ''}; then {use}")
        before = {p: p.read_bytes() for p in files if p.is_file()} if use in ("load", "read") else {}
        _use(use, folder, outcome)
        changed = [str(p.relative_to(folder)) for p, content in before.items() if p.read_bytes() != content]
        if changed:
            outcome.fault(f"reading changed {', '.join(changed)}")


def _settle_checksums(folder: Path) -> bool:
    """Let the checksums beside a damaged file say that nothing is wrong."""
    listed = folder / "checksums.json"
    if not listed.is_file():
        return False
    names = [path for path in sorted(folder.iterdir()) if path.is_file() and path != listed]
    listed.write_text(
        json.dumps({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in names})
    )
    return True


def _use(use: str, folder: Path, outcome: Outcome) -> None:
    if use in ("compare", "evaluate", "resume", "export"):
        arguments = {
            "compare": ["compare", "run", "run"],
            "evaluate": ["evaluate", "run"],
            "resume": ["train", "--resume", "run", "--budget.epochs", "3"],
            "export": ["export", "run", "-o", "exported"],
        }[use]
        with chdir(folder):
            result = run_command(arguments)
        if result.code != 0:
            outcome.refused(result.said)
        return
    functions: dict[str, list[Callable[[], object]]] = {
        "load": [partial(_predict, folder / place) for place in ("run/best", "run/last", "model")],
        "estimate": [partial(_estimate, folder / "estimator")],
        "stream": [partial(_continue_stream, folder / "stream.safetensors")],
        "read": [partial(_read, folder / "run")],
    }
    for function in functions[use]:
        try:
            function()
        except IN_WORDS as error:
            if not str(error):
                outcome.fault(f"{type(error).__name__} without a word")
            outcome.refused(str(error))


@cache
def _intact_model() -> SequenceModel:
    return SequenceModel.from_pretrained(template() / "model")


def _predict(folder: Path) -> None:
    model = load_model(folder)
    with torch.no_grad():
        model(torch.zeros(1, 20, 1))


def _estimate(folder: Path) -> None:
    load_estimator(folder).predict(np.zeros((2, 20)))


def _continue_stream(path: Path) -> None:
    Stream.load(path, _intact_model()).push(np.zeros((2, 1)))


def _read(folder: Path) -> None:
    run = RunFolder(folder)
    run.config()
    run.data_dir()
    metric = run.metric()
    run.metrics()
    run.curve(metric)
    run.summary()
    run.result(f"test_{metric.name}")
