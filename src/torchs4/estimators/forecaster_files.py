"""Forecasters as folders: estimator.json says what was fit, arrays and models lie beside it. No pickle."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from torchs4.configuration import from_plain, to_plain
from torchs4.estimators.saving import kind_of, require_estimator
from torchs4.models import ForecastModel, ForecastModelConfig

if TYPE_CHECKING:
    from pathlib import Path

    from torchs4.estimators.forecaster import S4Forecaster

    Forecaster = TypeVar("Forecaster", bound=S4Forecaster)

# Raised when older files stop meaning what they say.
_FORMAT = 1
_DESCRIPTION, _ARRAYS = "estimator.json", "series.npz"
_KIND = "S4Forecaster"
_FITTED = (
    "targets_",
    "covariates_",
    "known_",
    "calendar_",
    "levels_",
    "horizon_",
    "history_",
    "time_",
    "series_",
)
# What files of an earlier day do not have, and what it was then.
_LATER = {"zone_": None}


def save_forecaster(forecaster: S4Forecaster, folder: Path) -> None:
    """Write the folder; the description comes last and makes it whole."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file; a forecaster is saved as a folder. Choose another name.")
    parameters = dict(forecaster.get_params(deep=False))
    model = parameters.pop("model")
    # A generator of random numbers has done its work, and a folder of a training is another machine's.
    kept = {name: value for name, value in parameters.items() if isinstance(value, str | int | float | None)}
    description = {
        "format": _FORMAT,
        "estimator": _KIND,
        "members": len(forecaster.members_),
        "parameters": {**kept, "intervals": list(map(float, forecaster.intervals)), "output": None},
        "model": None if model is None else to_plain(model),
        "fitted": {name: getattr(forecaster, name) for name in (*_FITTED, *_LATER)},
        "series": list(forecaster.recent_),
    }
    arrays: dict[str, Any] = {"widening": forecaster.widening_}
    for number, name in enumerate(forecaster.recent_):
        values, times = forecaster.recent_[name]
        shift, scale = forecaster.scales_[name]
        arrays |= {f"values_{number}": values, f"shift_{number}": shift, f"scale_{number}": scale}
        if times is not None:
            arrays[f"times_{number}"] = times
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _DESCRIPTION).unlink(missing_ok=True)
    for number, member in enumerate(forecaster.members_, 1):
        member.save_pretrained(folder / f"model-{number}")
    np.savez(folder / _ARRAYS, **arrays)
    new = folder / f".{_DESCRIPTION}.{os.getpid()}"
    new.write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
    os.replace(new, folder / _DESCRIPTION)


def load_forecaster(kind: type[Forecaster], folder: Path) -> Forecaster:
    """The forecaster that `save_forecaster` wrote."""
    path = folder / _DESCRIPTION
    require_estimator(folder)
    if (other := kind_of(folder)) not in (None, _KIND):
        raise ValueError(f"{path} describes a {other}, not a {_KIND}. Call {other}.load instead.")
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
        form = description["format"]
        parameters, fitted = dict(description["parameters"]), dict(description["fitted"])
        members, series, model = int(description["members"]), description["series"], description["model"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(
            f"{path} is damaged, or was not written by a forecaster's save ({error!r})."
        ) from error
    if form != _FORMAT:
        raise ValueError(
            f"{path} has format {form}; this version of torchs4 reads format {_FORMAT}. Install the version "
            f"that wrote it, or save the forecaster again."
        )
    try:
        forecaster = kind(**parameters)
        if model is not None:
            forecaster.model = from_plain(ForecastModelConfig, model, path)
        fitted = _LATER | fitted
        for name in (*_FITTED, *_LATER):
            value = fitted[name]
            setattr(forecaster, name, tuple(value) if isinstance(value, list) else value)
    except (KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: it does not describe a {_KIND} ({error!r}).") from error
    forecaster.members_ = [
        ForecastModel.from_pretrained(folder / f"model-{number}") for number in range(1, members + 1)
    ]
    try:
        with np.load(folder / _ARRAYS, allow_pickle=False) as arrays:
            forecaster.widening_ = arrays["widening"]
            forecaster.recent_, forecaster.scales_ = {}, {}
            for number, name in enumerate(series):
                times = arrays.get(f"times_{number}")
                forecaster.recent_[name] = arrays[f"values_{number}"], times
                forecaster.scales_[name] = arrays[f"shift_{number}"], arrays[f"scale_{number}"]
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{folder / _ARRAYS} is missing or damaged ({error}). Save it again.") from error
    return forecaster
