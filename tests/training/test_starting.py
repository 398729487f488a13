"""A forecaster begins at the closed form of its linear map."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from torchs4.data import GivenData
from torchs4.data.series import Columns, Part, Windows, forecasting_data
from torchs4.data.series_table import Series
from torchs4.models import ForecastModel, ForecastModelConfig, SequenceModelConfig, build_model
from torchs4.models.simple_forecasts import SeasonalForecast
from torchs4.tasks import QuantileForecast
from torchs4.training.config import BudgetOptions, OptimizerOptions, TrainingConfig
from torchs4.training.evaluation import evaluate
from torchs4.training.loop import TrainingInterrupted
from torchs4.training.run_folder import RunFolder
from torchs4.training.session import run
from torchs4.training.starting import start_from

WINDOWS = Windows(24, 6)


def waves(columns: int = 2):
    rows = np.arange(400)[:, None]
    phase = np.arange(columns)
    values = (10.0**phase * np.sin(2 * np.pi * rows / 24 + phase)).astype(np.float32)
    names = tuple("abc"[:columns])
    parts = [[Part(0, 250)], [Part(250, 320)], [Part(320, 400)]]
    return forecasting_data(Series(values, names, None), parts, WINDOWS, Columns(names, names))


def started(data, **options):
    torch.manual_seed(0)
    config = ForecastModelConfig(features=4, num_layers=1, **options)
    model = build_model(config, data.input, data.task.output)
    start_from(model, data)
    return model


def error(model, data):
    return evaluate(model, data.test, data.task, 64, accelerator=Accelerator(cpu=True)).metrics["mse"]


def test_waves_are_forecast_before_the_first_step():
    data = waves()
    for options in ({}, {"apart": True, "patch": 4}):
        model = started(data, **options)
        assert error(model, data) < 0.01 * error(SeasonalForecast(6, (0, 1)), data)


def test_quantiles_begin_at_the_same_place():
    data = waves()
    task = QuantileForecast(
        data.task.columns, data.task.scaling, horizon=6, continues=(0, 1), levels=(0.1, 0.5, 0.9)
    )
    config = ForecastModelConfig(features=4, num_layers=1)
    model = build_model(config, data.input, task.output)
    start_from(model, data)
    x = data.test.batch(np.arange(5)).x
    expected = started(data)(x).repeat_interleave(3, dim=-1)
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-4)


def test_other_levels_and_other_models_begin_as_they_are():
    data = waves()
    for options in ({"level": "mean"}, {"rescale": True}):
        model = started(data, **options)
        assert isinstance(model, ForecastModel)
        assert not model.linear.weight.any()
    assert started(data, linear=False).linear is None
    plain = build_model(SequenceModelConfig(features=4, num_layers=1), data.input, data.task.output)
    before = [weight.clone() for weight in plain.parameters()]
    start_from(plain, data)
    assert all(torch.equal(old, new) for old, new in zip(before, plain.parameters(), strict=True))


def test_quantiles_keep_their_order_upside_down():
    data = waves(1)
    task = QuantileForecast(("a",), horizon=6, continues=(0,), levels=(0.1, 0.5, 0.9))
    config = ForecastModelConfig(features=4, num_layers=1, flip=True, linear=False)
    model = build_model(config, data.input, task.output).train()
    torch.nn.init.zeros_(model.network.head.weight)
    model.network.head.bias.data = torch.tensor([-1.0, 0.0, 1.0])
    y = model(data.train.batch(np.arange(32)).x)[:, -6:]
    assert (y.diff(dim=-1) > 0).all()


def test_windows_are_turned_over_in_training_alone():
    data = waves(1)
    model = started(data, flip=True)
    for weight in model.network.head.parameters():
        torch.nn.init.normal_(weight)
    x = data.train.batch(np.arange(64)).x
    assert torch.equal(model.eval()(x), model(x))
    torch.manual_seed(1)
    once, again = model.train()(x), model(x)
    differs = (once != again).flatten(1).any(1)
    # Each of two draws turns a window over or not: half of them differ.
    assert 10 < int(differs.sum()) < 54


def test_an_interrupted_forecaster_goes_on_as_if_nothing_had_happened(tmp_path):
    data = waves()
    config = TrainingConfig(
        data=GivenData("waves"),
        model=ForecastModelConfig(features=4, num_layers=1, flip=True, patch=4),
        optim=OptimizerOptions(batch_size=16, average=0.9),
        budget=BudgetOptions(epochs=2, evaluate_every=5),
    )
    whole = run(RunFolder(tmp_path / "whole"), config, data=data, quiet=True)
    folder = RunFolder(tmp_path / "parts")
    with pytest.raises(TrainingInterrupted):
        # It is over at once: every step is the last one before a checkpoint.
        run(folder, config, data=data, quiet=True, stop_at=0.0)
    parts = run(folder, config, data=data, quiet=True, resume=True)
    for name in ("best_validation_mse", "test_mse", "steps"):
        assert parts.summary[name] == whole.summary[name]
    expected = whole.model.state_dict()
    assert all(torch.equal(weight, expected[name]) for name, weight in parts.model.state_dict().items())
