"""`s4 export RUN`: a model as ONNX graphs, alone or with a page that shows it in a browser."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from torchs4.cli.consoles import console
from torchs4.cli.models import best_model, named_run
from torchs4.data import CIFAR10, MNIST, BundledDigits, DataConfig
from torchs4.data.cifar import COLOUR_SCALING, GREY_SCALING
from torchs4.data.cifar import SIDE as CIFAR_SIDE
from torchs4.data.mnist import SIDE as DIGIT_SIDE
from torchs4.inference import Pictures, export_onnx, export_web
from torchs4.training.run_folder import RunFolder

# Options that only one of the two forms has.
_FOR_ONNX, _FOR_WEB = ("chunk", "rate", "mixing"), ("side", "onnxruntime_web")


@dataclass(frozen=True)
class ExportArguments:
    """Write a run's best model in a form that runs without PyTorch.

    Attributes:
        run: a folder that `s4 train` wrote, or the name of a model in `s4 list`.
        output: folder for what is written; by default the run's name with "-onnx" or "-web" behind it.
        to: "onnx", graphs and their description, or "web", those with a page for browsers: see it with
            `s4 serve FOLDER`.
        chunk: for onnx: samples that the graph for chunks takes at a time; by default 64.
        rate: for onnx: step size of the samples relative to training: 2 when only every second one will come.
        mixing: for onnx: numbers in which features are mixed, float32 by default; int8 is refused where it
            would change predictions.
        side: for web: the model reads drawn pictures of so many pixels each way, row by row, as values from 0
            to 1. Known of digits and sequential MNIST.
        onnxruntime_web: for web: folder of that npm package; by default it is looked for in node_modules,
            here and above.
    """

    run: tyro.conf.Positional[Path]
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    to: Literal["onnx", "web"] = "onnx"
    chunk: int | None = None
    rate: float | None = None
    mixing: Literal["float32", "int8"] | None = None
    side: int | None = None
    onnxruntime_web: Path | None = None


def export(arguments: list[str]) -> int:
    """Export."""
    chosen = tyro.cli(ExportArguments, prog="s4 export", args=arguments)
    _require_fitting_options(chosen)
    run = named_run(chosen.run)
    model = best_model(run)
    output = chosen.output or Path(f"{run.path.resolve().name}-{chosen.to}")
    if chosen.to == "onnx":
        options = {name: value for name in _FOR_ONNX if (value := getattr(chosen, name)) is not None}
        folder = export_onnx(model, output, **options)
    else:
        _require_probabilities(run)
        folder = export_web(
            model,
            output,
            title=run.name(),
            pictures=_pictures(run.config().data) if chosen.side is None else Pictures(chosen.side),
            onnxruntime_web=chosen.onnxruntime_web,
        )
    paths = sorted(folder.glob("[!.]*"))
    if chosen.to == "web":
        size = sum(path.stat().st_size for path in paths)
        console.print(f"{folder}  {size / 1e6:.1f} MB", markup=False, soft_wrap=True)
        console.print(f"See it with: s4 serve {folder}", markup=False, soft_wrap=True)
    else:
        for path in paths:
            console.print(f"{path}  {path.stat().st_size / 1e6:.2f} MB", markup=False, soft_wrap=True)
    return 0


def _require_fitting_options(chosen: ExportArguments) -> None:
    foreign = _FOR_WEB if chosen.to == "onnx" else _FOR_ONNX
    for name in foreign:
        if getattr(chosen, name) is not None:
            other = "web" if chosen.to == "onnx" else "onnx"
            raise ValueError(f"--{name.replace('_', '-')} goes with --to {other}, not with --to {chosen.to}.")


def _require_probabilities(run: RunFolder) -> None:
    metric = run.metric()
    if metric.name not in ("accuracy", "bits"):
        raise ValueError(
            f"The page shows how probabilities form, but this run predicts values: it is measured by "
            f"{metric.title}. Export it with --to onnx."
        )


def _pictures(data: DataConfig) -> Pictures | None:
    """What pictures a run's model reads, if any."""
    match data:
        case BundledDigits() | MNIST(permutation="none"):
            return Pictures(DIGIT_SIDE)
        case CIFAR10(grey=grey):
            return Pictures(CIFAR_SIDE, "photograph", GREY_SCALING if grey else COLOUR_SCALING)
    return None
