import pytest
import torch
from oracle import normal
from torch import nn
from torch.autograd import gradcheck

from torchs4 import ops
from torchs4.ops import cpu, reference

EPSILON = 1e-5
# Of numbers near one: sums of up to a thousand.
TOLERANCE = {torch.float32: 3e-6, torch.float64: 1e-13}


def make_inputs(batch, length, features, dtype=torch.float64, mean=3.0):
    x = (mean + 2 * normal(batch, length, features, seed=1)).to(dtype)
    lengths = torch.linspace(length, max(1, length // 3), batch).round()
    mask = torch.arange(length) < lengths[:, None]
    return x, mask, (1 + 0.3 * normal(features, seed=2)).to(dtype), normal(features, seed=3).to(dtype)


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("features", [1, 3, 8, 17, 64])
@pytest.mark.parametrize(("batch", "length"), [(2, 1), (1, 3), (3, 63), (5, 200)])
def test_norms_and_their_gradients_match_the_plain_ones(batch, length, features, dtype):
    x, mask, weight, bias = make_inputs(batch, length, features, dtype)
    grad = normal(*x.shape, seed=4).to(dtype)
    exact = [t.double() for t in (x, weight, bias, grad)]
    actual = cpu.masked_batch_norm(x, mask, weight, bias, EPSILON)
    expected = reference.masked_batch_norm(exact[0], mask, *exact[1:3], EPSILON)
    backward = cpu.masked_batch_norm_backward(grad, x, mask, weight, *actual[1:], EPSILON)
    expected_backward = reference.masked_batch_norm_backward(
        exact[3], exact[0], mask, exact[1], *expected[1:], EPSILON
    )
    for a, b in zip([*actual, *backward], [*expected, *expected_backward], strict=True):
        assert a.dtype == dtype
        assert a.shape == b.shape
        # The smallest variance divides the rounding of the inputs.
        smallest = (expected[2].min() + EPSILON).clamp(max=1)
        assert (a - b).abs().max() <= TOLERANCE[dtype] / smallest * (1 + b.abs().max())


def test_plain_norms_are_those_of_pytorch():
    x, mask, weight, bias = make_inputs(3, 20, 5)
    norm = nn.BatchNorm1d(5).double()
    norm.load_state_dict({"weight": weight, "bias": bias}, strict=False)
    y, mean, variance = reference.masked_batch_norm(x, mask, weight, bias, norm.eps)
    torch.testing.assert_close(y[mask], norm(x[mask]))
    assert (y[~mask] == 0).all()
    torch.testing.assert_close(mean, x[mask].mean(0))
    torch.testing.assert_close(variance, x[mask].var(0, correction=0))


@pytest.mark.usefixtures("implementation")
def test_a_large_mean_does_not_drown_the_variance():
    x, mask, weight, bias = make_inputs(4, 500, 8, torch.float32, mean=3000.0)
    y = ops.masked_batch_norm(x, mask, weight, bias, EPSILON)[0]
    exact = reference.masked_batch_norm(x.double(), mask, weight.double(), bias.double(), EPSILON)[0]
    # The scaled input and the shift, 1500 standard deviations each, are rounded before they meet.
    assert (y - exact).abs().max() < 1e-3


@pytest.mark.parametrize("implementation", ["cpu", "portable", "reference"], indirect=True)
def test_norms_have_right_gradients(implementation):
    x, mask, weight, bias = make_inputs(2, 4, 3)
    inputs = tuple(t.requires_grad_() for t in (x, weight, bias))
    assert gradcheck(lambda x, w, b: ops.masked_batch_norm(x, mask, w, b, EPSILON)[0], inputs)


def test_norms_keep_the_rules_for_operators():
    x, mask, weight, bias = make_inputs(2, 5, 9)
    tensors = tuple(t.clone().requires_grad_() for t in (x, weight, bias))
    forward = torch.ops.torchs4.masked_batch_norm.default
    torch.library.opcheck(forward, (tensors[0], mask, *tensors[1:], EPSILON))
    _, mean, variance = ops.masked_batch_norm(x, mask, weight, bias, EPSILON)
    backward = torch.ops.torchs4.masked_batch_norm_backward.default
    torch.library.opcheck(backward, (x, x, mask, weight, mean, variance, EPSILON))


@pytest.mark.usefixtures("implementation")
def test_padding_may_hold_anything_and_real_numbers_may_not():
    x, mask, weight, bias = make_inputs(3, 30, 4)
    clean = ops.masked_batch_norm(x, mask, weight, bias, EPSILON)
    x[~mask] = torch.nan
    for a, b in zip(ops.masked_batch_norm(x, mask, weight, bias, EPSILON), clean, strict=True):
        assert torch.equal(a, b)
    x[0, 0, 2] = torch.nan
    y = ops.masked_batch_norm(x, mask, weight, bias, EPSILON)[0]
    assert y[mask][:, 2].isnan().all()
    assert not y[..., [0, 1, 3]].isnan().any()


@pytest.mark.usefixtures("implementation")
def test_holes_are_padding_too():
    x, _, weight, bias = make_inputs(2, 50, 4)
    mask = torch.rand(2, 50, generator=torch.Generator().manual_seed(0)) < 0.4
    y = cpu.masked_batch_norm(x, mask, weight, bias, EPSILON)[0]
    torch.testing.assert_close(y, reference.masked_batch_norm(x, mask, weight, bias, EPSILON)[0])


def test_norms_read_strided_inputs():
    x, mask, weight, bias = make_inputs(3, 20, 5)
    strided = x.transpose(0, 1).contiguous().transpose(0, 1)
    for a, b in zip(
        ops.masked_batch_norm(strided, mask, weight, bias, EPSILON),
        ops.masked_batch_norm(x, mask, weight, bias, EPSILON),
        strict=True,
    ):
        assert torch.equal(a, b)


def test_half_precision_comes_back_as_such():
    x, mask, weight, bias = make_inputs(3, 20, 8, torch.float32)
    y, mean, _ = ops.masked_batch_norm(x.bfloat16(), mask, weight, bias, EPSILON)
    assert y.dtype == torch.bfloat16
    assert mean.dtype == torch.float32
