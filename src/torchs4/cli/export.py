"""`s4 export RUN`: a model as ONNX graphs."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from torchs4.cli.consoles import console
from torchs4.cli.models import best_model
from torchs4.inference import export_onnx
from torchs4.training.run_folder import RunFolder


@dataclass(frozen=True)
class ExportArguments:
    """Write a run's best model in a form that runs without PyTorch.

    Attributes:
        run: a folder that `s4 train` wrote.
        output: folder for the graphs and their description.
        to: which form.
        chunk: samples that the graph for chunks takes at a time.
        rate: step size of the samples relative to training: 2 when only every second one will come.
        mixing: numbers in which features are mixed; int8 is refused where it would change predictions.
    """

    run: tyro.conf.Positional[Path]
    output: Path
    to: Literal["onnx"] = "onnx"
    chunk: int = 64
    rate: float = 1.0
    mixing: Literal["float32", "int8"] = "float32"


def export(arguments: list[str]) -> int:
    """Export."""
    chosen = tyro.cli(ExportArguments, prog="s4 export", args=arguments)
    model = best_model(RunFolder(chosen.run))
    folder = export_onnx(model, chosen.output, chosen.chunk, chosen.rate, chosen.mixing)
    for path in sorted(folder.glob("[!.]*")):
        console.print(f"{path}  {path.stat().st_size / 1e6:.2f} MB", markup=False, soft_wrap=True)
    return 0
