"""A whole run: data, a model, training, measuring, and a folder that holds it all."""

from __future__ import annotations

import math
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torchs4.configuration import differences, require_config
from torchs4.data import GivenData, SequenceData, data_folder, fingerprint
from torchs4.layers import S4BlockConfig, S4Config
from torchs4.memory import keep_memory
from torchs4.models import Model, ModelConfig, SequenceModelConfig
from torchs4.training.config import BudgetOptions, OptimizerOptions, TrainingConfig
from torchs4.training.devices import open_accelerator, slowness
from torchs4.training.display import Display
from torchs4.training.finish import finish, load_best, report
from torchs4.training.loop import Trainer, TrainingInterrupted
from torchs4.training.provenance import source_commit
from torchs4.training.run_folder import RunFolder, free_folder

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from torchs4.data.sequences import DataConfig, Growth
    from torchs4.training.config import Precision

# What to begin with on data that nobody has tuned anything for.
OWN_DATA_MODEL = SequenceModelConfig(
    features=64,
    block=S4BlockConfig(layer=S4Config(state_size=32), norm="batch", dropout=0.1, tied_dropout=True),
)
OWN_DATA_OPTIMIZER = OptimizerOptions(lr=0.005, ssm_lr=0.002, batch_size=16, warmup_steps=100)
OWN_DATA_BUDGET = BudgetOptions(epochs=50, early_stop=15)


class FinishedRun(NamedTuple):
    """What is left of a run: its folder, its best model in evaluation mode, and what summary.json says."""

    folder: Path
    model: Model
    summary: dict[str, Any]


def train(
    model: ModelConfig | Model | None,
    data: SequenceData | DataConfig,
    *,
    output: str | Path | None = None,
    resume: bool = False,
    optim: OptimizerOptions | None = None,
    budget: BudgetOptions | None = None,
    seed: int = 0,
    precision: Precision = "float32",
    data_dir: str | Path | None = None,
    checkpoint_seconds: float | None = 120.0,
    quiet: bool = False,
    display: Display | None = None,
    pictures: bool = True,
    device: str | None = None,
) -> FinishedRun:
    """Train a model with validation, progress, checkpoints, curves and a summary, as `s4 train` does.

    model: options of a new one (None takes usual ones), or a model to train further.
    data: `torchs4.data.from_arrays(x, y)`, or options of a dataset such as `torchs4.data.MNIST()`.
    output: folder for everything that the run leaves behind; by default a new one below runs/.
    resume: continue the run in `output`, with the same arguments, where its last checkpoint was, or begin it
        if there is none yet; with a larger budget it trains longer, even if it was complete.
    data_dir: where datasets lie; by default $TORCHS4_DATA, else the user's cache folder.
    checkpoint_seconds: how often to save between epochs; None never saves, not even after them.
    quiet: show nothing.
    display: shows how it goes, instead of the usual one.
    pictures: draw curves and kernels at the end, which takes a second or two.
    device: where to train, such as "cpu" or "cuda:1"; by default on this machine's accelerator, if any.
    """
    if resume and output is None:
        raise ValueError("resume is True, but output does not say which run to continue: pass its folder.")
    if model is not None and not isinstance(model, ModelConfig | Model):
        raise ValueError(
            f"model is a {type(model).__name__}; expected SequenceModelConfig(…), a SequenceModel or a "
            f"PairModel. A layer of your own goes into a SequenceModel: see docs/your-own-layer.md."
        )
    if not isinstance(data, SequenceData) and not hasattr(data, "load"):
        raise ValueError(
            f"data is a {type(data).__name__}; expected torchs4.data.from_arrays(x, y), or options of a "
            f"dataset such as torchs4.data.MNIST()."
        )
    if optim is not None:
        require_config("optim", optim, OptimizerOptions)
    if budget is not None:
        require_config("budget", budget, BudgetOptions)
    config: TrainingConfig[Any] = TrainingConfig(
        data=GivenData(fingerprint(data)) if isinstance(data, SequenceData) else data,
        model=model.config if isinstance(model, Model) else model or OWN_DATA_MODEL,
        optim=optim or OWN_DATA_OPTIMIZER,
        budget=budget or OWN_DATA_BUDGET,
        seed=seed,
        precision=precision,
    )
    folder = RunFolder(output or free_folder(Path("runs"), "own"))
    resume = resume and folder.is_begun()
    if resume:
        before = folder.config()
        _require_same(before, config, folder)
        summary = folder.summary()
        if summary is not None and before.budget == config.budget:
            return FinishedRun(folder.path, load_best(folder, display or Display(quiet=quiet)), summary)
    return run(
        folder,
        config,
        data_dir=None if data_dir is None else Path(data_dir),
        resume=resume,
        checkpoint_seconds=checkpoint_seconds,
        data=data if isinstance(data, SequenceData) else None,
        model=model if isinstance(model, Model) else None,
        quiet=quiet,
        display=display,
        pictures=pictures,
        device=device,
    )


