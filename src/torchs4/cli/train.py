"""`s4 train NAME …`, `s4 train --data FILE …` and `s4 train --resume RUN`."""

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro

from torchs4 import recipes
from torchs4.cli.commands import USAGE
from torchs4.cli.consoles import console
from torchs4.cli.interrupts import INTERRUPTED
from torchs4.cli.listing import list_recipes
from torchs4.cli.options import changed, flat_options, peek, take
from torchs4.configuration import require_choice, with_options
from torchs4.data import OWN_DATA
from torchs4.recipes import Preset, Recipe
from torchs4.training.config import BudgetOptions, OptimizerOptions, Precision, TrainingConfig
from torchs4.training.loop import TrainingInterrupted
from torchs4.training.run_folder import RunFolder, free_folder
from torchs4.training.session import OWN_DATA_BUDGET, OWN_DATA_MODEL, OWN_DATA_OPTIMIZER, run

Data = TypeVar("Data")
Model = TypeVar("Model")
Presets = TypeVar("Presets")

_PRESETS: dict[Preset, str] = {
    "paper": "the hyperparameters of the publication",
    "paper-large": "those of its large model",
    "modern": "those of the updated results",
    "cpu": "small, made for two cores and about an hour",
}


@dataclass(frozen=True)
class TrainArguments(Generic[Data, Model, Presets]):
    """Options of a training run.

    Attributes:
        data: the dataset.
        model: the network.
        seed: of the starting weights, of the order of the examples and of everything random about them.
        precision: "float32"; "bfloat16" for the mixing layers, or "float16" on devices without it; state
            spaces always run in full precision.
        device: where to train, such as cpu or cuda:1; by default on this machine's accelerator, if any.
        output: folder for everything that the run leaves behind; by default a new one below runs/.
        data_dir: where datasets lie; by default $TORCHS4_DATA, else the user's cache folder.
        checkpoint_seconds: how often to save between epochs.
    """

    data: Data
    model: Model
    optim: OptimizerOptions
    budget: BudgetOptions
    preset: Presets
    seed: int = 0
    precision: Precision = "float32"
    device: str | None = None
    output: Path | None = None
    data_dir: Path | None = None
    checkpoint_seconds: float = 120.0


@dataclass(frozen=True)
class LongerBudget:
    """What of a run's budget may change after its beginning; what is not given stays.

    Attributes:
        epochs: passes over the training data, with those that the run has made already.
        max_steps: end after so many steps even so; 0 does not.
        early_stop: end when validation has not improved for so many epochs; 0 never does.
        max_minutes: end after so many minutes, with those that the run has had already; 0 does not.
    """

    epochs: int | None = None
    max_steps: int | None = None
    early_stop: int | None = None
    max_minutes: float | None = None


@dataclass(frozen=True)
class ResumeArguments:
    """Options of `s4 train --resume RUN`.

    Attributes:
        resume: the run to continue, exactly where its last checkpoint was.
        budget: to train longer than the run was begun for, even if it is complete.
        data_dir: where datasets lie; by default where the run found them.
        checkpoint_seconds: how often to save between epochs.
        device: where to train; by default on this machine's accelerator, if it has one.
    """

    resume: Path
    budget: LongerBudget = LongerBudget()
    data_dir: Path | None = None
    checkpoint_seconds: float = 120.0
    device: str | None = None


def train(arguments: list[str]) -> int:
    """Train, or continue to."""
    if not arguments or arguments[0] in ("-h", "--help"):
        console.print(USAGE)
        return list_recipes([])
    if peek(arguments, "--resume") is not None:
        return _resume(arguments)
    path, rest = take(arguments, "--data")
    if path is not None:
        return _train_on_own_data(path, rest)
    if arguments[0].startswith("--"):
        raise ValueError(
            f"`s4 train` needs the name of an experiment, or --data FILE; it got {arguments[0]} first."
        )
    name, *rest = arguments
    recipe = recipes.find(name)
    preset = _preset(rest, recipe)
    return _train(
        recipe.config(preset),
        rest,
        prog=f"s4 train {name}",
        description=f"{recipe.title}. {recipe.differs}",
        name=f"{name} ({preset})",
        folder=f"{name}-{preset}",
        preset=preset,
        presets=tuple(recipe.presets),
    )


