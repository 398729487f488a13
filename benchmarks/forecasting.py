"""Forecasts of one column in twelve settings: S4 against simpler and older ways, three seeds each.

    python benchmarks/forecasting.py                    # every missing piece, then results/forecasting.json
    python benchmarks/forecasting.py --list             # the pieces that are missing: setting, model, seed
    python benchmarks/forecasting.py --piece etth1-24 s4 0
    python benchmarks/forecasting.py --collect          # only write the result file

A piece is one training (or one closed form); each is kept in runs/forecasting as soon as it is done, and a
training that was killed goes on where it was. Pieces that the result file has are not done again. Beside the
twelve settings there are a few of all columns, and of the six clients whose file is at hand, with one seed.
Everything is chosen on validation windows; test windows are measured once per piece.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import statistics
import time
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from accelerate import Accelerator
from harness import RESULTS, record, show
from torch import nn

from torchs4 import load_model
from torchs4.configuration import with_options
from torchs4.data import data_folder
from torchs4.models import InformerConfig
from torchs4.models.simple_forecasts import SeasonalForecast, fit_linear
from torchs4.recipes import RECIPES, recipe_config
from torchs4.recipes.forecasting import SERIES
from torchs4.tables.forecast import forecast_markdown, forecast_rows
from torchs4.training.config import BudgetOptions, OptimizerOptions
from torchs4.training.evaluation import evaluate
from torchs4.training.provenance import provenance
from torchs4.training.run_folder import RunFolder
from torchs4.training.session import run

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

PIECES = RESULTS.parents[1] / "runs" / "forecasting"
MEASURED = RESULTS.parents[1] / "src" / "torchs4" / "recipes" / "measured" / "forecasting.json"
PAGE = RESULTS.parents[1] / "docs" / "forecasting.md"
SAID = {
    "s4_beats_informer_at_longest": "S4 beats the Informer that was trained here, at the longest horizon",
    "s4_beats_linear": "S4 beats the linear map, by the mean of its seeds",
    "s4_of_all_seeds_beats_linear": "The averaged forecasts of S4's three seeds beat the linear map",
}
THREADS = 1
SEEDS = (0, 1, 2)
# Shortest, middle and longest horizon of the four series that anybody can have here.
HORIZONS = {
    "etth1": (24, 168, 720),
    "etth2": (24, 168, 720),
    "ettm1": (24, 96, 672),
    "weather": (24, 168, 720),
}
SETTINGS = {f"{name}-{horizon}": (name, horizon) for name, some in HORIZONS.items() for horizon in some}
# Tried with one seed: all columns at once, and the last client of ECL's file of six; the benchmark's client,
# with whom numbers were published, is not among them.
MORE = {
    "etth1-24-multivariate": ("etth1", 24),
    "etth1-720-multivariate": ("etth1", 720),
    "six-clients-48": ("ecl", 48),
    "six-clients-960": ("ecl", 960),
}
ALL = {**SETTINGS, **MORE}
TRAINED = ("s4", "lstm", "informer")
CLOSED = ("last value", "seasonal", "linear")
# Rows of history among which the linear map's is chosen, like its penalty.
HISTORIES = (96, 168, 336, 720)
# Rows of a day.
DAY = {"etth1": 24, "etth2": 24, "ettm1": 96, "weather": 24, "ecl": 24}
INFORMER = InformerConfig(features=32, heads=4, encoder_layers=2, decoder_layers=1, label=48)
INFORMER_OPTIM = OptimizerOptions(lr=1e-3, weight_decay=0.0, batch_size=32, warmup_steps=30)
INFORMER_BUDGET = BudgetOptions(epochs=100, max_steps=300, evaluate_every=60, validation_examples=500)
# Rows of history that Informer reads: so it already takes several times as long to train as the others.
INFORMER_HISTORY = 168


def config_of(setting: str, model: str, seed: int) -> Any:
    """What is trained: the recipe, or the recipe's data with another model."""
    recipe = setting.replace("six-clients", "ecl")
    config = dataclasses.replace(recipe_config(f"forecast-{recipe}"), seed=seed)
    if recipe != setting:
        config = dataclasses.replace(config, data=dataclasses.replace(config.data, name="ECL_first6"))
    if model == "lstm":
        return dataclasses.replace(config, model=with_options(config.model, layer="lstm"))
    if model == "informer":
        # As published: a calendar, the series as it is.
        return dataclasses.replace(
            config,
            data=dataclasses.replace(config.data, calendar=True, window=INFORMER_HISTORY),
            model=INFORMER,
            optim=INFORMER_OPTIM,
            budget=INFORMER_BUDGET,
        )
    return config


