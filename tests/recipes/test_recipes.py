"""Every recipe: the numbers of its tables, and two steps of training."""

from __future__ import annotations

import dataclasses
import json
import math
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from rich.console import Console

from torchs4 import recipes
from torchs4.configuration import short_options, with_options
from torchs4.data import (
    CIFAR10,
    ETT,
    IMDB,
    CIFAR10Density,
    Electricity,
    ListOps,
    MNISTDensity,
    Retrieval,
    SpeechCommands,
    Weather,
    WikiText,
)
from torchs4.data.sequences import SequenceData, Split
from torchs4.description import Batch, InputDescription
from torchs4.recipes.forecasting import SERIES
from torchs4.tasks import Classification, Forecast, LogisticMixture, NextToken, PositionRegression, Task
from torchs4.training.config import BudgetOptions
from torchs4.training.display import Display
from torchs4.training.loop import Trainer
from torchs4.training.run_folder import RunFolder

if TYPE_CHECKING:
    from pathlib import Path

# Of recipes that differ in a number, the first and the last stand for all.
FAMILIES = [[r.name for r in recipes.RECIPES.values() if r.family == f"forecast-{s.name}"] for s in SERIES]
FORECASTS = [name for family in FAMILIES for name in family]
SWEPT = [name for name in recipes.RECIPES if name not in FORECASTS]
SWEPT += [name for family in FAMILIES for name in (family[0], family[-1])]
PRESETS = [(name, preset) for name in SWEPT for preset in recipes.RECIPES[name].presets]

# Table 11 of the paper: depth, features, norm, pre-norm, dropout, learning rate, batch size, epochs, weight
# decay, patience.
PAPER = {
    "lra-listops": (6, 128, "batch", False, 0.0, 0.01, 100, 50, 0.01, 5),
    "lra-text": (4, 64, "batch", True, 0.0, 0.001, 50, 20, 0.0, 5),
    "lra-retrieval": (6, 256, "batch", True, 0.0, 0.002, 64, 20, 0.0, 20),
    "lra-image": (6, 512, "layer", False, 0.2, 0.004, 50, 200, 0.01, 20),
    "lra-pathfinder": (6, 256, "batch", True, 0.1, 0.004, 100, 200, 0.0, 10),
    "lra-path-x": (6, 256, "batch", True, 0.0, 0.0005, 32, 100, 0.0, 20),
    "scifar": (6, 1024, "layer", False, 0.25, 0.01, 50, 200, 0.01, 20),
    "sc10-mfcc": (4, 256, "layer", False, 0.2, 0.01, 100, 50, 0.0, 5),
    "sc10-raw": (6, 128, "batch", True, 0.1, 0.01, 20, 150, 0.0, 10),
}

# The updated results: depth, features, state size, norm, pre-norm, dropout, tied, learning rate, batch size,
# epochs, warm-up, smallest Δ.
MODERN = {
    "lra-listops": (6, 256, 4, "batch", False, 0.0, False, 0.01, 32, 40, 12_000, 1e-3),
    "lra-text": (6, 256, 4, "batch", True, 0.0, False, 0.01, 16, 32, 5_000, 1e-3),
    "lra-retrieval": (6, 256, 4, "batch", True, 0.0, False, 0.01, 64, 20, 5_000, 1e-3),
    "lra-image": (6, 512, 64, "batch", False, 0.1, True, 0.01, 50, 200, 18_000, 1e-3),
    "lra-pathfinder": (6, 256, 64, "batch", True, 0.0, False, 0.004, 64, 200, 50_000, 1e-3),
    "lra-path-x": (6, 256, 64, "batch", True, 0.0, False, 0.001, 16, 50, 50_000, 1e-4),
    "scifar": (6, 512, 64, "layer", False, 0.1, True, 0.01, 50, 200, 900, 1e-3),
    "sc10-raw": (6, 128, 64, "batch", True, 0.0, False, 0.01, 16, 40, 1_000, 1e-3),
}

