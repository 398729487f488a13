"""Mixtures of rounded logistics: probabilities add up to 1, everywhere, and have gradients there."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp
from scipy.stats import logistic

from torchs4.description import Batch
from torchs4.tasks import LogisticMixture
from torchs4.tasks.logistic_mixture import log_probabilities, log_probability

MIXTURES = 4
# A float32 carries 6e-8; 256 of them are added up.
SUM_TOLERANCE = 1e-4

numbers = st.floats(-30, 30, width=32)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(prediction=st.lists(numbers, min_size=3 * MIXTURES, max_size=3 * MIXTURES))
def test_probabilities_of_all_values_add_up_to_1(prediction: list[float]) -> None:
    found = log_probabilities(torch.tensor(prediction))
    assert found.shape == (256,)
    assert not found.isnan().any()
    assert float(found.exp().sum()) == pytest.approx(1, abs=SUM_TOLERANCE)


def test_they_are_differences_of_the_distribution_function() -> None:
    torch.manual_seed(0)
    prediction = torch.randn(5, 3 * MIXTURES, dtype=torch.float64)
    weights, middles, log_scales = (part.numpy() for part in prediction.chunk(3, -1))
    middles = middles + np.linspace(-1, 1, MIXTURES + 2)[1:-1]
    edges = (np.arange(257) - 128) / 127.5
    edges[0], edges[-1] = -np.inf, np.inf
    scales = np.exp(log_scales - 1.5)
    below = logistic.cdf(edges[:, None, None], middles, scales)
    weights = np.exp(weights - logsumexp(weights, axis=-1, keepdims=True))
    expected = (np.diff(below, axis=0) * weights).sum(-1).T
    np.testing.assert_allclose(log_probabilities(prediction).exp(), expected, rtol=1e-9, atol=1e-14)


def test_one_value_gets_what_it_gets_among_all_and_gradients_are_right() -> None:
    torch.manual_seed(0)
    prediction = torch.randn(2, 4, 3 * MIXTURES, dtype=torch.float64, requires_grad=True)
    values = torch.tensor([[0, 255, 7, 128], [1, 254, 0, 255]])
    picked = log_probabilities(prediction).gather(-1, values[..., None])[..., 0]
    torch.testing.assert_close(log_probability(prediction, values), picked)
    assert torch.autograd.gradcheck(lambda given: log_probability(given, values), prediction)


@pytest.mark.parametrize("scale", [0.0, 1.0, 30.0, 300.0])
def test_gradients_are_finite_however_wrong_a_prediction_is(scale: float) -> None:
    prediction = (scale * torch.randn(64, 3 * MIXTURES)).requires_grad_()
    log_probability(prediction, torch.arange(0, 256, 4)).sum().backward()
    assert prediction.grad is not None
    assert prediction.grad.isfinite().all()


def test_the_task_counts_what_is_asked() -> None:
    task = LogisticMixture(mixtures=MIXTURES)
    assert (task.output.size, task.output.mixtures, task.output.causal) == (12, MIXTURES, True)
    assert task.metrics[0].title == "bits per dimension"
    prediction, y = torch.randn(2, 3, 12), torch.tensor([[1, 2, 3], [4, 5, 6]])
    batch = Batch(torch.zeros(2, 3, dtype=torch.int64), y, torch.tensor([3, 1]))
    expected = log_probability(prediction, y)
    assert task.count(batch) == 4
    assert float(task.sums(prediction, batch)) == pytest.approx(-float(expected[0].sum() + expected[1, 0]))
    assert task.scores([math.log(2)])["bits"] == pytest.approx(1)