def _resume(arguments: list[str]) -> int:
    resumed = tyro.cli(ResumeArguments, prog="s4 train", args=arguments)
    folder = RunFolder(resumed.resume)
    before = folder.config()
    given = {name: value for name, value in asdict(resumed.budget).items() if value is not None}
    config = replace(before, budget=replace(before.budget, **given))
    if folder.summary() is not None and config == before:
        console.print(
            f"{folder.path} is complete: nothing is left to do. "
            f"To train it longer: s4 train --resume {folder.path} --budget.epochs {2 * before.budget.epochs}",
            soft_wrap=True,
            markup=False,
        )
        return 0
    data_dir = resumed.data_dir or folder.data_dir()
    return _run(
        folder,
        config,
        data_dir=data_dir,
        checkpoint_seconds=resumed.checkpoint_seconds,
        resume=True,
        device=resumed.device,
    )


def _preset(arguments: list[str], recipe: Recipe) -> Preset:
    """The preset decides the defaults of everything else, so it is needed before the rest is read."""
    preset = peek(arguments, "--preset") or "cpu"
    if preset not in recipe.presets:
        raise ValueError(f"{recipe.name} has no preset {preset!r}; it has {', '.join(recipe.presets)}.")
    return preset  # type: ignore[return-value]


def _train_on_own_data(path: str, arguments: list[str]) -> int:
    task, rest = take(arguments, "--task")
    task = task or "classification"
    require_choice("--task", task, OWN_DATA)
    config = TrainingConfig(
        data=OWN_DATA[task](os.path.abspath(path)),
        model=OWN_DATA_MODEL,
        optim=OWN_DATA_OPTIMIZER,
        budget=OWN_DATA_BUDGET,
    )
    name = Path(path).stem
    return _train(
        config,
        rest,
        prog=f"s4 train --data {path} --task {task}",
        description=(type(config.data).__doc__ or "").partition("\n")[0] + f" Tasks: {', '.join(OWN_DATA)}.",
        name=f"{name} ({task})",
        folder=f"{name}-{task}",
    )


def _train(
    config: TrainingConfig[Any],
    arguments: list[str],
    *,
    prog: str,
    description: str,
    name: str,
    folder: str,
    preset: Preset | None = None,
    presets: tuple[Preset, ...] = (),
) -> int:
    # A layer has options of its own, so its name is needed before the rest is read.
    layer = peek(arguments, "--model.layer")
    model = config.model if layer is None else with_options(config.model, layer=layer)
    data_options, model_options = flat_options(config.data, hidden=("path", "task")), flat_options(model)
    arguments_class: Any = TrainArguments[  # type: ignore[misc]
        type(data_options), type(model_options), _choice_of(presets)
    ]
    chosen = tyro.cli(
        arguments_class,
        default=TrainArguments(
            data=data_options,
            model=model_options,
            optim=config.optim,
            budget=config.budget,
            seed=config.seed,
            precision=config.precision,
            preset=preset,
        ),
        prog=prog,
        description=description,
        args=arguments,
    )
    config = TrainingConfig(
        data=changed(config.data, chosen.data),
        model=changed(model, chosen.model),
        optim=chosen.optim,
        budget=chosen.budget,
        seed=chosen.seed,
        precision=chosen.precision,
    )
    chosen_folder = folder if layer is None else f"{folder}-{layer}"
    place = RunFolder(chosen.output or free_folder(Path("runs"), chosen_folder))
    return _run(
        place,
        config,
        name=name,
        data_dir=chosen.data_dir,
        checkpoint_seconds=chosen.checkpoint_seconds,
        device=chosen.device,
    )


def _choice_of(presets: tuple[Preset, ...]) -> Any:
    """The type of an option that offers these presets and explains them; data of one's own have none."""
    told: Any = Annotated
    if not presets:
        return told[None, tyro.conf.Suppress]
    kind: Any = Literal.__getitem__(presets)
    text = "; ".join(f'"{preset}": {_PRESETS[preset]}' for preset in presets)
    return told[kind, tyro.conf.arg(help=f"What the other options begin with. {text}.")]


def _run(folder: RunFolder, config: TrainingConfig[Any], **options: Any) -> int:
    try:
        run(folder, config, console=console, **options)
    except TrainingInterrupted:
        console.print(
            f"Stopped. Continue with: s4 train --resume {folder.path}", soft_wrap=True, markup=False
        )
        return INTERRUPTED
    return 0
