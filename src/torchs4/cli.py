"""The command `s4`: train, evaluate and compare models, get data."""

from __future__ import annotations

import difflib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal

import tyro
from accelerate import Accelerator
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from torchs4 import plots, recipes
from torchs4.data import DatasetMissingError, catalogue, data_folder
from torchs4.memory import keep_memory
from torchs4.recipes import Preset
from torchs4.training.config import Data, TrainingConfig
from torchs4.training.display import Display
from torchs4.training.evaluation import evaluate
from torchs4.training.finish import finish, load_best, report
from torchs4.training.loop import Trainer, TrainingDivergedError, TrainingInterrupted
from torchs4.training.run_folder import RunFolder, free_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

USAGE = """\
[bold]s4[/bold]: train, stream and compare S4 models

  s4 list                        the experiments, with published and measured accuracies
  s4 train NAME                  train one of them; `s4 train NAME --help` shows every option
  s4 train --resume RUN          continue a run that was interrupted or killed
  s4 evaluate RUN                measure a run's best model
  s4 compare RUN RUN …           a table and a picture of several runs
  s4 data list                   the datasets: which are here, how large, what licence
  s4 data get NAME               download one

Try `s4 train digits`: three minutes, no download.
"""

# Shell conventions: wrong usage, and ended by Ctrl-C.
WRONG_USAGE, INTERRUPTED = 2, 130

Split = Literal["validation", "test"]

# Where nobody looks, lines need not fit a screen.
_PIPE_WIDTH = 160


def _console(stderr: bool = False) -> Console:
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPE_WIDTH
    return console


console, errors = _console(), _console(stderr=True)


@dataclass(frozen=True)
class TrainArguments(Generic[Data]):
    """Options of `s4 train NAME`.

    Attributes:
        preset: "paper" (the hyperparameters of the publication), "modern" (those of the updated results) or
            "cpu" (small, made for two cores and about an hour).
        output: folder for everything that the run leaves behind; by default runs/NAME-PRESET.
        data_dir: where datasets lie; by default $TORCHS4_DATA, else the user's cache folder.
        checkpoint_seconds: how often to save between epochs.
    """

    config: Annotated[TrainingConfig[Data], tyro.conf.arg(name="")]
    preset: Preset = "cpu"
    output: Path | None = None
    data_dir: Path | None = None
    checkpoint_seconds: float = 120.0


@dataclass(frozen=True)
class ResumeArguments:
    """Options of `s4 train --resume RUN`.

    Attributes:
        resume: the run to continue, exactly where its last checkpoint was.
        data_dir: where datasets lie; by default where the run found them.
        checkpoint_seconds: how often to save between epochs.
    """

    resume: Path
    data_dir: Path | None = None
    checkpoint_seconds: float = 120.0


@dataclass(frozen=True)
class EvaluateArguments:
    """Measure the best model of a run.

    Attributes:
        run: a folder that `s4 train` wrote.
        split: which examples.
        rate: leave out samples: 2 keeps every second one and doubles the model's step size.
        data_dir: where datasets lie; by default where the run found them.
    """

    run: tyro.conf.Positional[Path]
    split: Split = "test"
    rate: int = 1
    data_dir: Path | None = None


@dataclass(frozen=True)
class CompareArguments:
    """A table of runs, and a picture of their curves.

    Attributes:
        runs: folders that `s4 train` wrote.
        picture: where to write the picture.
    """

    runs: tyro.conf.Positional[tuple[Path, ...]]
    picture: Path = Path("comparison.png")


@dataclass(frozen=True)
class DataListArguments:
    """Which datasets there are.

    Attributes:
        data_dir: where datasets lie; by default $TORCHS4_DATA, else the user's cache folder.
    """

    data_dir: Path | None = None


