"""The attention layer: what it sees, where it thinks it is, and what its cache holds."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch

from torchs4 import Transformer, TransformerConfig
from torchs4.layers.transformer import _rotate, _turns

# The same sums in another order.
FLOAT64_TOLERANCE = 1e-12

both_directions = pytest.mark.parametrize("bidirectional", [False, True], ids=["causal", "bidirectional"])


def refuses(*pieces: str) -> Any:
    """A ValueError whose text has these pieces in this order."""
    return pytest.raises(ValueError, match="(?s)" + ".*".join(map(re.escape, pieces)))


def build(**options: Any) -> Transformer:
    torch.manual_seed(0)
    return Transformer(8, **{"heads": 2, **options}).double()


def inputs(batch: int = 2, length: int = 9) -> torch.Tensor:
    torch.manual_seed(1)
    return torch.randn(batch, length, 8, dtype=torch.float64)


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=0, atol=FLOAT64_TOLERANCE)


@both_directions
def test_it_is_softmax_attention_with_rotated_queries_and_keys(bidirectional: bool) -> None:
    layer, x = build(bidirectional=bidirectional), inputs()
    query, key, value = layer.query_key_value(x).view(2, 9, 3, 2, 4).unbind(2)
    # A pair of columns is a complex number, a position turns it.
    angles = torch.arange(9)[:, None, None] * 10_000.0 ** -torch.tensor([0, 0.5], dtype=torch.float64)
    query, key = (
        torch.complex(part[..., :2], part[..., 2:]) * torch.exp(1j * angles) for part in (query, key)
    )
    scores = torch.einsum("bihd,bjhd->bhij", query, key.conj()).real / 2
    if not bidirectional:
        scores = scores.masked_fill(torch.ones(9, 9).triu(1).bool(), -math.inf)
    y = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), value).flatten(2)
    assert_close(layer(x), layer.output(y))


def test_only_distances_matter() -> None:
    vectors = torch.randn(2, 1, 1, 4, dtype=torch.float64)
    products = []
    for first, second in ((3, 1), (1_000_003, 1_000_001)):
        turned = _rotate(vectors[:1], _turns(torch.tensor([first]), 4))
        other = _rotate(vectors[1:], _turns(torch.tensor([second]), 4))
        products.append((turned * other).sum())
    # Angles of a million carry 1e-10 in float64.
    assert abs(products[0] - products[1]) < 1e-9


def test_it_tells_orders_apart() -> None:
    layer, x = build(), inputs()
    swapped = x[:, [1, 0, *range(2, 9)]]
    assert not torch.allclose(layer(x)[:, -1], layer(swapped)[:, -1])


@both_directions
def test_holes_are_left_out(bidirectional: bool) -> None:
    layer, x = build(bidirectional=bidirectional), inputs()
    mask = torch.tensor([[0, 1, 1, 0, 0, 1, 1, 1, 0], [1, 0, 1, 0, 1, 0, 1, 0, 1]], dtype=torch.bool)
    y = layer(x, mask=mask)
    for row in range(2):
        assert_close(y[row, mask[row]], layer(x[row, mask[row]][None])[0])


@both_directions
def test_a_sequence_of_padding_alone_does_no_harm(bidirectional: bool) -> None:
    layer, x = build(bidirectional=bidirectional), inputs().requires_grad_()
    y = layer(x, mask=torch.tensor([[True], [False]]).expand(2, 9))
    y.square().sum().backward()
    assert y.isfinite().all()
    assert_close(y[:1], layer(x[:1]))
    for leaf in (x, *layer.parameters()):
        assert leaf.grad.isfinite().all()


@both_directions
@pytest.mark.parametrize("filling", [math.nan, math.inf])
def test_what_padding_holds_reaches_no_output_and_no_gradient(filling: float, bidirectional: bool) -> None:
    layer, x = build(bidirectional=bidirectional), inputs()
    x[1, 4:] = filling
    x.requires_grad_()
    y = layer(x, lengths=[9, 4])
    y.square().sum().backward()
    assert y.isfinite().all()
    for leaf in (x, *layer.parameters()):
        assert leaf.grad.isfinite().all()


def test_the_rate_changes_nothing() -> None:
    layer, x = build(), inputs()
    assert torch.equal(layer(x, rate=2.0), layer(x))
    with refuses("rate is 0"):
        layer(x, rate=0)


def test_its_state_grows_with_every_position() -> None:
    layer, x = build(), inputs()
    state = layer.initial_state(2)
    assert [tuple(part.shape) for part in state] == [(2, 2, 0, 4)] * 2
    _, state = layer.prefill(x, state)
    _, state = layer.step(x[:, 0], state)
    assert [tuple(part.shape) for part in state] == [(2, 2, 10, 4)] * 2


def test_a_foreign_state_is_refused() -> None:
    layer, x = build(), inputs()
    with refuses("state is NoneType", "expected keys and values", "initial_state(batch_size=2)"):
        layer.step(x[:, 0], None)
    with refuses("(3, 2, 0, 4), (3, 2, 0, 4)", "(2, 2, 0, 4) each"):
        layer.step(x[:, 0], layer.initial_state(3))
    keys, values = layer.prefill(x)[1]
    with refuses("(2, 2, 9, 4), (2, 2, 8, 4)"):
        layer.step(x[:, 0], (keys, values[:, :, 1:]))


def test_attention_dropout_drops_in_training_only() -> None:
    layer, x = build(attention_dropout=0.5), inputs()
    assert not torch.equal(layer(x), layer(x))
    layer.eval()
    assert torch.equal(layer(x), layer(x))


@pytest.mark.parametrize(
    ("features", "heads", "pieces"),
    [
        (8, 3, ["heads is 3 and features is 8", "heads one of 1, 2, 4, or 6 features"]),
        (4, 4, ["heads is 4 and features is 4", "heads one of 1, 2, or 8 features"]),
        (3, 1, ["heads is 1 and features is 3", "an even number of features, or 4 features"]),
    ],
)
def test_heads_that_do_not_fit_get_those_that_do(features: int, heads: int, pieces: list[str]) -> None:
    with refuses(*pieces):
        Transformer(features, heads=heads)


@pytest.mark.parametrize("heads", [0, 2.0])
def test_heads_are_a_positive_whole_number(heads: Any) -> None:
    with refuses(f"heads is {heads}"):
        TransformerConfig(heads=heads)


def test_attention_dropout_is_a_probability() -> None:
    with refuses("attention_dropout is 1.0", "[0, 1)"):
        TransformerConfig(attention_dropout=1.0)
