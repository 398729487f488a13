import pytest
import torch
from oracle import normal
from torch.autograd import gradcheck

from torchs4 import ops
from torchs4.ops import cpu, reference


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5, 8), (2, 100, 100), (40_001,)])
@pytest.mark.parametrize("seed", [0, 1, 2**62 + 12345])
def test_implementations_drop_the_same_numbers(shape, dtype, seed):
    x = normal(*shape, seed=1).to(dtype)
    for probability in (0.1, 0.5):
        actual = cpu.dropout(x, torch.tensor(seed), probability)
        expected = reference.dropout(x, torch.tensor(seed), probability)
        assert actual.dtype == dtype
        assert torch.equal(actual == 0, expected == 0)
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("probability", [0.05, 0.3, 0.9])
def test_so_many_are_dropped_and_the_mean_stays(probability):
    torch.manual_seed(0)
    y = ops.dropout(torch.ones(1000, 1000), probability)
    share = (y == 0).double().mean()
    # A million draws: three standard deviations are at most 0.0015.
    assert abs(share - probability) < 0.0015
    assert abs(y.double().mean() - 1) < 0.0015 / (1 - probability)
    rows, columns = (y == 0).double().mean(1), (y == 0).double().mean(0)
    spread = (probability * (1 - probability) / 1000) ** 0.5
    for means in (rows, columns):
        assert means.std() == pytest.approx(spread, rel=0.15)


def test_neighbours_and_successive_draws_are_independent():
    torch.manual_seed(0)
    first, second = (ops.dropout(torch.ones(2**20), 0.5) == 0 for _ in range(2))
    for other in (second, first.roll(1), first.roll(8), first.roll(256), first.roll(1 << 14)):
        agreement = (first == other).double().mean()
        # Three standard deviations of a million fair draws.
        assert abs(agreement - 0.5) < 0.0015


def test_a_seed_repeats_it():
    x = normal(3, 50, 7)
    torch.manual_seed(3)
    first = ops.dropout(x, 0.4)
    torch.manual_seed(3)
    assert torch.equal(ops.dropout(x, 0.4), first)
    assert not torch.equal(ops.dropout(x, 0.4), first)


def test_gradients_are_dropped_where_numbers_are():
    x, seed = normal(3, 11).requires_grad_(), torch.tensor(5)
    y = torch.ops.torchs4.dropout(x, seed, 0.5)
    (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y))
    assert torch.equal(gradient == 0, y == 0)
    assert gradcheck(lambda x: torch.ops.torchs4.dropout(x, seed, 0.5), (x,))


def test_dropout_keeps_the_rules_for_operators():
    x = normal(3, 11).requires_grad_()
    torch.library.opcheck(torch.ops.torchs4.dropout.default, (x, torch.tensor(5), 0.3))


@pytest.mark.parametrize("probability", [0.0, 1.0])
def test_nothing_or_everything(probability):
    x = normal(3, 11)
    assert torch.equal(ops.dropout(x, probability), x if probability == 0 else torch.zeros_like(x))


def test_what_is_not_a_number_shows():
    x = torch.full((1000,), torch.nan)
    y = ops.dropout(x, 0.5)
    assert 400 < y.isnan().sum() < 600
    assert (y[~y.isnan()] == 0).all()


def test_strided_inputs_and_half_precision():
    x = normal(20, 30)
    torch.manual_seed(0)
    expected = ops.dropout(x.t().contiguous(), 0.5)
    torch.manual_seed(0)
    assert torch.equal(ops.dropout(x.t(), 0.5), expected)
    assert ops.dropout(x.bfloat16(), 0.5).dtype == torch.bfloat16