# Tables 4, 5, 6 and 10: as published, and updated where the paper has such a row.
PUBLISHED = {
    "smnist": (99.63, None),
    "pmnist": (98.70, None),
    "scifar": (91.13, None),
    "lra-listops": (58.35, 59.60),
    "lra-text": (76.02, 86.82),
    "lra-retrieval": (87.09, 90.90),
    "lra-image": (87.26, 88.65),
    "lra-pathfinder": (86.05, 94.20),
    "lra-path-x": (88.10, 96.35),
    "sc10-raw": (98.32, None),
    "sc10-mfcc": (93.96, None),
}


# Those that the paper does not have.
OURS = {"digits", "characters", "wikitext-2", "mnist-density"}
DENSITY, LANGUAGE = "cifar-density", "wikitext-103"


def test_every_task_of_the_paper_has_every_preset() -> None:
    assert set(recipes.RECIPES) == {*OURS, DENSITY, LANGUAGE, *PUBLISHED, *FORECASTS}
    for name in OURS:
        assert set(recipes.RECIPES[name].presets) == {"cpu"}
    for name in PUBLISHED:
        assert tuple(recipes.RECIPES[name].presets) == ("paper", "modern", "cpu")


def test_the_density_has_the_published_sizes() -> None:
    recipe = recipes.RECIPES[DENSITY]
    assert tuple(recipe.presets) == ("paper", "paper-large", "cpu")
    # Table 7.
    assert recipe.published == {"paper": 2.92, "paper-large": 2.85}
    for preset, sizes in (("paper", (8, 128, 0.0)), ("paper-large", (16, 192, 0.1))):
        config = recipe.config(preset)  # type: ignore[arg-type]
        model, optim = config.model, config.optim
        assert (model.num_layers, model.features, model.block.dropout) == sizes
        assert (model.pools, model.feed_forward, model.block.pre_norm) == ((3, 4, 4), 2, True)
        assert (optim.optimizer, optim.lr, optim.average) == ("lamb", 0.005, 0.9995)
        assert (config.data.mixtures, config.data.validation_fraction) == (0, 0.02)