def train_piece(setting: str, model: str, seed: int) -> dict[str, Any]:
    """Train, or go on with a training that was killed."""
    folder = RunFolder(PIECES / f"{setting}-{model}-{seed}-run")
    config = config_of(setting, model, seed)
    finished = run(folder, config, resume=folder.is_begun(), quiet=True)
    names = ("test_mse", "test_mae", "best_validation_mse", "steps", "parameters", "training_seconds")
    return {name: finished.summary[name] for name in names}


def closed_piece(setting: str, model: str) -> dict[str, Any]:
    """What needs no training."""
    name, _ = ALL[setting]
    base = config_of(setting, "s4", 0).data
    accelerator = Accelerator(cpu=True)
    started = time.monotonic()

    def load(history: int) -> Any:
        return dataclasses.replace(base, window=history, calendar=False).load(data_folder())

    def score(forecast: nn.Module, data: Any, split: str) -> dict[str, float]:
        return evaluate(forecast, getattr(data, split), data.task, 256, accelerator=accelerator).metrics

    chosen: dict[str, Any] = {}
    if model != "linear":
        data = load(base.window)
        season = DAY[name] if model == "seasonal" else 1
        forecast: nn.Module = SeasonalForecast(data.task.horizon, data.task.continues, season)
    else:
        best = math.inf
        for history in HISTORIES:
            candidate = load(history)
            batches = (
                candidate.train.batch(rows)
                for rows in np.array_split(
                    np.arange(len(candidate.train)), math.ceil(len(candidate.train) / 512)
                )
            )
            linear, penalty = fit_linear(
                batches,
                lambda one, candidate=candidate: score(one, candidate, "validation")["mse"],
                candidate.task.horizon,
                candidate.task.continues,
                candidate.task.scaling.scale,
            )
            wrong = score(linear, candidate, "validation")["mse"]
            if wrong < best:
                best, data, forecast = wrong, candidate, linear
                chosen = {"history": history, "penalty": penalty}
    tested, validated = score(forecast, data, "test"), score(forecast, data, "validation")
    return {
        "test_mse": tested["mse"],
        "test_mae": tested["mae"],
        "best_validation_mse": validated["mse"],
        "training_seconds": round(time.monotonic() - started, 1),
        **chosen,
    }


