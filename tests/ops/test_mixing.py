"""The product that mixes features, by oneDNN, against F.linear."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from torchs4 import ops
from torchs4.ops import mixing

# Sums of up to a thousand float32 products, in another order.
CLOSE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture(autouse=True)
def on_a_processor_where_onednn_is_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    if not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        pytest.skip("this PyTorch has no oneDNN")
    monkeypatch.setattr(mixing, "onednn_is_faster", lambda: True)
    # Small products are quick tests, and in float32 they need no wider tolerance.
    monkeypatch.setattr(mixing, "_FEWEST_PRODUCTS", 500)


def drawn(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(*shape, generator=generator, requires_grad=True)
    return x, torch.randn(2 * shape[-1], shape[-1], generator=generator, requires_grad=True)


def count_products(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    seen: list[torch.Size] = []
    multiply = mixing._multiply
    monkeypatch.setattr(mixing, "_multiply", lambda x, w, b: (seen.append(x.shape), multiply(x, w, b))[1])
    return seen


@pytest.mark.parametrize("shape", [(256, 1), (3, 333, 7), (1, 1024, 33), (5, 100, 64)])
def test_outputs_and_gradients_are_those_of_linear(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight = drawn(*shape)
    seen = count_products(monkeypatch)
    y = ops.linear(x, weight)
    expected = F.linear(x.double(), weight.double())
    torch.testing.assert_close(y.double(), expected, **CLOSE)
    grad = torch.randn(y.shape)
    found = torch.autograd.grad(y, (x, weight), grad)
    assert len(seen) == 3
    for mine, its in zip(found, torch.autograd.grad(expected, (x, weight), grad.double()), strict=True):
        torch.testing.assert_close(mine, its, **CLOSE)


@pytest.mark.parametrize("shape", [(300, 3), (3, 333, 7)])
def test_a_bias_is_added_and_has_its_gradient(
    shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    x, weight = drawn(*shape)
    bias = torch.randn(len(weight), generator=torch.Generator().manual_seed(1), requires_grad=True)
    seen = count_products(monkeypatch)
    y, expected = ops.linear(x, weight, bias), F.linear(x.double(), weight.double(), bias.double())
    assert len(seen) == 1
    torch.testing.assert_close(y.double(), expected, **CLOSE)
    for mine, its in zip(
        torch.autograd.grad(y.square().sum(), (x, weight, bias)),
        torch.autograd.grad(expected.square().sum(), (x, weight, bias)),
        strict=True,
    ):
        torch.testing.assert_close(mine, its, rtol=1e-4, atol=1e-2)


def test_gradients_of_many_rows_are_gathered_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixing, "_ROWS_TOGETHER", 100)
    x, weight = drawn(3, 333, 7)
    seen = count_products(monkeypatch)
    (found,) = torch.autograd.grad(ops.linear(x.detach(), weight).square().sum(), weight)
    assert len(seen) == 1 + 10
    expected = F.linear(x.double(), weight.double())
    (its,) = torch.autograd.grad(expected.square().sum(), weight)
    torch.testing.assert_close(found, its, rtol=1e-4, atol=1e-2)


def test_only_the_gradients_that_are_wanted_are_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = drawn(2, 200, 8)
    seen = count_products(monkeypatch)
    ops.linear(x.detach(), weight).sum().backward()
    assert len(seen) == 2
    assert weight.grad is not None


def test_it_can_be_differentiated_twice() -> None:
    x, weight = drawn(300, 5)

    def second(product: object) -> torch.Tensor:
        (slope,) = torch.autograd.grad(product(x, weight).square().sum(), x, create_graph=True)  # type: ignore[operator]
        (curvature,) = torch.autograd.grad(slope.square().sum(), weight)
        return curvature

    torch.testing.assert_close(second(ops.linear), second(F.linear), rtol=1e-4, atol=1.0)


def test_small_products_other_numbers_and_autocast_go_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixing, "_FEWEST_PRODUCTS", 5000)
    x, weight = drawn(2, 400, 8)
    seen = count_products(monkeypatch)
    assert ops.linear(x[:, :10], weight).shape == (2, 10, 16)
    assert ops.linear(x[:, :0], weight).shape == (2, 0, 16)
    assert ops.linear(x.double(), weight.double()).dtype == torch.float64
    with torch.autocast("cpu", torch.bfloat16):
        assert ops.linear(x, weight).dtype == torch.bfloat16
    assert torch.func.vmap(lambda row: ops.linear(row, weight))(x).shape == (2, 400, 16)
    ops.set_implementation("reference")
    try:
        ops.linear(x, weight)
    finally:
        ops.set_implementation("auto")
    assert not seen
    ops.linear(x, weight)
    assert seen
