"""A sequence's convolution does not depend on which sequences stand beside it in the batch."""

import math

import pytest
import torch
from oracle import normal

from torchs4 import S4, ops

# Relative to a sequence's own largest number: a transform rounds about ten times in a row.
TOLERANCE = 1e-5
LENGTH = 100
# One whole vector of features and one that is not full.
FEATURES = 11


def kernels(both_ways):
    kernel, backward = (normal(1, FEATURES, LENGTH, seed=seed).float() / LENGTH for seed in (2, 3))
    return [kernel, backward if both_ways else None]


def convolve(u, grad, given):
    u = u.clone().requires_grad_()
    given = [None if k is None else k.clone().requires_grad_() for k in given]
    y = ops.long_convolution(u, *given)[:, :, 0]
    y.backward(grad)
    return y.detach(), u.grad, [k.grad for k in given if k is not None]


def assert_rows_close(received, expected):
    for row, alone in zip(received, expected, strict=True):
        sizes = alone.abs().amax(0)
        assert ((row - alone).abs() <= TOLERANCE * sizes).all()


def sized(sizes, seed):
    factors = torch.tensor(sizes).view(-1, 1, 1)
    return normal(len(sizes), LENGTH, FEATURES, seed=seed).float() * factors


@pytest.mark.parametrize("both_ways", [False, True])
@pytest.mark.parametrize("sizes", [(1e5, 1.0), (1.0, 1e7, 1e-7), (1e-30, 1e30, 1.0, 1e-30, 0.0), (0.0, 1e30)])
def test_sizes_of_neighbours_do_not_matter(sizes, both_ways):
    given = kernels(both_ways)
    u, grad = sized(sizes, 1), sized(sizes[::-1], 4)
    y, u_grad, kernel_grads = convolve(u, grad, given)
    rows = [convolve(u[b : b + 1], grad[b : b + 1], given) for b in range(len(sizes))]
    assert_rows_close(y, [row[0][0] for row in rows])
    assert_rows_close(u_grad, [row[1][0] for row in rows])
    # The kernel's gradient is a sum over the rows: exact relative to the largest of them.
    for received, *parts in zip(kernel_grads, *[row[2] for row in rows], strict=True):
        parts = torch.stack(parts).double()
        largest = parts.abs().amax((0, -1), keepdim=True)[0]
        assert ((received - parts.sum(0)).abs() <= TOLERANCE * largest).all()


@pytest.mark.parametrize("sizes", [(1e5, 1.0), (1e-30, 1e30, 1.0), (1.0, 0.0, 1e30)])
def test_rows_equal_the_reference_in_double_precision(sizes):
    kernel, backward = kernels(True)
    u, grad = sized(sizes, 1), sized(sizes[::-1], 4)
    y, u_grad, _ = convolve(u, grad, [kernel, backward])
    exact, exact_grad, _ = convolve(u.double(), grad.double(), [kernel.double(), backward.double()])
    assert_rows_close(y, exact)
    assert_rows_close(u_grad, exact_grad)


def test_features_of_other_sizes_in_one_sequence_do_not_matter():
    u = sized((1.0, 1.0), 1) * torch.logspace(-30, 30, FEATURES)
    u[1] = u[1].flip(-1)
    kernel, _ = kernels(False)
    y = ops.long_convolution(u, kernel)[:, :, 0]
    assert_rows_close(y, [ops.long_convolution(row[None], kernel)[0, :, 0] for row in u])


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("feature", [0, FEATURES - 1])
def test_a_bad_number_stays_in_its_sequence(bad, place, feature):
    u, grad = sized((1.0,) * 5, 1), sized((1.0,) * 5, 4)
    given = kernels(True)
    clean, clean_grad, _ = convolve(u, grad, given)
    others = [b for b in range(5) if b != place]
    u[place, 17, feature] = bad
    y, _, _ = convolve(u, grad, given)
    assert_rows_close(y[others], clean[others])
    assert not y[place, :, feature].isfinite().any()
    grad[place, 3, feature] = bad
    _, u_grad, _ = convolve(u, grad, given)
    assert_rows_close(u_grad[others], clean_grad[others])
    assert not u_grad[place, :, feature].isfinite().any()


@pytest.mark.parametrize("size", [1e-44, 1e-38, 2e38])
def test_numbers_at_the_border_of_single_precision_survive(size):
    u, (kernel, _) = sized((1.0, 1.0, 1.0), 1).clamp(-1, 1), kernels(False)
    u[1] *= size
    y = ops.long_convolution(u, kernel)[:, :, 0]
    exact = ops.long_convolution(u.double(), kernel.double())[:, :, 0]
    assert y.isfinite().all()
    # Numbers below 1e-38 come in steps of 1e-45.
    assert ((y - exact).abs() <= TOLERANCE * exact.abs().amax(1, keepdim=True) + 2e-45).all()


def test_a_layer_gives_each_sequence_what_it_gets_alone():
    torch.manual_seed(0)
    layer, x = S4(8, state_size=16), torch.randn(2, 200, 8)
    x[0] *= 1e7
    with torch.no_grad():
        y, alone = layer(x), layer(x[1:])
    torch.testing.assert_close(y[1:], alone, rtol=1e-5, atol=1e-5)
    x[0, 5] = math.nan
    with torch.no_grad():
        torch.testing.assert_close(layer(x)[1:], alone, rtol=1e-5, atol=1e-5)
