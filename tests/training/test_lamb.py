"""LAMB by hand, beside timm's where that is installed, and continued."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from torchs4.training.lamb import Lamb

RATE, DECAY, EPS = 0.02, 0.1, 1e-6
STEPS = 5


def a_model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.GELU(), torch.nn.Linear(7, 3)).double()


def groups(model: torch.nn.Module) -> list[dict[str, Any]]:
    matrices = [weight for weight in model.parameters() if weight.ndim > 1]
    vectors = [weight for weight in model.parameters() if weight.ndim == 1]
    return [
        {"params": matrices, "lr": RATE, "weight_decay": DECAY},
        {"params": vectors, "lr": RATE / 2, "weight_decay": 0.0},
    ]


def train(model: torch.nn.Module, optimizer: torch.optim.Optimizer, steps: int, first: int = 0) -> None:
    for step in range(first, first + steps):
        x = torch.randn(4, 5, generator=torch.Generator().manual_seed(step), dtype=torch.float64)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()


def test_steps_are_as_the_paper_has_them() -> None:
    model = a_model()
    matrix, vector = model[0].weight, model[0].bias
    expected = {id(weight): weight.detach().clone() for weight in (matrix, vector)}
    moments = {
        id(weight): (torch.zeros_like(weight), torch.zeros_like(weight)) for weight in (matrix, vector)
    }
    optimizer = Lamb(groups(model))
    for step in range(1, STEPS + 1):
        train(model, optimizer, 1, step)
        for weight, rate, decay in ((matrix, RATE, DECAY), (vector, RATE / 2, 0.0)):
            mean, square = moments[id(weight)]
            mean = 0.9 * mean + 0.1 * weight.grad
            square = 0.999 * square + 0.001 * weight.grad**2
            moments[id(weight)] = mean, square
            old = expected[id(weight)]
            change = (mean / (1 - 0.9**step)) / ((square / (1 - 0.999**step)).sqrt() + EPS) + decay * old
            length = old.norm() / change.norm() if decay else 1.0
            expected[id(weight)] = old - rate * length * change
            torch.testing.assert_close(weight.detach(), expected[id(weight)])


def test_it_steps_like_the_one_of_timm() -> None:
    timm = pytest.importorskip("timm.optim", reason="timm brings torchvision; compare where it is installed")
    ours, theirs = a_model(), a_model()
    train(ours, Lamb(groups(ours)), STEPS)
    train(theirs, timm.Lamb(groups(theirs), eps=EPS, max_grad_norm=None), STEPS)
    for mine, its in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, its)


def test_a_matrix_moves_by_its_rate_whatever_its_gradients_are() -> None:
    model = a_model()
    before = model[0].weight.detach().clone()
    train(model, Lamb(groups(model)), 1)
    moved = (model[0].weight.detach() - before).norm() / before.norm()
    assert float(moved) == pytest.approx(RATE)


def test_a_matrix_of_zeros_begins_to_move() -> None:
    model = a_model()
    torch.nn.init.zeros_(model[2].weight)
    train(model, Lamb(groups(model)), 1)
    assert (model[2].weight != 0).all()


def test_it_goes_on_from_its_saved_state() -> None:
    whole, halved = a_model(), a_model()
    train(whole, Lamb(groups(whole)), 6)
    first = Lamb(groups(halved))
    train(halved, first, 3)
    second = Lamb(groups(halved))
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    train(halved, second, 3, 3)
    for one, other in zip(whole.parameters(), halved.parameters(), strict=True):
        assert torch.equal(one, other)