def test_the_language_model_is_the_published_one() -> None:
    recipe = recipes.RECIPES[LANGUAGE]
    # Table 8 and D.3.2.
    assert recipe.published == {"paper": 20.95}
    config = recipe.config("paper")
    model, optim, budget = config.model, config.optim, config.budget
    assert (model.num_layers, model.features) == (32, 1024)
    assert (model.feed_forward_every, model.feed_forward) == (2, 4)
    assert (model.cutoffs, model.division) == ((20_000, 40_000, 200_000), 4)
    block = model.block
    assert (block.layer.state_size, block.mixing, block.norm, block.pre_norm) == (64, "glu", "layer", True)
    assert (block.dropout, block.activation, block.layer.per_feature) == (0.25, "gelu", True)
    assert (optim.lr, optim.ssm_lr, optim.weight_decay, optim.clip) == (5e-4, 5e-4, 0.1, 0.0)
    assert (optim.optimizer, optim.schedule, optim.warmup_steps) == ("adamw", "cosine", 1000)
    assert budget.max_steps == 800_000
    # As many passages of 8,192 words as WikiText-103 has, eight at a time.
    assert budget.epochs * (103_227_021 // 8192 // optim.batch_size) >= budget.max_steps
    assert (config.data.release, config.data.level, config.data.length) == ("wikitext-103", "words", 8192)


def test_forecasts_are_the_fifty_settings_of_the_benchmark() -> None:
    assert len(FORECASTS) == 50
    assert {"forecast-etth1-720", "forecast-ettm1-672-multivariate", "forecast-ecl-960"} <= set(FORECASTS)
    for name in FORECASTS:
        recipe = recipes.RECIPES[name]
        assert tuple(recipe.presets) == ("paper", "cpu")
        for preset in recipe.presets:
            data = recipe.config(preset).data
            assert data.univariate != name.endswith("-multivariate")
            assert str(data.horizon) in name.split("-")
    published = {
        name: recipes.RECIPES[name].published for name in FORECASTS if recipes.RECIPES[name].published
    }
    # Table 9 of the paper.
    assert published == {
        "forecast-etth1-720": {"paper": 0.116},
        "forecast-etth2-720": {"paper": 0.187},
        "forecast-ettm1-672": {"paper": 0.292},
        "forecast-weather-720": {"paper": 0.245},
        "forecast-ecl-960": {"paper": 0.432},
    }


def test_lists_show_one_recipe_of_a_family() -> None:
    shown = [recipe.name for recipe in recipes.representatives()]
    assert [name for name in shown if name in FORECASTS] == [
        "forecast-etth1-720",
        "forecast-etth2-720",
        "forecast-ettm1-672",
        "forecast-weather-720",
        "forecast-ecl-960",
    ]
    assert {*OURS, *PUBLISHED} <= set(shown)


def options_of(config: Any) -> SimpleNamespace:
    """The model's options by their short names."""
    return SimpleNamespace(**{name: option.value for name, option in short_options(config.model).items()})


@pytest.mark.parametrize("name", list(PAPER))
def test_paper_has_the_numbers_of_table_11(name: str) -> None:
    config = recipes.recipe_config(name, "paper")
    model, optim = options_of(config), config.optim
    assert PAPER[name] == (
        model.layers,
        model.features,
        model.norm,
        model.pre_norm,
        model.dropout,
        optim.lr,
        optim.batch_size,
        config.budget.epochs,
        optim.weight_decay,
        optim.patience,
    )


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_paper_is_as_the_text_around_table_11_says(name: str) -> None:
    config = recipes.recipe_config(name, "paper")
    model, optim = options_of(config), config.optim
    assert (model.layer, model.state_size, model.pooling, model.mixing) == ("s4", 64, "mean", "linear")
    assert (model.bidirectional, optim.schedule, optim.decay) == (False, "plateau", 0.2)
    assert (optim.ssm_lr, optim.slow_output, model.per_feature) == (0.001, True, False)


@pytest.mark.parametrize("name", list(MODERN))
def test_modern_has_the_numbers_of_the_updated_results(name: str) -> None:
    config = recipes.recipe_config(name, "modern")
    model, optim = options_of(config), config.optim
    assert MODERN[name] == (
        model.layers,
        model.features,
        model.state_size,
        model.norm,
        model.pre_norm,
        model.dropout,
        model.tied_dropout,
        optim.lr,
        optim.batch_size,
        config.budget.epochs,
        optim.warmup_steps,
        model.min_step_size,
    )


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_modern_is_what_all_updated_results_share(name: str) -> None:
    config = recipes.recipe_config(name, "modern")
    model, optim = options_of(config), config.optim
    assert (model.mixing, model.bidirectional, model.pooling) == ("glu", True, "mean")
    assert (optim.schedule, optim.weight_decay, optim.ssm_lr) == ("cosine", 0.05, 0.001)
    assert model.max_step_size == 0.1
    assert not optim.slow_output
    assert model.per_feature == (name in ("lra-pathfinder", "lra-path-x"))


@pytest.mark.parametrize("name", list(PUBLISHED))
def test_published_accuracies_are_those_of_the_paper(name: str) -> None:
    published = recipes.RECIPES[name].published
    assert (published.get("paper"), published.get("modern")) == PUBLISHED[name]


def test_a_wrong_name_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r"no recipe 'sminst'\. Did you mean smnist\? There are: digits, "):
        recipes.find("sminst")
    with pytest.raises(ValueError, match=r"digits has no preset 'paper'; it has 'cpu'"):
        recipes.recipe_config("digits", "paper")


def test_measured_results_are_read_from_summaries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = recipes.measured(recipes.find("digits"), "cpu")
    assert ours is not None
    assert 0.9 < ours <= 1
    text = recipes.find("lra-text")
    monkeypatch.setattr(recipes, "files", lambda package: tmp_path)
    assert recipes.measured(text, "cpu") is None
    (tmp_path / "measured").mkdir()
    (tmp_path / "measured" / "lra-text.cpu.json").write_text(json.dumps({"test_accuracy": 0.75}))
    assert recipes.measured(text, "cpu") == 0.75


