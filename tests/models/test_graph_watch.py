"""Streaming with gradients on is warned of once, and only where it keeps a graph."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from torchs4 import S4BlockConfig, S4Config, SequenceModel
from torchs4.models import graph_watch

STEPS = 20


def step_through(model: SequenceModel, detach_every: int = 0) -> list[Any]:
    state, x_t = model.initial_state(2), torch.zeros(2, 1)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        for number in range(3 * STEPS):
            _, state = model.step(x_t, state)
            if detach_every and number % detach_every == 0:
                state = {key: _detached(value) for key, value in state.items()}
    return heard


def _detached(value: Any) -> Any:
    return value.detach() if isinstance(value, torch.Tensor) else tuple(map(_detached, value))


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> SequenceModel:
    monkeypatch.setattr(graph_watch, "MANY_STEPS", STEPS)
    return SequenceModel(
        features=4, num_layers=2, block=S4BlockConfig(layer=S4Config(state_size=4), norm="batch")
    ).eval()


def test_a_long_graph_is_warned_of_once(model: SequenceModel) -> None:
    (warning,) = step_through(model)
    assert "carried the graph of 20 steps" in str(warning.message)
    assert "inference_mode" in str(warning.message)
    # The line that steps, not one of the library.
    assert warning.filename == __file__


def test_predicting_and_training_with_detached_states_are_not_warned_of(model: SequenceModel) -> None:
    assert not step_through(model, detach_every=STEPS // 2)
    with torch.no_grad():
        assert not step_through(model)
    with torch.inference_mode():
        assert not step_through(model)
    model.requires_grad_(False)
    assert not step_through(model)
