"""Trains on a device that is none, stops, continues, and measures: whole runs, with everything they save.

In a process of its own, because a device stays plugged in. Prints a line for each thing that went through.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import gadget
import torch
from accelerate import Accelerator
from rich.console import Console

from torchs4 import SequenceModel
from torchs4.data import BundledDigits
from torchs4.data.sequences import Split
from torchs4.inference import RecordedSteps, Stream, recorded_steps
from torchs4.models import load_model
from torchs4.ops.self_test import self_test
from torchs4.recipes import network
from torchs4.training.config import BudgetOptions, OptimizerOptions, TrainingConfig
from torchs4.training.display import Display
from torchs4.training.loop import Trainer, TrainingInterrupted
from torchs4.training.run_folder import RunFolder

STEPS, STOP = 6, 4
CONFIG = TrainingConfig(
    data=BundledDigits(cut_short=0.5),
    model=network(layers=1, features=4, state_size=4, norm="batch", dropout=0.2),
    optim=OptimizerOptions(lr=0.01, batch_size=12, accumulate=2, warmup_steps=2, average=0.9),
    budget=BudgetOptions(epochs=3, max_steps=STEPS, validation_examples=20),
)


class First(Split):
    """The first examples of a split."""

    def __init__(self, split: Any, count: int) -> None:
        self.split, self.count = split, count

    def __len__(self) -> int:
        return self.count

    def batch(self, rows: Any, generator: torch.Generator | None = None) -> Any:
        return self.split.batch(rows, generator)


class Watched(Trainer):
    """Counts how often each step makes the host wait, and stops where it is told to."""

    reads: list[int]
    stop_after = STEPS

    def _step(self, batch: Any, rows: Any) -> Any:
        gadget.waits.clear()
        result = super()._step(batch, rows)
        self.reads.append(gadget.waits.total())
        self._stop_asked = self.progress.step + 1 >= self.stop_after
        return result


def trainer(folder: Path, resume: bool = False) -> Watched:
    run, data = RunFolder(folder), CONFIG.data.load(Path("nowhere"))
    if not resume:
        run.start("digits (test)", CONFIG, data.task.metrics)
    data = type(data)(data.input, data.task, First(data.train, 36), data.validation, data.test)
    made = Watched(CONFIG, data, run, Display(Console(quiet=True)), Accelerator(), float("inf"))
    made.reads = []
    if resume:
        made.resume()
    return made


def prove_training(folder: Path) -> None:
    whole = trainer(folder / "whole")
    assert whole.accelerator.device.type == gadget.NAME
    whole.run()
    print(f"training: {max(whole.reads)} wait a step")
    cut = trainer(folder / "cut")
    cut.stop_after = STOP
    try:
        cut.run()
    except TrainingInterrupted:
        assert cut.progress.step == STOP
    # Whatever else draws on the device before the run goes on.
    torch.rand(100, device=gadget.NAME)
    again = trainer(folder / "cut", resume=True)
    assert again.progress.step == STOP
    again.run()
    assert again.progress.step == whole.progress.step == STEPS
    for ours, theirs in ((again, whole), (again.average, whole.average)):
        pairs = zip(_weights(ours), _weights(theirs), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    print("checkpoint and resume: the same weights, bit for bit")
    model = load_model(folder / "cut" / "best").to(gadget.NAME)
    assert isinstance(model, SequenceModel)
    print("best model loaded onto the device")


def _weights(owner: Any) -> list[torch.Tensor]:
    model = owner.bare_model if isinstance(owner, Trainer) else owner.model
    return [x.cpu() for x in model.state_dict().values()]


def prove_streaming() -> None:
    """The CPU's compiled code and the device's say the same."""
    torch.manual_seed(0)
    model = SequenceModel(input_features=3, output_size=5, features=8, num_layers=2).eval()
    x = torch.randn(2, 200, 3)
    with torch.no_grad():
        expected = model(x)
        model.to(gadget.NAME)
        there = x.to(gadget.NAME)
        _, state = model.prefill(there[:, :150])
        # The weights are made ready once.
        _, state = model.step(there[:, 150], state)
        gadget.waits.clear()
        whole = model(there)
        for t in range(151, 200):
            y, state = model.step(there[:, t], state)
        waited = gadget.waits.total()
    torch.testing.assert_close(whole.cpu(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(y.cpu(), expected, rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        # Nothing to record with: it is enough that a recorded step would read no number.
        recorded_steps._RECORDERS[gadget.NAME] = lambda run, device: run
        steps = RecordedSteps(model, batch_size=2)
        _, steps.state = model.prefill(there[:, :150])
        steps.step(there[:, 150])
        gadget.waits.clear()
        for t in range(151, 200):
            y = steps.step(there[:, t])
        waited += gadget.waits.total()
    torch.testing.assert_close(y.cpu(), expected, rtol=1e-4, atol=1e-5)
    stream = Stream(model, batch_size=2)
    stream.push(x.numpy())
    torch.testing.assert_close(stream.prediction.cpu(), expected, rtol=1e-4, atol=1e-5)
    print(f"streaming: {waited} waits in 49 steps, predictions of the CPU")


def prove_operators() -> None:
    """What `s4 doctor` would say about it."""
    checks = list(self_test(torch.device(gadget.NAME), "portable"))
    assert all(check.passed for check in checks), checks
    print(f"operators: {len(checks)} as exact as they should be")


if __name__ == "__main__":
    gadget.plug_in()
    os.environ["ACCELERATE_TORCH_DEVICE"] = gadget.NAME
    prove_operators()
    prove_streaming()
    prove_training(Path(sys.argv[1]))
