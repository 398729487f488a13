"""The LSTM layer: PyTorch's own, with sequences that padding does not change."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch
from torch import nn

from torchs4 import LSTM, LSTMConfig

# The same sums in another order.
FLOAT64_TOLERANCE = 1e-12


def refuses(*pieces: str) -> Any:
    """A ValueError whose text has these pieces in this order."""
    return pytest.raises(ValueError, match="(?s)" + ".*".join(map(re.escape, pieces)))


def build(**options: Any) -> LSTM:
    torch.manual_seed(0)
    return LSTM(3, **options).double()


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=FLOAT64_TOLERANCE)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_it_is_pytorchs_lstm(bidirectional: bool) -> None:
    layer = build(hidden_size=5, bidirectional=bidirectional)
    theirs = nn.LSTM(3, 5, batch_first=True, bidirectional=bidirectional).double()
    theirs.load_state_dict(layer.lstm.state_dict())
    x = torch.randn(2, 9, 3, dtype=torch.float64)
    assert_close(layer(x), theirs(x)[0])


@pytest.mark.parametrize(("hidden_size", "width"), [(None, 3), (5, 5)])
def test_it_is_as_wide_as_asked_for_or_as_its_input(hidden_size: int | None, width: int) -> None:
    x = torch.randn(2, 9, 3, dtype=torch.float64)
    for directions in (1, 2):
        layer = build(hidden_size=hidden_size, bidirectional=directions == 2)
        assert layer.output_features == layer(x).shape[2] == directions * width


@pytest.mark.parametrize("bidirectional", [False, True])
def test_holes_are_left_out(bidirectional: bool) -> None:
    layer = build(bidirectional=bidirectional)
    x = torch.randn(2, 9, 3, dtype=torch.float64)
    mask = torch.tensor([[0, 1, 1, 0, 0, 1, 1, 1, 0], [1, 0, 1, 0, 1, 0, 1, 0, 1]], dtype=torch.bool)
    y = layer(x, mask=mask)
    for row in range(2):
        assert_close(y[row, mask[row]], layer(x[row, mask[row]][None])[0])


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_sequence_of_padding_alone_does_no_harm(bidirectional: bool) -> None:
    layer = build(bidirectional=bidirectional)
    x = torch.randn(2, 9, 3, dtype=torch.float64)
    mask = torch.tensor([[True], [False]]).expand(2, 9)
    y = layer(x, mask=mask)
    assert y.isfinite().all()
    assert_close(y[:1], layer(x[:1]))


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("filling", [math.nan, math.inf])
def test_what_padding_holds_reaches_no_output_and_no_gradient(filling: float, bidirectional: bool) -> None:
    layer = build(bidirectional=bidirectional)
    x = torch.randn(2, 9, 3, dtype=torch.float64)
    x[1, 4:] = filling
    x.requires_grad_()
    y = layer(x, lengths=[9, 4])
    y.square().sum().backward()
    assert y.isfinite().all()
    for leaf in (x, *layer.parameters()):
        assert leaf.grad.isfinite().all()


def test_the_rate_changes_nothing() -> None:
    layer, x = build(), torch.randn(2, 9, 3, dtype=torch.float64)
    assert torch.equal(layer(x, rate=2.0), layer(x))
    with refuses("rate is 0"):
        layer(x, rate=0)


def test_its_state_has_constant_size_and_the_batch_first() -> None:
    layer, x = build(hidden_size=5), torch.randn(4, 9, 3, dtype=torch.float64)
    _, early = layer.prefill(x)
    _, late = layer.step(x[:, 0], layer.prefill(x, early)[1])
    for state in (layer.initial_state(4), early, late):
        assert [tuple(part.shape) for part in state] == [(4, 5), (4, 5)]


def test_a_foreign_state_is_refused() -> None:
    layer, x_t = build(hidden_size=5), torch.randn(4, 3, dtype=torch.float64)
    with refuses("state is NoneType", "two tensors", "initial_state(batch_size=4)"):
        layer.step(x_t, None)
    with refuses("(3, 5)", "expected a tensor of shape (4, 5)"):
        layer.step(x_t, layer.initial_state(3))
    with refuses("torch.float32", "torch.float64"):
        layer.step(x_t, build(hidden_size=5).float().initial_state(4))


@pytest.mark.parametrize("hidden_size", [0, 2.0, True])
def test_a_hidden_size_is_a_positive_whole_number(hidden_size: Any) -> None:
    with refuses(f"hidden_size is {hidden_size}"):
        LSTMConfig(hidden_size=hidden_size)