class Together(nn.Module):
    """The mean of several forecasts."""

    def __init__(self, members: list[nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)

    def forward(self, x: torch.Tensor, lengths: None = None, rate: float = 1.0) -> torch.Tensor:
        return torch.stack([member(x) for member in self.members]).mean(0)


def together_piece(setting: str) -> dict[str, Any] | None:
    """The mean of the forecasts of all seeds' S4; nothing until all are trained."""
    folders = [RunFolder(PIECES / f"{setting}-s4-{seed}-run") for seed in SEEDS]
    if not all(folder.summary() for folder in folders):
        return None
    data = config_of(setting, "s4", 0).data.load(data_folder())
    model = Together([load_model(folder.best) for folder in folders])
    tested = evaluate(model, data.test, data.task, 256, accelerator=Accelerator(cpu=True)).metrics
    return {"test_mse": tested["mse"], "test_mae": tested["mae"]}


def pieces() -> list[tuple[str, str, int]]:
    """All of them: first what needs no training, then one seed of everything, then the others.

    Informer, which takes longest, comes last, and of it what the claims are about comes first.
    """
    found = [(setting, model, 0) for setting, model in product(ALL, CLOSED)]
    found += [(setting, "s4", 0) for setting in MORE]
    found += [(setting, model, seed) for seed, setting, model in product(SEEDS, SETTINGS, TRAINED)]
    found += [(setting, "s4 of all seeds", 0) for setting in SETTINGS]
    longest = {f"{name}-{some[-1]}" for name, some in HORIZONS.items()}

    def is_later(piece: tuple[str, str, int]) -> tuple[bool, bool]:
        setting, model, seed = piece
        repeats = model == "informer" and seed > 0
        return repeats, repeats and setting not in longest

    return sorted(found, key=is_later)


def result_file(setting: str, model: str, seed: int) -> Path:
    return PIECES / f"{setting}-{model.replace(' ', '-')}-{seed}.json"


def do_piece(setting: str, model: str, seed: int) -> None:
    path = result_file(setting, model, seed)
    if path.is_file():
        return
    if model in TRAINED:
        result: dict[str, Any] | None = train_piece(setting, model, seed)
    elif model in CLOSED:
        result = closed_piece(setting, model)
    else:
        result = together_piece(setting)
    if result is None:
        return
    result = {**result, "seed": seed, "commit": provenance()["commit"]}
    _keep(path, result)
    print(f"{setting} {model} {seed}: {result}", flush=True)


def restore() -> None:
    """What the result file has counts as done, wherever it was measured."""
    file = RESULTS / "forecasting.json"
    if not file.is_file():
        return
    settings = json.loads(file.read_text(encoding="utf-8"))["results"]["settings"]
    for setting, one in settings.items():
        for model, found in one["models"].items():
            for place, result in enumerate(found["seeds"]):
                seed = result.get("seed", place)
                path = result_file(setting, model, seed)
                if not path.is_file():
                    _keep(path, {**result, "seed": seed})


def _keep(path: Path, result: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(result), encoding="utf-8")
    new.replace(path)


def collect() -> None:
    """Everything that is there, with mean and deviation over seeds, and what became of the claims."""
    published = {series.name: series.published for series in SERIES}
    settings: dict[str, Any] = {}
    for setting, (name, horizon) in ALL.items():
        models: dict[str, Any] = {}
        for model in (*CLOSED, *TRAINED, "s4 of all seeds"):
            files = [result_file(setting, model, seed) for seed in SEEDS]
            seeds = [json.loads(path.read_text(encoding="utf-8")) for path in files if path.is_file()]
            if not seeds:
                continue
            models[model] = {"seeds": seeds}
            for metric in ("mse", "mae"):
                values = [one[f"test_{metric}"] for one in seeds]
                models[model][metric] = statistics.fmean(values)
                if len(values) > 1:
                    models[model][f"{metric}_deviation"] = statistics.stdev(values)
        settings[setting] = {"models": models}
        if setting in SETTINGS and horizon == HORIZONS[name][-1]:
            settings[setting]["published_s4_mse"] = published[name]
    models = {name: one["models"] for name, one in settings.items()}
    longest = [f"{name}-{some[-1]}" for name, some in HORIZONS.items()]
    claims = {
        "s4_beats_informer_at_longest": _beats(models, longest, "s4", "informer"),
        "s4_beats_linear": _beats(models, SETTINGS, "s4", "linear"),
        "s4_of_all_seeds_beats_linear": _beats(models, SETTINGS, "s4 of all seeds", "linear"),
    }
    path = record("forecasting", {"settings": settings, "claims": claims})
    described = json.loads(path.read_text(encoding="utf-8"))
    # What comes with the package, for `s4 table forecast`.
    short = {
        "commit": described["commit"],
        "settings": {
            f"forecast-{name}": {
                model: {
                    "mse": round(found["mse"], 5),
                    "mae": round(found["mae"], 5),
                    "seeds": len(found["seeds"]),
                }
                for model, found in one["models"].items()
            }
            for name, one in settings.items()
            if f"forecast-{name}" in RECIPES
        },
    }
    MEASURED.write_text(json.dumps(short, indent=2) + "\n", encoding="utf-8")
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8"), claims), encoding="utf-8")
    columns = (*CLOSED, *TRAINED, "s4 of all seeds")
    rows = [
        [name, *(found.get(model, {}).get("mse", "") for model in columns)] for name, found in models.items()
    ]
    show("test MSE, mean over seeds", ["setting", *columns], rows)
    for claim, found in claims.items():
        print(f"{claim}: {sum(found.values())} of {len(found)}")


def _beats(models: dict[str, Any], names: Iterable[str], one: str, other: str) -> dict[str, bool]:
    """Where both were measured: whether one has the smaller error."""
    return {
        name: models[name][one]["mse"] < models[name][other]["mse"]
        for name in names
        if {one, other} <= set(models[name])
    }


def renewed(text: str, claims: dict[str, dict[str, bool]]) -> str:
    """The page with the table as it is now, and what became of the claims."""
    sentences = [
        f"{said}: {sum(claims[claim].values())} of {len(claims[claim])}"
        + (
            f" (not {', '.join(lost)})"
            if (lost := [name for name, won in claims[claim].items() if not won])
            else ""
        )
        for claim, said in SAID.items()
        if claims[claim]
    ]
    parts = {
        "s4 table forecast --markdown": forecast_markdown(forecast_rows()),
        "claims": "".join(f"- {sentence}.\n" for sentence in sentences),
    }
    for mark, inside in parts.items():
        begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
        before, rest = text.split(begin)
        text = f"{before}{begin}{inside}{end}{rest.split(end)[1]}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true", help="name the pieces that are not done yet")
    parser.add_argument("--piece", nargs=3, metavar=("SETTING", "MODEL", "SEED"), help="do one piece")
    parser.add_argument("--collect", action="store_true", help="write the result file from what is there")
    chosen = parser.parse_args()
    torch.set_num_threads(THREADS)
    restore()
    if chosen.list:
        for setting, model, seed in pieces():
            if not result_file(setting, model, seed).is_file():
                print(f"{setting}\t{model}\t{seed}")
        return
    if chosen.piece:
        setting, model, seed = chosen.piece
        do_piece(setting, model, int(seed))
        return
    if not chosen.collect:
        for piece in pieces():
            do_piece(*piece)
    collect()


if __name__ == "__main__":
    main()
