"""What a run leaves behind when it is over: how the best model does on test data, and pictures."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import torch

from torchs4 import plots
from torchs4.layers import SSMLayer
from torchs4.models import Informer, load_model
from torchs4.training.checkpoints import has_any, load_newest
from torchs4.training.evaluation import evaluate
from torchs4.training.provenance import peak_memory_mb, provenance

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from torchs4.data.sequences import SequenceData
    from torchs4.description import InputDescription
    from torchs4.models import Model
    from torchs4.training.display import Display
    from torchs4.training.loop import Trainer
    from torchs4.training.run_folder import RunFolder

# Kernels in a picture: as many as fit side by side.
_SHOWN = 8


def finish(trainer: Trainer, pictures: bool = True) -> dict[str, Any]:
    """Measure the best model on the test split, once; write summary.json and the pictures, if wanted."""
    folder, data, progress = trainer.folder, trainer.data, trainer.progress
    model = load_best(folder, trainer.display).to(trainer.accelerator.device)
    tested: dict[str, Any] = {}
    if data.test is not None:
        score = evaluate(
            model,
            data.test,
            data.task,
            trainer.config.optim.batch_size,
            accelerator=trainer.accelerator,
            progress=trainer.display.counting("measuring on test examples"),
        )
        tested = {f"test_{name}": value for name, value in score.metrics.items()}
        tested |= {"test_loss": score.loss, "test_examples": score.examples}
    summary = {
        "name": folder.name(),
        "metrics": [asdict(metric) for metric in data.task.metrics],
        **tested,
        f"best_validation_{trainer.metric.name}": progress.best,
        "best_epoch": progress.best_epoch,
        "epochs": progress.epoch,
        "passes_per_epoch": data.passes,
        "stopped_early": trainer.has_stalled and progress.step < trainer.total_steps,
        "steps": progress.step,
        "training_examples": data.train.distinct,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "training_seconds": round(progress.seconds, 1),
        "input_wait_share": progress.waited / max(progress.seconds, 1e-9),
        "peak_memory_mb": peak_memory_mb(),
        "processes": trainer.share.processes,
        **provenance(),
    }
    if trainer.accelerator.is_main_process:
        if pictures:
            draw(folder, model, data)
        folder.write_summary(summary)
    return summary


def load_best(folder: RunFolder, display: Display) -> Model:
    """The run's best model, or the best before it if its files are damaged."""
    if not has_any(folder.best):
        raise ValueError(
            f"{folder.path} has no best model yet: the first one is kept when the run first measures on "
            f"validation examples. Continue with: s4 train --resume {folder.path}"
        )
    model, damaged = load_newest(folder.best, load_model)
    for other in damaged:
        display.say(f"{other} is damaged: taking the best model before it.")
    return model


def draw(folder: RunFolder, model: Model, data: SequenceData) -> None:
    """Write curves.png, and kernels.png if there are any."""
    metric = data.task.metrics[0]
    kinds = ("training, afterwards", "meanwhile") if data.learns_all else plots.CURVES
    curves = plots.plot_curves({folder.path.name: folder.curve(metric)}, metric, kinds)
    curves.savefig(folder.curves, dpi=120)
    kernels = kernel_picture(model, data.input)
    if kernels is not None:
        kernels.savefig(folder.kernels, dpi=120)


def kernel_picture(model: Model, given: InputDescription) -> Figure | None:
    """Kernels of the first and the last layer, from short to long memories; None where a model has none."""
    layers = [module for module in model.modules() if isinstance(module, SSMLayer)]
    if not layers or isinstance(model, Informer):
        return None
    # Behind a stem, positions are frames of pixels.
    stride = math.prod(model.config.stem) * getattr(model.config, "patch", 1)
    length = math.ceil(given.length / stride)
    shown = {}
    with torch.no_grad():
        for title, layer in (("first layer", layers[0]), ("last layer", layers[-1])):
            kernels = layer.kernel(length)[0].cpu()
            energy = kernels.double().square()
            memory = (energy @ torch.arange(length, dtype=energy.dtype)) / energy.sum(1)
            steps = torch.linspace(0, len(kernels) - 1, min(_SHOWN, len(kernels))).round().long()
            shown[title] = kernels[memory.argsort()[steps]]
    return plots.plot_layers(shown, picture_of_frames(given, stride), stride)


def picture_of_frames(given: InputDescription, stride: int) -> tuple[int, int] | None:
    """Rows and frames per row, where what is read is a picture whose rows are so many frames each."""
    if given.image is None:
        return None
    # Channels lie side by side.
    width = given.image[1] * given.channels
    return (given.image[0], width // stride) if width % stride == 0 else None


def report(summary: dict[str, Any], data: SequenceData, folder: RunFolder, display: Display) -> None:
    """Say how it went."""
    task, metric = data.task, data.task.metrics[0]
    best_epoch = summary["best_epoch"] * data.passes
    figure = metric.tell(summary[f"best_validation_{metric.name}"])
    measured = f"Validation {figure}"
    if data.learns_all:
        measured = f"On the training examples themselves: {figure}"
    if "test_examples" in summary:
        figures = ", ".join(each.tell(summary[f"test_{each.name}"]) for each in task.metrics)
        validation = metric.show(summary[f"best_validation_{metric.name}"])
        measured = f"Test {figures} on {summary['test_examples']:,} examples, validation {validation}"
    if summary["stopped_early"]:
        display.say(
            f"Ended after epoch {summary['epochs'] * data.passes}: validation had not improved since epoch "
            f"{best_epoch} (--budget.early-stop)."
        )
    files = ", ".join(path.name for path in (folder.curves, folder.kernels) if path.is_file())
    display.say(
        f"{measured} (best epoch {best_epoch}), {summary['parameters']:,} parameters, "
        f"{summary['training_seconds'] / 60:.1f} minutes."
    )
    # Without pictures, nobody is going to look into it.
    if files:
        display.say(f"Everything is in {folder.path}: summary.json, {files}, best/ …")
