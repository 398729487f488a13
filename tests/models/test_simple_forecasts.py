"""Forecasts that hardly need training."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from torchs4.description import Batch
from torchs4.models.simple_forecasts import LinearForecast, SeasonalForecast, fit_linear

HISTORY, HORIZON = 12, 5


def batch(seed: int = 0, count: int = 200) -> Batch:
    """Two columns that follow the same linear rule, in different units, and a third that is only read."""
    draws = np.random.default_rng(seed)
    past = draws.normal(size=(count, HISTORY, 2))
    rule = np.random.default_rng(9).normal(size=(HISTORY, HORIZON))
    last = past[:, -1:]
    ahead = last + np.einsum("btc,th->bhc", past - last, rule)
    whole = np.concatenate([past, ahead], axis=1) * [1.0, 50.0]
    other = draws.normal(size=(count, HISTORY + HORIZON, 1))
    y = torch.tensor(whole, dtype=torch.float32)
    return Batch(torch.tensor(np.concatenate([other, whole], axis=2), dtype=torch.float32), y)


def test_last_value_and_season_are_repeated() -> None:
    x = torch.arange(10.0).reshape(1, 10, 1)
    assert SeasonalForecast(4, [0])(x)[0, -4:, 0].tolist() == [5.0] * 4
    assert SeasonalForecast(4, [0], season=3)(x)[0, -4:, 0].tolist() == [3.0, 4.0, 5.0, 3.0]
    with pytest.raises(ValueError, match="holds no season of 7"):
        SeasonalForecast(4, [0], season=7)(x)


def test_least_squares_find_a_linear_rule() -> None:
    def error(candidate: LinearForecast) -> float:
        held = batch(1)
        return float((candidate(held.x)[:, -HORIZON:] - held.y[:, -HORIZON:]).square().mean())

    # In two halves: sums add up.
    halves = [batch(0).map(lambda tensor, part=part: tensor[part]) for part in (slice(100), slice(100, None))]
    linear, penalty = fit_linear(halves, error, HORIZON, (1, 2), (1.0, 50.0))
    assert penalty == 0.1
    rule = torch.tensor(np.random.default_rng(9).normal(size=(HISTORY, HORIZON)), dtype=torch.float32)
    # The last value differs from itself by nothing, so nothing is known of its row.
    torch.testing.assert_close(linear.weight[:-1], rule[:-1], rtol=0, atol=0.01)
    assert error(linear) < 0.01 * error(LinearForecast(torch.zeros(HISTORY, HORIZON), (1, 2)))


def test_the_penalty_is_the_one_that_validates_best() -> None:
    wanted = 1000.0
    sizes = {}

    def error(candidate: LinearForecast) -> float:
        sizes[len(sizes)] = float(candidate.weight.square().sum())
        return abs(len(sizes) - 1 - [0.1, 1.0, 1000.0].index(wanted))

    _, penalty = fit_linear([batch()], error, HORIZON, (1, 2), (1.0, 50.0), (0.1, 1.0, 1000.0))
    assert penalty == wanted
    assert sizes[0] > sizes[1] > sizes[2]
    with pytest.raises(ValueError, match="no training windows"):
        fit_linear([], error, HORIZON, (1, 2), (1.0, 50.0))