@dataclass(frozen=True)
class DataGetArguments:
    """Download a dataset, check it and unpack it. An interrupted download continues where it stopped.

    Attributes:
        name: as in `s4 data list`.
        again: fetch it even if it is there, to replace damaged files.
        data_dir: where datasets lie; by default $TORCHS4_DATA, else the user's cache folder.
    """

    name: tyro.conf.Positional[str]
    again: bool = False
    data_dir: Path | None = None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        console.print(USAGE)
        return 0
    name, *rest = arguments
    if name == "data" and rest:
        name, *rest = f"data {rest[0]}", *rest[1:]
    if name not in COMMANDS:
        errors.print(USAGE)
        guesses = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f" Did you mean `s4 {guesses[0]}`?" if guesses else ""
        errors.print(f"There is no command `s4 {name}`.{hint}", markup=False)
        return WRONG_USAGE
    try:
        return COMMANDS[name](rest)
    except BrokenPipeError:
        # Whoever read has seen enough, as in `s4 list | head`; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, OSError, DatasetMissingError, TrainingDivergedError) as error:
        errors.print(f"[red]{type(error).__name__}[/red]: ", end="")
        errors.print(str(error), markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        errors.print("Stopped.")
        return INTERRUPTED


def train(arguments: list[str]) -> int:
    """`s4 train NAME …` and `s4 train --resume RUN`."""
    if not arguments or arguments[0] in ("-h", "--help"):
        console.print(USAGE)
        return list_recipes([])
    if any(argument == "--resume" or argument.startswith("--resume=") for argument in arguments):
        resumed = tyro.cli(ResumeArguments, prog="s4 train", args=arguments)
        folder = RunFolder(resumed.resume)
        if folder.summary() is not None:
            console.print(f"{folder.path} is complete: nothing is left to do.")
            return 0
        data_dir = resumed.data_dir or folder.data_dir()
        return _run(folder, folder.config(), data_dir, resumed.checkpoint_seconds, resume=True)
    name, *rest = arguments
    recipe = recipes.find(name)
    preset = _peek_preset(rest, recipe)
    config = recipe.config(preset)
    # Every dataset has options of its own.
    arguments_class: Any = TrainArguments[type(config.data)]  # type: ignore[misc]
    chosen = tyro.cli(
        arguments_class,
        default=TrainArguments(config=config, preset=preset),
        prog=f"s4 train {name}",
        description=f"{recipe.title}. {recipe.differs}",
        args=rest,
    )
    folder = RunFolder(chosen.output or free_folder(Path("runs"), f"{name}-{preset}"))
    return _run(
        folder,
        chosen.config,
        chosen.data_dir,
        chosen.checkpoint_seconds,
        resume=False,
        title=f"{name} ({preset})",
    )


def _peek_preset(arguments: list[str], recipe: recipes.Recipe) -> Preset:
    """The preset decides the defaults of everything else, so it is needed before the rest is read."""
    preset = "cpu"
    for index, argument in enumerate(arguments):
        if argument == "--preset" and index + 1 < len(arguments):
            preset = arguments[index + 1]
        elif argument.startswith("--preset="):
            preset = argument.removeprefix("--preset=")
    if preset not in recipe.presets:
        raise ValueError(f"{recipe.name} has no preset {preset!r}; it has {', '.join(recipe.presets)}.")
    return preset  # type: ignore[return-value]


def _run(
    folder: RunFolder,
    config: TrainingConfig[Any],
    data_dir: Path | None,
    checkpoint_seconds: float,
    *,
    resume: bool,
    title: str = "",
) -> int:
    # This process does nothing but train.
    keep_memory()
    accelerator = Accelerator(mixed_precision="bf16" if config.precision == "bfloat16" else "no")
    display = Display(console, quiet=not accelerator.is_main_process)
    if not resume:
        folder.require_unused()
    with display:
        # One process prepares what the others then find.
        with accelerator.main_process_first():
            place = data_folder(data_dir)
            data = config.data.load(place, display.preparing())
        trainer = Trainer(config, data, folder, display, accelerator, checkpoint_seconds)
        # Only now: a configuration that does not fit the data should leave no folder behind.
        if accelerator.is_main_process and not resume:
            folder.start(title, config, place)
        accelerator.wait_for_everyone()
        if resume:
            trainer.resume()
        parameters = sum(parameter.numel() for parameter in trainer.bare_model.parameters())
        display.say(
            f"{folder.name()}: {len(data.train):,} training, {len(data.validation):,} validation, "
            f"{len(data.test):,} test examples of length {data.input.length:,}; {parameters:,} parameters; "
            f"run folder {folder.path}"
        )
        try:
            trainer.run()
        except TrainingInterrupted:
            display.say(
                f"Stopped at step {trainer.progress.step}. Continue with: s4 train --resume {folder.path}"
            )
            return INTERRUPTED
        summary = finish(trainer)
        report(summary, folder, display)
    accelerator.end_training()
    return 0


def list_recipes(arguments: list[str]) -> int:
    """`s4 list`."""
    if arguments:
        raise ValueError(f"`s4 list` takes no arguments; it was given {' '.join(arguments)}.")
    table = Table(title="s4 train NAME --preset PRESET")
    for column, justify in (
        ("name", "left"),
        ("task", "left"),
        ("length", "right"),
        ("data", "left"),
        ("preset", "left"),
        ("model", "left"),
        ("published %", "right"),
        ("measured %", "right"),
    ):
        table.add_column(column, justify=justify)  # type: ignore[arg-type]
    measured = recipes.measured_accuracies()
    for recipe in recipes.RECIPES.values():
        for index, preset in enumerate(recipe.presets):
            model = recipe.config(preset).model
            ours = measured.get((recipe.name, preset))
            table.add_row(
                recipe.name if index == 0 else "",
                recipe.title if index == 0 else "",
                f"{recipe.length:,}" if index == 0 else "",
                recipe.dataset if index == 0 else "",
                preset,
                f"{model.layers} × {model.features}, N {model.state_size}",
                f"{recipe.published[preset]:.2f}" if preset in recipe.published else "",
                f"{100 * ours:.2f}" if ours is not None else "",
            )
    console.print(table)
    return 0


def evaluate_run(arguments: list[str]) -> int:
    """`s4 evaluate RUN`."""
    chosen = tyro.cli(EvaluateArguments, prog="s4 evaluate", args=arguments)
    folder = RunFolder(chosen.run)
    config = folder.config()
    keep_memory()
    accelerator = Accelerator()
    with Display(console, quiet=not accelerator.is_main_process) as display:
        place = data_folder(chosen.data_dir or folder.data_dir())
        data = config.data.load(place, display.preparing())
        model = load_best(folder, display).to(accelerator.device)
        score = evaluate(
            model,
            data.test if chosen.split == "test" else data.validation,
            config.optim.batch_size,
            accelerator=accelerator,
            rate=float(chosen.rate),
            progress=display.counting("measuring"),
        )
        kept = "" if chosen.rate == 1 else f", keeping one of {chosen.rate} samples"
        display.say(
            f"{folder.name()}: accuracy {score.accuracy:.2%}, loss {score.loss:.4f} on {score.examples:,} "
            f"{chosen.split} examples{kept}"
        )
    return 0


def compare(arguments: list[str]) -> int:
    """`s4 compare RUN RUN …`."""
    chosen = tyro.cli(CompareArguments, prog="s4 compare", args=arguments)
    if not chosen.runs:
        raise ValueError("Name at least one run: s4 compare RUN RUN …")
    table = Table()
    for column in ("run", "experiment", "epochs", "best validation %", "test %", "parameters", "minutes"):
        table.add_column(column, justify="left" if column in ("run", "experiment") else "right")
    curves = {}
    for path in chosen.runs:
        folder = RunFolder(path)
        records, summary = folder.metrics(), folder.summary() or {}
        curves[str(path)] = records
        best = max((record["validation_accuracy"] for record in records), default=None)
        table.add_row(
            escape(str(path)),
            escape(folder.name()),
            str(records[-1]["epoch"]) if records else "0",
            _percent(best),
            _percent(summary.get("test_accuracy")),
            f"{summary['parameters']:,}" if summary else "",
            f"{records[-1]['seconds'] / 60:.1f}" if records else "",
        )
    console.print(table)
    plots.plot_curves(curves).savefig(chosen.picture, dpi=120)
    console.print(f"Curves: {chosen.picture}")
    return 0


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.2f}"


