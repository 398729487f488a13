"""`s4 fit FILE`: a model for data of your own, without choosing anything; `s4 predict` then uses it."""

import json
from collections import Counter
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from torchs4.cli.consoles import console
from torchs4.cli.options import peek
from torchs4.cli.understood import tell_classes, tell_groups, tell_sequences
from torchs4.configuration import to_plain
from torchs4.data import SequenceFiles, data_folder
from torchs4.data.own.examples import Examples
from torchs4.data.own.inputs import read_inputs
from torchs4.data.own.partition import divide, require_fractions
from torchs4.data.own.stored import StoredSequences
from torchs4.estimators import S4Classifier, S4Regressor
from torchs4.estimators.defaults import usual_validation_fraction
from torchs4.estimators.sequences import as_table
from torchs4.training.display import Display
from torchs4.training.run_folder import free_folder

# What errors of readers call what this command is given.
_FLAGS = {
    "label": "--target",
    "id": "--id",
    "time": "--time",
    "values": "--values",
    "ignore": "--ignore",
    "sample_rate": "--sample-rate",
}
# How the file that was learned from is laid out; new ones are read alike.
LAYOUT_FILE = "data.json"
# Whole numbers are classes if there are no more different ones than this, or one for so many examples.
_FEW_NUMBERS, _EXAMPLES_EACH = 20, 10


@dataclass(frozen=True)
class FitArguments:
    """Learn to tell classes apart, or to predict values, from a file of your own.

    A table (CSV, Parquet), an NPZ archive, JSON Lines, or a folder of recordings whose sub-folders are
    classes: docs/your-own-data.md shows the layouts. With --horizon N, learn to continue a series instead:
    `s4 fit --horizon 24 --help` shows the options for that.

    Attributes:
        path: the file or folder.
        target: the column, key or array to learn; without it "label", else "class", "target" or "y" if there
            is one of them.
        task: "classification" or "regression"; "auto" decides by what the target looks like, and says so.
        id: the column that tells which sequence a row belongs to, if each row of a table is one position.
            Without it, each row is a sequence.
        time: the column that orders the rows of a sequence; without it, they keep the order of the file.
        values: the columns to read, as positions of a row or as channels; without it, all others.
        ignore: columns of a table to leave out.
        tokens: read whole numbers from 1 on as tokens; 0 is padding.
        sample_rate: positions per second. Recordings of another rate are resampled to it.
        test_fraction: of the sequences, held out to say how good the model is; 0 learns from all of them.
        ensemble: so many networks, averaged: better, and as many times slower.
        kernels: average with kernels that are not trained, whose head is solved for in seconds: "auto" where
            examples are few; "only" trains nothing.
        max_minutes: of training in all; without it, as long as it takes.
        epochs: passes over the training examples, at most.
        features: width of the network.
        layers: how many blocks the network has.
        bidirectional: let it see the future, which often helps; it cannot stream or be exported then.
        balanced: let every class count alike, however many examples it has.
        augment: show examples a little different each time; by default where there are few, and classes are
            asked for.
        seed: of everything random.
        output: folder for the model; by default a new one below runs/. The same command with the folder of an
            interrupted one goes on there.
        data_dir: where recordings are kept as arrays; by default $TORCHS4_DATA, else the user's cache folder.
    """

    path: tyro.conf.Positional[Path]
    target: str = ""
    task: Literal["auto", "classification", "regression"] = "auto"
    id: str = ""
    time: str = ""
    values: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    tokens: bool = False
    sample_rate: float | None = None
    test_fraction: float = 0.2
    ensemble: int = 1
    kernels: Literal["auto", "with", "without", "only"] = "auto"
    max_minutes: float | None = None
    epochs: int | None = None
    features: int | None = None
    layers: int | None = None
    bidirectional: bool = False
    balanced: bool = False
    augment: bool | None = None
    seed: int = 0
    output: Path | None = None
    data_dir: Path | None = None


def fit(arguments: list[str]) -> int:
    """Fit."""
    if peek(arguments, "--horizon") is not None:
        # A series to continue is another question, with options of its own.
        code: int = import_module("torchs4.cli.fit_forecast").fit_forecast(arguments)
        return code
    chosen = tyro.cli(FitArguments, prog="s4 fit", args=arguments)
    require_fractions(None, chosen.test_fraction)
    files = SequenceFiles(
        str(chosen.path.resolve()) if chosen.path.exists() else str(chosen.path),
        label=chosen.target,
        id=chosen.id,
        time=chosen.time,
        values=chosen.values,
        ignore=chosen.ignore,
        tokens=chosen.tokens,
        sample_rate=chosen.sample_rate,
    )
    with Display(console) as display:
        files, examples = _read(files, chosen, display)
    if not chosen.path.is_dir() and examples.test is not None and chosen.test_fraction:
        chosen = replace(chosen, test_fraction=0.0)
    output = chosen.output or free_folder(Path("runs"), chosen.path.resolve().stem)
    estimator = _estimator(chosen, files, output, examples.sample_rate)
    x, y = _inputs(examples, chosen.tokens), examples.y
    tell_sequences(x, examples)
    if files.task == "classification":
        tell_classes(y)
        tell_groups(x, y)
    kept, tested = _divided(files, y, chosen)
    validation = None
    if (others := examples.validation) is not None:
        validation = _inputs(others, chosen.tokens), others.y
    if validation is None and usual_validation_fraction(len(kept)) is None and chosen.kernels != "only":
        console.print(
            f"{len(kept):,} sequences are too few to spare any: all are learned from, and figures of the "
            f"training are of these themselves.",
            soft_wrap=True,
        )
    try:
        estimator.fit(_rows(x, kept), _rows(y, kept), validation=validation)
    except KeyboardInterrupt:
        console.print(f"To go on, give the same command with --output {output}", markup=False, soft_wrap=True)
        raise
    estimator.save(output)
    (output / LAYOUT_FILE).write_text(
        json.dumps(to_plain(_layout(files, examples, estimator)), indent=2) + "\n", encoding="utf-8"
    )
    if len(tested):
        _tell(estimator, _rows(x, tested), _rows(y, tested))
    if examples.test is not None:
        _tell(estimator, _inputs(examples.test, chosen.tokens), examples.test.y)
    console.print(
        f"The model is in {output}. Use it: s4 predict {output} NEW_FILE -o predictions.csv",
        markup=False,
        soft_wrap=True,
    )
    return 0