def run(
    folder: RunFolder,
    config: TrainingConfig[Any],
    *,
    name: str = "",
    data_dir: Path | None = None,
    resume: bool = False,
    checkpoint_seconds: float | None = 120.0,
    data: SequenceData | None = None,
    model: Model | None = None,
    console: Console | None = None,
    quiet: bool = False,
    display: Display | None = None,
    pictures: bool = True,
    device: str | None = None,
    stop_at: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
) -> FinishedRun:
    """Train as the configuration says, from the beginning or from the last checkpoint, to the end.

    data: in memory, instead of those that the configuration names.
    device: where to train; by default on this machine's accelerator, if it has one.
    stop_at: when to save and raise TrainingInterrupted, on the clock of time.monotonic().
    clock: what the budget's minutes and the run's seconds are counted with.
    """
    # Training is what this process is for now, and it asks for the same memory at every step.
    keep_memory()
    # Remembered: a result names the commit that ran, not one that came while it did.
    source_commit()
    accelerator = open_accelerator(config.precision, device)
    if display is None or not accelerator.is_main_process:
        display = Display(console, quiet=quiet or not accelerator.is_main_process)
    if not resume:
        folder.require_unused()
    with ExitStack() as held, display:
        if accelerator.is_main_process and resume:
            held.enter_context(folder.locked())
        place = data_folder(data_dir)
        if data is None:
            # One process prepares what the others then find.
            with accelerator.main_process_first():
                data = config.data.load(place, display.preparing())
        trainer = Trainer(
            config, data, folder, display, accelerator, checkpoint_seconds, model, stop_at, clock
        )
        # Only now: a configuration that does not fit the data should leave no folder behind.
        if accelerator.is_main_process and not resume:
            held.enter_context(folder.locked())
            folder.start(name or folder.path.name, config, data.task.metrics, place)
        accelerator.wait_for_everyone()
        if resume:
            trainer.resume()
            _extend(trainer)
        display.say(_introduction(trainer))
        if data.train.growth is not None:
            display.warn(_growth_notice(trainer, data.train.growth))
        slow = slowness(config.precision, accelerator.device)
        if slow is not None:
            display.warn(slow)
        trainer.run()
        try:
            summary = finish(trainer, pictures)
        except KeyboardInterrupt as interrupted:
            # Every step is taken: who continues the run goes on with measuring.
            raise TrainingInterrupted from interrupted
        report(summary, data, folder, display)
        best = load_best(folder, display)
    accelerator.end_training()
    return FinishedRun(folder.path, best, summary)


def _introduction(trainer: Trainer) -> str:
    data, folder = trainer.data, trainer.folder
    parameters = sum(parameter.numel() for parameter in trainer.bare_model.parameters())
    splits = (("training", data.train), ("validation", data.validation), ("test", data.test))
    counts = ", ".join(f"{split.distinct:,} {name}" for name, split in splits if split is not None)
    if data.learns_all:
        counts = f"{data.train.distinct:,} training"
    return (
        f"{folder.name()}: {counts} examples of length {data.input.length:,}; {parameters:,} parameters; "
        f"on {trainer.accelerator.device}; run folder {folder.path}"
    )


def _growth_notice(trainer: Trainer, growth: Growth) -> str:
    begins = f"Training begins with easier examples; the task's own come after {growth.examples:,} of them"
    shown = trainer.total_steps * trainer.examples_per_epoch // trainer.steps_per_epoch
    if shown > growth.examples:
        return f"{begins}, in epoch {growth.examples // trainer.examples_per_epoch + 1}."
    return (
        f"{begins}, but this run shows only {shown:,}: it never comes to its task. Ask for more epochs, or "
        f"for a smaller --data.grow-every than {growth.every:,}."
    )


def _extend(trainer: Trainer) -> None:
    """Let a run go on for another budget than the one that it was begun with, if it is to have another."""
    folder, config, done = trainer.folder, trainer.config, trainer.progress.step
    if folder.config().budget == config.budget:
        return
    if trainer.is_over:
        raise ValueError(
            f"{folder.path} has taken {done:,} steps already, and its new budget ({config.budget}) has "
            f"nothing left: ask for more epochs, max_steps or max_minutes, or if it has stopped early, for "
            f"early_stop 0."
        )
    if trainer.accelerator.is_main_process:
        kept = folder.extend(config, done)
        if kept is not None:
            trainer.display.say(
                f"{folder.path} was complete after {done:,} steps; it goes on to {trainer.total_steps:,}, "
                f"with learning rates as for a run of that length. What was measured on test examples is in "
                f"{kept.name} now; they are measured again at the end. Do not choose between the two by them."
            )
    trainer.accelerator.wait_for_everyone()


def _require_same(before: TrainingConfig[Any], now: TrainingConfig[Any], folder: RunFolder) -> None:
    """A run continues with what it began with."""
    changes = [
        change
        for name in ("data", "model", "optim", "seed", "precision")
        for change in differences(name, getattr(before, name), getattr(now, name))
    ]
    if changes:
        raise ValueError(
            f"{folder.path} was begun with other arguments: {'; '.join(changes)}. "
            f"Continue it as it was begun, or choose another output."
        )
