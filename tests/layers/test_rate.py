"""Sampling-rate change: the same continuous system, read at other times."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from torchs4 import LSSL, S4, S4D, BlockStack, S4Block, S4BlockConfig, S4Config, S4DConfig, SequenceModel

# Seconds between samples at rate 1; the signals below are smooth at this scale.
PERIOD = 0.01
# A discrete system takes its input to be constant between samples: an error of first order, about half a
# period times the signal's slope. With slopes up to 4π per second that is a few hundredths at 0.01 s.
DISCRETIZATION_TOLERANCE = 0.03
# What a layer that ignores the rate is off by at least: ten times the tolerance for most, 0.29 for the least.
IGNORED_RATE_ERROR = 0.2

STEPS = {"state_size": 8, "min_step_size": PERIOD, "max_step_size": PERIOD}
LAYERS = {
    "s4-legs": lambda **steps: S4(3, **steps),
    "s4-legt": lambda **steps: S4(3, start="legt", **steps),
    "s4d-zoh": lambda **steps: S4D(3, discretization="zoh", **steps),
    "s4d-bilinear": lambda **steps: S4D(3, discretization="bilinear", **steps),
    "lssl-bilinear": lambda **steps: LSSL(3, discretization="bilinear", **steps),
    "lssl-zoh": lambda **steps: LSSL(3, discretization="zoh", **steps),
}
every_layer = pytest.mark.parametrize("kind", list(LAYERS))


def build(kind: str, period: float = PERIOD) -> Any:
    torch.manual_seed(0)
    steps = {**STEPS, "min_step_size": period, "max_step_size": period}
    return LAYERS[kind](**steps).double()


def smooth_signal(samples: int, period: float) -> torch.Tensor:
    """Two seconds or so of three smooth curves, sampled at the end of every period."""
    t = period * torch.arange(1, samples + 1, dtype=torch.float64)
    curves = [torch.sin(2 * math.pi * t), torch.sin(2 * math.pi * t) ** 2, t * torch.exp(-t)]
    return torch.stack(curves, dim=-1)[None]


def relative_error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    return ((actual - expected).abs().max() / expected.abs().max()).item()


def error_at_shared_times(module: Any, period: float, rate: float) -> float:
    samples = round(2 / period)
    sparse = module(smooth_signal(samples, period))
    dense = module(smooth_signal(2 * samples, period / 2), rate=rate)
    return relative_error(dense[:, 1::2], sparse)


@every_layer
def test_twice_the_samples_at_half_the_rate_give_the_same_output(kind: str) -> None:
    layer = build(kind)
    assert error_at_shared_times(layer, PERIOD, rate=0.5) < DISCRETIZATION_TOLERANCE
    assert error_at_shared_times(layer, PERIOD, rate=1.0) > IGNORED_RATE_ERROR


@every_layer
def test_the_difference_between_rates_is_the_discretization_error(kind: str) -> None:
    coarse = error_at_shared_times(build(kind, PERIOD), PERIOD, rate=0.5)
    fine = error_at_shared_times(build(kind, PERIOD / 2), PERIOD / 2, rate=0.5)
    # First order: half the period, half the error, up to terms of higher order.
    assert 1.5 < coarse / fine < 2.5


@pytest.mark.parametrize("level", ["block", "stack", "model"])
def test_rates_reach_every_layer_of_a_network(level: str) -> None:
    torch.manual_seed(0)
    block = S4BlockConfig(layer=S4Config(**STEPS), norm="batch")
    modules = {
        "block": lambda: S4Block(3, block),
        "stack": lambda: BlockStack(3, 2, block),
        "model": lambda: SequenceModel(
            input_features=3, features=6, num_layers=2, block=block, pooling="none"
        ),
    }
    module = modules[level]().double().eval()
    # Two layers, one after the other, double the error of one.
    assert error_at_shared_times(module, PERIOD, rate=0.5) < 2 * DISCRETIZATION_TOLERANCE
    ignored = error_at_shared_times(module, PERIOD, rate=1.0)
    assert ignored > 2 * DISCRETIZATION_TOLERANCE


@every_layer
@pytest.mark.parametrize("rate", [0.5, 2.0, 1.7])
def test_a_rate_multiplies_every_step_size(kind: str, rate: float) -> None:
    layer, scaled = build(kind), build(kind)
    with torch.no_grad():
        scaled.log_step_size += math.log(rate)
    x = smooth_signal(90, PERIOD)
    # Rounding of a logarithm in float64.
    torch.testing.assert_close(layer(x, rate=rate), scaled(x), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(layer.prefill(x, rate=rate)[0], scaled.prefill(x)[0], rtol=1e-10, atol=1e-10)
    state = layer.prefill(x)[1]
    for ours, theirs in zip(layer.step(x[:, 0], state, rate=rate), scaled.step(x[:, 0], state), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)


@every_layer
def test_gradients_flow_at_any_rate(kind: str) -> None:
    layer = build(kind)
    x = smooth_signal(20, PERIOD)
    layer(x, rate=0.5).square().sum().backward()
    through_forward = layer.log_step_size.grad.clone()
    layer.zero_grad()
    layer.prefill(x, rate=0.5)[0].square().sum().backward()
    # The same sums by convolution and by recurrence, in float64.
    torch.testing.assert_close(layer.log_step_size.grad, through_forward, rtol=1e-8, atol=1e-10)


def test_a_rate_may_change_within_a_stream() -> None:
    torch.manual_seed(0)
    layer = S4D(3, S4DConfig(**STEPS)).double()
    x = smooth_signal(30, PERIOD)
    with torch.no_grad():
        _, state = layer.prefill(x[:, :10])
        chunk, end = layer.prefill(x[:, 10:20], state, rate=0.5)
        for position in range(10, 20):
            y_t, state = layer.step(x[:, position], state, rate=0.5)
            torch.testing.assert_close(y_t, chunk[:, position - 10], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(state, end, rtol=1e-10, atol=1e-10)
