"""`s4 predict MODEL FILE`: what a fitted model says about new data, as a table."""

import csv
import json
import sys
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import tyro

from torchs4.cli.consoles import errors
from torchs4.cli.fit import LAYOUT_FILE
from torchs4.configuration import from_plain
from torchs4.data import SequenceFiles, data_folder
from torchs4.data.own.inputs import read_inputs
from torchs4.estimators import S4Classifier, load_estimator
from torchs4.estimators.saving import kind_of, require_estimator

# What asks for columns, in errors: nobody named them here.
_FLAGS = dict.fromkeys(("id", "time", "values"), "the model")


@dataclass(frozen=True)
class PredictArguments:
    """Predictions of a model that `s4 fit` made, for a file that is laid out like the one it learned from.

    The table has a row for each sequence: its number (or id, or the recording's name), what is predicted, and
    for classes how probable each is. A column of labels may be missing, and is not read.

    Attributes:
        model: a folder that `s4 fit` wrote.
        path: the file, a folder of recordings, or a single one. Columns of a table are found by their names.
        output: where to write the table, as CSV; by default it is printed.
        rate: step size of the new data relative to the old: 2 when only every second sample is there.
        data_dir: where recordings are kept as arrays; by default $TORCHS4_DATA, else the user's cache folder.
    """

    model: tyro.conf.Positional[Path]
    path: tyro.conf.Positional[Path]
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    rate: float = 1.0
    data_dir: Path | None = None


def predict(arguments: list[str]) -> int:
    """Predict."""
    if arguments and not arguments[0].startswith("-") and kind_of(Path(arguments[0])) == "S4Forecaster":
        # A series is continued, not judged.
        code: int = import_module("torchs4.cli.predict_forecast").predict_forecast(arguments)
        return code
    chosen = tyro.cli(PredictArguments, prog="s4 predict", args=arguments)
    files = replace(_layout(chosen.model), path=str(chosen.path))
    estimator = load_estimator(chosen.model)
    if chosen.rate == 1:
        # Columns that are positions have other names at another rate.
        files = replace(files, values=tuple(getattr(estimator, "feature_names_in_", files.values)))
    else:
        files = replace(files, sample_rate=None)
    examples = files.examples(data_folder(chosen.data_dir), with_labels=False, flags=_FLAGS)
    for note in examples.notes:
        errors.print(note, markup=False, soft_wrap=True)
    x = read_inputs(examples, files.tokens)
    keys = range(1, len(x) + 1) if examples.keys is None else examples.keys
    header, rows = _table(estimator, x, chosen.rate)
    with (
        nullcontext(sys.stdout)
        if chosen.output is None
        else chosen.output.open("w", newline="", encoding="utf-8")
    ) as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["sequence", *header])
        writer.writerows([key, *row] for key, row in zip(keys, rows, strict=True))
    if chosen.output is not None:
        errors.print(f"Wrote {len(x):,} predictions to {chosen.output}", markup=False, soft_wrap=True)
    return 0


def _layout(folder: Path) -> SequenceFiles:
    require_estimator(folder)
    path = folder / LAYOUT_FILE
    if not path.is_file():
        raise ValueError(
            f"{folder} holds no {LAYOUT_FILE}: it was not written by `s4 fit`. In a program, use "
            f"torchs4.estimators.load_estimator({str(folder)!r}).predict(X)."
        )
    try:
        return from_plain(SequenceFiles, _read_json(path), path)
    except RecursionError as error:
        raise ValueError(f"{path} is damaged: values inside one another without end.") from error


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is not readable JSON ({error}).") from error


def _table(estimator: Any, x: Any, rate: float) -> tuple[list[str], list[list[Any]]]:
    """Names of the columns, and a row for each sequence."""
    if isinstance(estimator, S4Classifier):
        probabilities = estimator.predict_proba(x, rate=rate)
        classes = estimator.classes_
        best = classes[probabilities.argmax(axis=1)].tolist()
        rows = [[label, *(f"{p:.4f}" for p in each)] for label, each in zip(best, probabilities, strict=True)]
        return ["prediction", *(f"p({label})" for label in classes.tolist())], rows
    values = estimator.predict(x, rate=rate)
    if values.ndim == 1:
        return ["prediction"], [[f"{value:.7g}"] for value in values]
    return [f"prediction_{k}" for k in range(values.shape[1])], [[f"{v:.7g}" for v in row] for row in values]