def list_data(arguments: list[str]) -> int:
    """`s4 data list`."""
    chosen = tyro.cli(DataListArguments, prog="s4 data list", args=arguments)
    folder = data_folder(chosen.data_dir)
    table = Table(title=f"datasets in {folder}", caption="Get one with: s4 data get NAME")
    for column in ("name", "what", "here", "MB to fetch", "licence"):
        table.add_column(column, justify="right" if "MB" in column else "left")
    for status in catalogue.status(folder):
        here = f"{status.size_on_disk / 1e6:,.0f} MB" if status.present else "no"
        size = "generated" if status.source.generated else f"{status.source.size_mb:,}"
        table.add_row(status.source.name, status.source.title, here, size, status.source.licence)
    console.print(table)
    return 0


def get_data(arguments: list[str]) -> int:
    """`s4 data get NAME`."""
    chosen = tyro.cli(DataGetArguments, prog="s4 data get", args=arguments)
    folder = data_folder(chosen.data_dir)
    source = catalogue.find(chosen.name)
    if catalogue.is_present(source, folder) and not chosen.again:
        console.print(f"{chosen.name} is in {folder} already. --again fetches it anew.")
        return 0
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total or None)
            progress.update(tasks[what], completed=done, total=total or None)

        catalogue.get(chosen.name, folder, show, again=chosen.again)
    console.print(f"{chosen.name} is in {folder}. {source.note}")
    return 0


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": train,
    "list": list_recipes,
    "evaluate": evaluate_run,
    "compare": compare,
    "data list": list_data,
    "data get": get_data,
}


if __name__ == "__main__":
    sys.exit(main())
