"""Estimators as folders: estimator.json says what was fit, each member is a saved model. No pickle."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

from torchs4.configuration import from_plain, require_whole, to_plain
from torchs4.data.augmentation import Augmentation
from torchs4.estimators.classifier import S4Classifier
from torchs4.estimators.regressor import S4Regressor
from torchs4.models import SequenceModel, SequenceModelConfig

# Raised when older files stop meaning what they say.
_FORMAT = 1
DESCRIPTION_FILE = "estimator.json"
_KINDS: dict[str, Any] = {"S4Classifier": S4Classifier, "S4Regressor": S4Regressor}
# What fitting finds out, beside weights, classes and names of columns.
_FITTED: dict[str, type] = {
    "n_channels_": int,
    "n_features_in_": int,
    "n_networks_": int,
    "n_outputs_": int,
    "_is_column": bool,
}
# What a parameter may hold that JSON has no word for.
_CONFIGS: dict[str, Any] = {"SequenceModelConfig": SequenceModelConfig, "Augmentation": Augmentation}


def save_estimator(estimator: Any, folder: Path) -> None:
    """Write estimator.json and a folder for each member; the description comes last and makes it whole."""
    description = {
        "format": _FORMAT,
        "estimator": type(estimator).__name__,
        "members": len(estimator.members_),
        "parameters": {name: _plain(value) for name, value in estimator.get_params(deep=False).items()},
        "fitted": _fitted(estimator),
    }
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; an estimator is saved as a folder. Choose another name.")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / DESCRIPTION_FILE).unlink(missing_ok=True)
    for number, member in enumerate(estimator.members_, 1):
        member.save_pretrained(folder / f"model-{number}")
    new = folder / f".{DESCRIPTION_FILE}.{os.getpid()}"
    new.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
    os.replace(new, folder / DESCRIPTION_FILE)


def kind_of(folder: Path) -> str | None:
    """Which estimator a folder holds, by its name; None if it holds none, or cannot be read."""
    try:
        return str(json.loads((folder / DESCRIPTION_FILE).read_text(encoding="utf-8"))["estimator"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def require_estimator(folder: Path) -> None:
    """Refuse what no estimator was saved to."""
    if not folder.exists():
        raise ValueError(
            f"There is no folder {folder} (looked for from {Path.cwd()}). Pass one that `s4 fit` or an "
            f"estimator's save wrote."
        )
    if not (folder / DESCRIPTION_FILE).is_file():
        raise ValueError(
            f"{folder} holds no {DESCRIPTION_FILE}. Pass a folder that `s4 fit` or an estimator's save wrote."
        )


def load_estimator(path: str | Path) -> Any:
    """The estimator that `save` wrote, whichever it was."""
    folder = Path(path)
    if kind_of(folder) == "S4Forecaster":
        from torchs4.estimators.forecaster import S4Forecaster

        return S4Forecaster.load(folder)
    file = folder / DESCRIPTION_FILE
    require_estimator(folder)
    try:
        description = json.loads(file.read_text(encoding="utf-8"))
        kind, parameters, fitted = (description[name] for name in ("estimator", "parameters", "fitted"))
        members, form = description["members"], description["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{file} is damaged, or was not written by an estimator's save ({error!r})."
        ) from error
    if form != _FORMAT:
        raise ValueError(
            f"{file} has format {form}; this version of torchs4 reads format {_FORMAT}. Install the version "
            f"that wrote it, or save the estimator again."
        )
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ValueError(f"{file} describes a {kind!r}; expected one of {', '.join(_KINDS)}.")
    try:
        require_whole("members", members, 1)
        estimator = _KINDS[kind](**{name: _from_plain(value, file) for name, value in parameters.items()})
        # Where it was trained is past: fitting it again must not go on there.
        estimator.output = None
        # Files of older versions hold networks only.
        estimator.n_networks_ = members
        for name, wanted in _FITTED.items():
            if name in fitted:
                if type(fitted[name]) is not wanted:
                    raise TypeError(f"{name} is {fitted[name]!r}, expected {wanted.__name__}")
                setattr(estimator, name, fitted[name])
        if "feature_names_in_" in fitted:
            estimator.feature_names_in_ = np.array(fitted["feature_names_in_"], object)
        if isinstance(estimator, S4Classifier):
            estimator.classes_ = _read_labels(fitted["classes_"])
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ValueError(f"{file} is damaged: it does not describe a {kind} ({error!r}).") from error
    estimator.members_ = [
        SequenceModel.from_pretrained(folder / f"model-{number}") for number in range(1, members + 1)
    ]
    return estimator


def _fitted(estimator: Any) -> dict[str, Any]:
    """What fitting found out beside the weights."""
    found = {name: getattr(estimator, name) for name in _FITTED if hasattr(estimator, name)}
    if hasattr(estimator, "feature_names_in_"):
        found["feature_names_in_"] = estimator.feature_names_in_.tolist()
    if hasattr(estimator, "classes_"):
        found["classes_"] = _write_labels(estimator.classes_)
    return found


def _write_labels(classes: np.ndarray[Any, Any]) -> dict[str, Any]:
    labels = classes.tolist()
    for label in labels:
        if not isinstance(label, str | int | float | bool):
            raise ValueError(
                f"The class {label!r} is a {type(label).__name__}, which a file cannot hold: fit with texts "
                f"or numbers as labels to save what was fit."
            )
    return {"dtype": classes.dtype.str, "labels": labels}


def _read_labels(written: Any) -> np.ndarray[Any, Any]:
    classes = np.empty(len(written["labels"]), np.dtype(written["dtype"]))
    classes[:] = written["labels"]
    return classes


def _plain(value: Any) -> Any:
    if type(value).__name__ in _CONFIGS:
        return {"kind": type(value).__name__, "options": to_plain(value)}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, dict):
        return {"kind": "weights", "pairs": [[_scalar(key), _scalar(one)] for key, one in value.items()]}
    return _scalar(value)


def _scalar(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    # A generator of random numbers has done its work.
    return value if isinstance(value, str | int | float | bool) else None


def _from_plain(value: Any, file: Path) -> Any:
    if not isinstance(value, dict):
        return value
    if value.get("kind") == "weights":
        return dict(value["pairs"])
    kind = value.get("kind")
    if kind not in _CONFIGS:
        raise ValueError(f"{file} names {kind!r}, which this version of torchs4 does not know.")
    return from_plain(_CONFIGS[kind], value["options"], file)
