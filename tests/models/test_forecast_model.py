"""Forecasts: what a window's level does to them, and which numbers they may depend on."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from torchs4.description import InputDescription, Scaling
from torchs4.layers import S4BlockConfig, S4Config
from torchs4.models import ForecastModel, ForecastModelConfig, SequenceModelConfig, build_model, load_model
from torchs4.tasks import Classification, Forecast, QuantileForecast

HISTORY, HORIZON = 10, 5


def small(**options: Any) -> ForecastModel:
    torch.manual_seed(0)
    config = {
        "features": 8,
        "num_layers": 1,
        "block": S4BlockConfig(layer=S4Config(state_size=4)),
        "history": HISTORY,
        "horizon": HORIZON,
        "input_features": 3,
        "output_size": 2,
        "continues": (0, 1),
        **options,
    }
    model = ForecastModel(ForecastModelConfig(**config))
    # As after some training: both parts begin at nothing.
    for name, weight in model.named_parameters():
        if name.endswith(("head.weight", "linear.weight")):
            nn.init.normal_(weight, std=0.1)
    return model.eval()


def window(batch: int = 4, features: int = 3) -> torch.Tensor:
    return torch.randn(batch, HISTORY + HORIZON, features, generator=torch.Generator().manual_seed(1))


CASES: dict[str, dict[str, Any]] = {
    "usual": {},
    "apart": {"apart": True},
    "patches": {"patch": 4},
    "apart in patches": {"apart": True, "patch": 3},
    "rescaled": {"rescale": True, "level": "mean"},
    "network alone": {"linear": False, "level": "none"},
    "quantiles": {"output_size": 6, "continues": (0, 0, 0, 1, 1, 1), "patch": 2, "apart": True},
    "scaled": {
        "input_scaling": Scaling((5.0, 2.0, 0.0), (2.0, 3.0, 1.0)),
        "output_scaling": Scaling((5.0, 2.0), (2.0, 3.0)),
    },
}
every_case = pytest.mark.parametrize("options", CASES.values(), ids=CASES)


@every_case
def test_a_forecast_has_a_row_for_each_position_and_gradients(options: dict[str, Any]) -> None:
    model = small(**options)
    y = model(window())
    assert y.shape == (4, HISTORY + HORIZON, model.config.output_size)
    y[:, -HORIZON:].square().sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name


@every_case
def test_nothing_that_is_predicted_is_looked_at(options: dict[str, Any]) -> None:
    model, x = small(**options), window()
    changed = x.clone()
    changed[:, HISTORY:, :2] = 1e3
    torch.testing.assert_close(model(changed), model(x), rtol=0, atol=0)


@every_case
def test_what_is_known_ahead_is_looked_at(options: dict[str, Any]) -> None:
    model, x = small(**options), window()
    changed = x.clone()
    changed[:, HISTORY:, 2] += 1
    assert not torch.allclose(model(changed)[:, HISTORY:], model(x)[:, HISTORY:], atol=1e-4)


@every_case
def test_a_window_is_forecast_as_it_is_alone(options: dict[str, Any]) -> None:
    model, x = small(**options), window()
    torch.testing.assert_close(model(x)[1:2], model(x[1:2]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("level", ["last", "mean"])
def test_linear_part_moves_with_the_level(level: str) -> None:
    model, x = small(level=level), window()
    with torch.no_grad():
        for weight in model.network.head.parameters():
            weight.zero_()
    torch.testing.assert_close(model(x + 7)[:, HISTORY:], model(x)[:, HISTORY:] + 7)


def test_a_new_model_forecasts_the_level() -> None:
    config = ForecastModelConfig(features=4, num_layers=1, history=HISTORY, horizon=HORIZON)
    x = window(features=1)
    y = ForecastModel(config)(x)[:, HISTORY:]
    torch.testing.assert_close(y, x[:, HISTORY - 1 : HISTORY].expand_as(y))


def test_columns_read_apart_do_not_know_of_one_another() -> None:
    model, x = small(apart=True), window()
    changed = x.clone()
    changed[:, :HISTORY, 1] += torch.randn(HISTORY)
    torch.testing.assert_close(model(changed)[..., 0], model(x)[..., 0])
    assert not torch.allclose(model(changed)[:, HISTORY:, 1], model(x)[:, HISTORY:, 1], atol=1e-3)


@every_case
def test_saving_keeps_the_forecasts(options: dict[str, Any], tmp_path: Any) -> None:
    model, x = small(**options), window()
    model.save_pretrained(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert isinstance(loaded, ForecastModel)
    torch.testing.assert_close(loaded(x), model(x), rtol=0, atol=0)


def test_data_decide_both_ends() -> None:
    given = InputDescription("values", 3, HISTORY + HORIZON)
    task = QuantileForecast(("a", "b"), horizon=HORIZON, continues=(0, 2), levels=(0.1, 0.5, 0.9))
    model = build_model(ForecastModelConfig(features=8, num_layers=1), given, task.output)
    assert isinstance(model, ForecastModel)
    assert (model.config.history, model.config.horizon) == (HISTORY, HORIZON)
    assert model.config.continues == (0, 0, 0, 2, 2, 2)
    # Both columns begin at their own last values.
    x = window()
    expected = x[:, HISTORY - 1, [0, 0, 0, 2, 2, 2]][:, None].expand(-1, HORIZON, -1)
    torch.testing.assert_close(model(x)[:, HISTORY:], expected)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (Classification(("a", "b")).output, "ask for something else. Choose SequenceModelConfig"),
        (Forecast(("a",), horizon=3).output, "not all that are predicted are read"),
    ],
)
def test_other_questions_are_refused(asked: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        build_model(ForecastModelConfig(), InputDescription("values", 1, 15), asked)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"level": "first"}, "level is 'first'; choose one of 'last', 'mean', 'none'"),
        ({"patch": 0}, "patch is 0"),
        ({"continues": (3,)}, r"continues is \(3,\); expected columns of the 1"),
        ({"continues": (0, 0, 1), "input_features": 2}, "each equally often"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ForecastModelConfig(**options)


def test_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a history of 10 and a horizon of 5"):
        small()(window()[:, 1:])


def test_sequence_models_still_forecast() -> None:
    given = InputDescription("values", 1, 15)
    model = build_model(
        SequenceModelConfig(features=4, num_layers=1), given, Forecast(("a",), horizon=5).output
    )
    assert model(torch.randn(2, 15, 1)).shape == (2, 15, 1)