def _read(files: SequenceFiles, chosen: FitArguments, display: Display) -> tuple[SequenceFiles, Examples]:
    """The examples, and the options with the task that they ask for."""
    place = data_folder(chosen.data_dir)
    if chosen.task != "auto":
        files = replace(files, task=chosen.task)
        return files, _noted(files.examples(place, display.preparing(), flags=_FLAGS), display)
    examples = _noted(files.examples(place, display.preparing(), flags=_FLAGS), display)
    task, why = _guess(examples.y)
    display.say(f"Task: {task}, because {why} (--task changes it).")
    if task == "classification":
        return files, examples
    files = replace(files, task="regression")
    return files, files.examples(place, flags=_FLAGS)


def _noted(examples: Examples, display: Display) -> Examples:
    for note in examples.notes:
        display.say(note)
    return examples


def _inputs(examples: Examples, tokens: bool) -> Any:
    """The sequences; rows of a table as a frame, whose names of columns the estimator keeps."""
    if isinstance(examples.x, np.ndarray) and examples.read and not tokens:
        return as_table(examples.x, examples.read)
    return read_inputs(examples, tokens)


def _layout(files: SequenceFiles, examples: Examples, estimator: Any) -> SequenceFiles:
    """How new files are laid out: the same columns, and recordings of the same sampling rate."""
    # Columns that are positions are the estimator's to know: at another rate there are others.
    values = files.values if hasattr(estimator, "feature_names_in_") else examples.read
    return replace(
        files, path="", values=values or files.values, sample_rate=files.sample_rate or examples.sample_rate
    )


def _guess(y: Any) -> tuple[Literal["classification", "regression"], str]:
    labels = np.asarray(y)
    if labels.dtype.kind not in "iubf":
        try:
            labels = labels.astype(np.float64)
        except ValueError:
            return "classification", "the target holds texts"
    if labels.ndim > 1:
        return "regression", "the target holds several values"
    different = len(np.unique(labels))
    if (labels != np.floor(labels)).any():
        return "regression", "the target holds numbers with decimals"
    if different <= max(_FEW_NUMBERS, len(labels) // _EXAMPLES_EACH):
        return "classification", f"the target holds {different} different whole numbers"
    return "regression", f"the target holds {different} different numbers in {len(labels)} examples"


def _estimator(chosen: FitArguments, files: SequenceFiles, output: Path, sample_rate: float | None) -> Any:
    options: dict[str, Any] = {
        "ensemble": chosen.ensemble,
        "kernels": {"with": True, "without": False}.get(chosen.kernels, chosen.kernels),
        "max_minutes": chosen.max_minutes,
        "epochs": chosen.epochs,
        "features": chosen.features,
        "num_layers": chosen.layers,
        "bidirectional": chosen.bidirectional or None,
        "augment": "auto" if chosen.augment is None else chosen.augment,
        "sample_rate": chosen.sample_rate or sample_rate,
        "random_state": chosen.seed,
        "output": output,
        "verbose": 2,
    }
    if files.task == "classification":
        return S4Classifier(class_weight="balanced" if chosen.balanced else None, **options)
    if chosen.balanced:
        raise ValueError("--balanced is about classes, but values are to be predicted: leave it out.")
    return S4Regressor(**options)


def _divided(files: SequenceFiles, y: Any, chosen: FitArguments) -> tuple[Any, Any]:
    """Rows to learn from, and rows to measure with."""
    groups = np.zeros(len(y), np.int64)
    if files.task == "classification":
        groups = np.unique(np.asarray(list(map(str, y))), return_inverse=True)[1].reshape(-1)
    parts = divide(groups, 0, chosen.test_fraction, chosen.seed)
    return parts.train, parts.test


def _rows(values: Any, rows: Any) -> Any:
    if len(rows) == len(values):
        return values
    if isinstance(values, StoredSequences):
        return values.subset(rows)
    if hasattr(values, "iloc"):
        return values.iloc[rows]
    return values[rows] if isinstance(values, np.ndarray) else [values[row] for row in rows]


def _tell(estimator: Any, x: Any, y: Any) -> None:
    """How good the model is on sequences that it has not seen."""
    score = estimator.score(x, y)
    if isinstance(estimator, S4Classifier):
        told = f"Accuracy {100 * score:.1f} %"
        unknown = Counter(map(str, y)) - Counter({str(one): len(y) for one in estimator.classes_.tolist()})
        if unknown:
            told = (
                f"{unknown.total():,} test sequences are of classes that were not learned "
                f"({', '.join(unknown)}), and count as mistakes. {told}"
            )
    else:
        error = np.abs(estimator.predict(x) - np.asarray(y, np.float64)).mean()
        told = f"Mean absolute error {error:.4g}, R² {score:.3f}"
    console.print(f"{told} on {len(x):,} sequences that took no part in it.", markup=False, soft_wrap=True)
