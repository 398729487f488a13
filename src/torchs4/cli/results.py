"""`s4 evaluate` and `s4 compare`: what runs have come to."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro
from rich.markup import escape
from rich.table import Table

from torchs4 import plots
from torchs4.cli.consoles import console
from torchs4.cli.models import named_run
from torchs4.data import data_folder
from torchs4.memory import keep_memory
from torchs4.tasks import Metric
from torchs4.training.devices import default_device, open_accelerator
from torchs4.training.display import Display
from torchs4.training.evaluation import evaluate, evaluate_unbroken, require_same_names
from torchs4.training.finish import load_best
from torchs4.training.run_folder import RunFolder


@dataclass(frozen=True)
class EvaluateArguments:
    """Measure the best model of a run, or one that comes with torchs4.

    Attributes:
        run: a folder that `s4 train` wrote, or the name of a model in `s4 list`.
        split: which examples.
        unbroken: read a text once more from its beginning to its end, with the model's state carried on,
            instead of in passages that know nothing of each other; both are reported.
        rate: leave out samples: 2 keeps every second one and doubles the model's step size.
        data_dir: where datasets lie; by default where the run found them.
        device: where to compute, such as cpu or cuda:1; by default on this machine's accelerator, if any.
    """

    run: tyro.conf.Positional[Path]
    split: Literal["validation", "test"] = "test"
    unbroken: bool = False
    rate: int = 1
    data_dir: Path | None = None
    device: str | None = None


@dataclass(frozen=True)
class CompareArguments:
    """A table of runs, and a picture of their curves.

    Attributes:
        runs: folders that `s4 train` wrote.
        picture: where to write the picture; by default comparison.png, or with a number behind it if that
            shows other runs.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    picture: Path | None = None


def evaluate_run(arguments: list[str]) -> int:
    """Measure again."""
    chosen = tyro.cli(EvaluateArguments, prog="s4 evaluate", args=arguments)
    folder = named_run(chosen.run)
    # A bundled model's card states what it reaches.
    stated = None if chosen.run.is_dir() else folder.summary()
    config = folder.config()
    keep_memory()
    precision = config.precision
    if precision == "float16" and (chosen.device or default_device().type) == "cpu":
        console.print("Trained with float16, measured with float32: a CPU has no fast float16.")
        precision = "float32"
    accelerator = open_accelerator(precision, chosen.device)
    with Display(console, quiet=not accelerator.is_main_process) as display:
        place = data_folder(chosen.data_dir or folder.data_dir())
        data = config.data.load(place, display.preparing())
        split = data.test if chosen.split == "test" else data.validation
        if split is None:
            raise ValueError("These data have no test examples; measure with --split validation.")
        model = load_best(folder, display).to(accelerator.device)
        require_same_names(model, data)
        score = evaluate(
            model,
            split,
            data.task,
            config.optim.batch_size,
            accelerator=accelerator,
            rate=float(chosen.rate),
            progress=display.counting("measuring"),
        )
        figures = ", ".join(metric.tell(score.metrics[metric.name]) for metric in data.task.metrics)
        kept = "" if chosen.rate == 1 else f", keeping one of {chosen.rate} samples"
        display.say(
            f"{folder.name()}: {figures}, loss {score.loss:.4f} on {score.examples:,} {chosen.split} "
            f"examples{kept}"
        )
        if chosen.unbroken:
            whole = evaluate_unbroken(
                model,
                split,
                data.task,
                accelerator=accelerator,
                progress=display.counting("reading in one stream"),
            )
            figures = ", ".join(metric.tell(whole.metrics[metric.name]) for metric in data.task.metrics)
            display.say(f"In one unbroken stream: {figures}, loss {whole.loss:.4f}")
        if stated is not None and chosen.split == "test" and chosen.rate == 1:
            metric = data.task.metrics[0]
            display.say(f"Its card says {metric.show(stated[f'test_{metric.name}'])}.")
    return 0


def compare(arguments: list[str]) -> int:
    """Side by side."""
    chosen = tyro.cli(CompareArguments, prog="s4 compare", args=arguments)
    if not chosen.runs:
        raise ValueError("Name at least one run: s4 compare RUN RUN …")
    folders = [RunFolder(path) for path in chosen.runs]
    metric = _common_metric(folders)
    table = Table()
    for column in ("run", "experiment", "epochs", f"best validation {metric.title}", f"test {metric.title}"):
        table.add_column(column, justify="left" if column in ("run", "experiment") else "right")
    table.add_column("parameters", justify="right")
    table.add_column("minutes", justify="right")
    for folder in folders:
        records, parameters = folder.curve(metric), folder.result("parameters")
        values = [record[f"validation_{metric.name}"] for record in records]
        tested = folder.result(f"test_{metric.name}")
        table.add_row(
            escape(str(folder.path)),
            escape(folder.name()),
            str(records[-1]["epoch"]) if records else "0",
            metric.show(max(values) if metric.higher_is_better else min(values)) if values else "",
            "" if tested is None else metric.show(tested),
            "" if parameters is None else f"{parameters:,}",
            f"{records[-1]['seconds'] / 60:.1f}" if records else "",
        )
    console.print(table)
    curves = {str(folder.path): folder.curve(metric) for folder in folders}
    note = _note(folders)
    picture = chosen.picture or _free_picture(Path("comparison.png"), note)
    said = f"Curves: {picture}" + (" (replaced)" if picture.exists() else "")
    # What only PNG files can carry is not asked of others.
    notes = {"Comment": note} if picture.suffix.lower() == ".png" else None
    plots.plot_curves(curves, metric).savefig(picture, dpi=120, metadata=notes)
    console.print(said, soft_wrap=True, markup=False)
    return 0


def _note(folders: list[RunFolder]) -> str:
    """What a picture carries, so that the next one knows whether it shows the same runs."""
    places = "\n".join(str(folder.path.absolute()) for folder in folders)
    return f"s4 compare {hashlib.sha256(places.encode()).hexdigest()}"


def _free_picture(path: Path, note: str) -> Path:
    """The path, or one with a number behind it: nobody's picture of other runs is overwritten."""
    number, candidate = 1, path
    while candidate.exists() and note.encode() not in candidate.read_bytes():
        number += 1
        candidate = path.with_stem(f"{path.stem}-{number}")
    return candidate


def _common_metric(folders: list[RunFolder]) -> Metric:
    metrics = {folder.metric(): folder for folder in folders}
    if len(metrics) > 1:
        told = "; ".join(f"{folder.path}: {metric.title}" for metric, folder in metrics.items())
        raise ValueError(f"These runs are measured in different ways ({told}): compare those of one kind.")
    return next(iter(metrics))