class Random(Split):
    """Eight random examples that fit a description and a task."""

    def __init__(self, description: InputDescription, task: Task) -> None:
        self.description, self.task = description, task

    def __len__(self) -> int:
        return 8

    def batch(self, rows: Any, generator: torch.Generator | None = None) -> Batch:
        description, count = self.description, len(rows)
        draws = np.random.default_rng(rows)
        output = self.task.output
        leading = (count, description.length) if output.per_position else (count,)
        y = torch.from_numpy(draws.integers(0, 256 if output.mixtures else output.size, leading))
        if isinstance(self.task, PositionRegression):
            y = torch.from_numpy(draws.standard_normal((*leading, output.size), dtype=np.float32))
        if description.kind == "values":
            x = draws.standard_normal((count, description.length, description.size), dtype=np.float32)
            return Batch(torch.from_numpy(x), y, None)
        shape = (count, 2) if description.documents == 2 else (count,)
        x = draws.integers(1, description.size, (*shape, description.length))
        lengths = draws.integers(1, description.length + 1, shape)
        return Batch(torch.from_numpy(x), y, torch.from_numpy(lengths))


def fake_data(config: Any) -> SequenceData:
    task: Task = Classification(tuple("0123456789"))
    match config:
        case ListOps():
            description = InputDescription("tokens", 18, 64)
        case IMDB():
            description, task = InputDescription("tokens", 130, 64), Classification(("bad", "good"))
        case Retrieval():
            description = InputDescription("tokens", 97, 64, documents=2)
        case CIFAR10Density() | MNISTDensity():
            description = InputDescription("tokens", 257, 64, image=(8, 8))
            task = NextToken(256) if config.mixtures == 0 else LogisticMixture(mixtures=config.mixtures)
        case WikiText():
            description, task = InputDescription("tokens", 50, 64), NextToken(50, unit=config.level[:-1])
        case ETT() | Weather() | Electricity():
            description = InputDescription("values", 11, 64)
            task = Forecast(tuple("abcdefg"), horizon=24, continues=tuple(range(7)))
        case SpeechCommands(form="mfcc"):
            description = InputDescription("values", 20, 64)
        case CIFAR10(grey=False):
            description = InputDescription("values", 3, 64, image=(8, 8))
        case _:
            description = InputDescription("values", 1, 64, image=(8, 8))
    split = Random(description, task)
    return SequenceData(description, task, split, split, split)


def train_two_steps(config: Any, folder: Path, accelerator: Accelerator, **options: Any) -> dict[str, Any]:
    config = dataclasses.replace(
        config,
        model=with_options(config.model, layers=1, features=4, **options),
        optim=dataclasses.replace(config.optim, batch_size=4),
        budget=BudgetOptions(epochs=1),
    )
    run = RunFolder(folder)
    data = fake_data(config.data)
    run.start("test", config, data.task.metrics)
    trainer = Trainer(config, data, run, Display(Console(quiet=True)), accelerator, math.inf)
    before = {name: value.detach().clone() for name, value in trainer.bare_model.named_parameters()}
    trainer.run()
    assert any(not torch.equal(value, before[name]) for name, value in trainer.bare_model.named_parameters())
    (record,) = run.metrics()
    return record


@pytest.mark.parametrize(("name", "preset"), PRESETS)
def test_every_preset_trains_two_steps(name: str, preset: str, tmp_path: Path) -> None:
    config = recipes.recipe_config(name, preset)  # type: ignore[arg-type]
    record = train_two_steps(config, tmp_path / "run", Accelerator(cpu=True), state_size=4)
    assert record["step"] == 2
    assert math.isfinite(record["train_loss"])
    assert math.isfinite(record["validation_loss"])


@pytest.mark.parametrize(
    "layer", [{"layer": "lstm"}, {"layer": "transformer", "heads": 2}], ids=["lstm", "transformer"]
)
@pytest.mark.parametrize("name", SWEPT)
def test_every_recipe_trains_other_layers(name: str, layer: dict[str, Any], tmp_path: Path) -> None:
    record = train_two_steps(recipes.recipe_config(name), tmp_path / "run", Accelerator(cpu=True), **layer)
    assert math.isfinite(record["validation_loss"])
