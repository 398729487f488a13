"""Informer: equal to ordinary attention where it must be, and as its publication says elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from torchs4.description import InputDescription, Scaling
from torchs4.layers.prob_sparse import ProbSparseAttention
from torchs4.models import Informer, InformerConfig, build_model, load_model
from torchs4.tasks import Forecast


def plain_attention(layer: ProbSparseAttention, x: torch.Tensor) -> torch.Tensor:
    """Written out, head by head."""
    query, keys, values = layer.query_key_value(x).chunk(3, dim=-1)
    outputs = []
    for q, k, v in zip(*(part.chunk(layer.heads, dim=-1) for part in (query, keys, values)), strict=True):
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        if layer.causal:
            scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), -torch.inf)
        outputs.append(scores.softmax(-1) @ v)
    return layer.output(torch.cat(outputs, dim=-1))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [1, 2, 17])
def test_with_a_large_factor_it_is_ordinary_attention(causal: bool, length: int) -> None:
    torch.manual_seed(0)
    layer = ProbSparseAttention(12, heads=3, factor=100, causal=causal).double()
    x = torch.randn(3, length, 12, dtype=torch.float64, requires_grad=True)
    expected = plain_attention(layer, x)
    torch.testing.assert_close(layer(x), expected)
    (ours,) = torch.autograd.grad(layer(x).square().sum(), x)
    (theirs,) = torch.autograd.grad(expected.square().sum(), x)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("causal", [False, True])
def test_few_queries_attend_and_the_others_take_the_average(causal: bool) -> None:
    torch.manual_seed(0)
    length = 40
    layer = ProbSparseAttention(8, heads=1, factor=1, causal=causal).double().eval()
    torch.nn.init.eye_(layer.output.weight)
    torch.nn.init.zeros_(layer.output.bias)
    x = torch.randn(1, length, 8, dtype=torch.float64)
    values = layer.query_key_value(x).chunk(3, dim=-1)[2]
    average = values.mean(1, keepdim=True).expand_as(values)
    if causal:
        average = values.cumsum(1) / torch.arange(1, length + 1)[:, None]
    y, full = layer(x), plain_attention(layer, x)
    attends = (y - full).abs().amax(-1)[0] < 1e-9
    averages = (y - average).abs().amax(-1)[0] < 1e-9
    # ln 41, rounded up. The first causal position has one thing to see, whichever way.
    assert int((~averages).sum()) <= 4
    assert int((attends & ~averages).sum()) in (3, 4)
    assert (attends | averages).all()


def test_queries_that_stand_out_most_are_chosen() -> None:
    layer = ProbSparseAttention(4, heads=1, factor=1).eval()
    query = torch.zeros(1, 1, 30, 4)
    query[0, 0, [3, 11, 19, 28]] = 5.0
    keys = torch.randn(1, 1, 30, 4, generator=torch.Generator().manual_seed(0))
    assert set(layer._outstanding(query, keys, 4)[0, 0].tolist()) == {3, 11, 19, 28}


def test_prediction_is_the_same_every_time_and_training_draws_anew() -> None:
    torch.manual_seed(0)
    layer = ProbSparseAttention(8, heads=2, factor=1)
    x = torch.randn(2, 60, 8)
    layer.eval()
    torch.testing.assert_close(layer(x), layer(x), rtol=0, atol=0)
    layer.train()
    torch.manual_seed(1)
    once = layer(x)
    assert any(not torch.equal(layer(x), once) for _ in range(5))
    torch.manual_seed(1)
    assert torch.equal(layer(x), once)


def small(**options: Any) -> Informer:
    torch.manual_seed(0)
    config = {
        "features": 16,
        "heads": 2,
        "label": 4,
        "history": 12,
        "horizon": 6,
        "input_features": 2,
        **options,
    }
    return Informer(InformerConfig(**config)).eval()


@pytest.mark.parametrize(
    "options", [{}, {"distill": False}, {"encoder_layers": 3, "decoder_layers": 2}, {"label": 0}]
)
def test_a_forecast_has_gradients_everywhere(options: dict[str, Any]) -> None:
    model = small(**options).train()
    y = model(torch.randn(3, 18, 2))
    assert y.shape == (3, 18, 1)
    y.square().sum().backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.isfinite().all(), name


def test_the_encoder_halves_its_positions() -> None:
    lengths = []
    model = small(encoder_layers=3)
    for layer in model.encoder:
        layer.register_forward_hook(lambda module, given, made: lengths.append(made.shape[1]))
    model(torch.randn(1, 18, 2))
    assert lengths == [12, 6, 3]


def test_with_a_large_factor_and_one_layer_it_is_a_transformer() -> None:
    model = small(factor=100, encoder_layers=1, dropout=0.0).double()
    x = torch.randn(2, 18, 2, dtype=torch.float64)
    memory = model.encoder_input(x[:, :12])
    layer: Any = model.encoder[0]
    memory = layer.attention_norm(memory + plain_attention(layer.attention, memory))
    memory = layer.widening.norm(memory + layer.widening.narrow(F.gelu(layer.widening.wide(memory))))
    memory = model.encoder_norm(memory)
    y, layer = model.decoder_input(x[:, 8:]), model.decoder[0]
    y = layer.attention_norm(y + plain_attention(layer.attention, y))
    query, (keys, values) = layer.query(y), layer.key_value(memory).chunk(2, dim=-1)
    seen = [
        (q @ k.transpose(1, 2) / 8**0.5).softmax(-1) @ v
        for q, k, v in zip(*(part.chunk(2, dim=-1) for part in (query, keys, values)), strict=True)
    ]
    y = layer.memory_norm(y + layer.output(torch.cat(seen, dim=-1)))
    y = layer.widening.norm(y + layer.widening.narrow(F.gelu(layer.widening.wide(y))))
    expected = model.head(model.decoder_norm(y))[:, -6:]
    torch.testing.assert_close(model(x)[:, -6:], expected)


def test_saving_keeps_the_forecasts(tmp_path: Any) -> None:
    model = small(input_scaling=Scaling((1.0, 2.0), (2.0, 1.0)), output_scaling=Scaling((1.0,), (2.0,)))
    x = torch.randn(2, 18, 2)
    model.save_pretrained(tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert isinstance(loaded, Informer)
    torch.testing.assert_close(loaded(x), model(x), rtol=0, atol=0)


def test_data_decide_both_ends() -> None:
    task = Forecast(("a", "b"), horizon=5, continues=(0, 1))
    model = build_model(InformerConfig(features=8, heads=2), InputDescription("values", 4, 20), task.output)
    assert model(torch.randn(2, 20, 4)).shape == (2, 20, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": 12, "heads": 4}, "whole and even number"),
        ({"dropout": 1.0}, "dropout is 1.0"),
        ({"label": -1}, "label is -1"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        InformerConfig(**options)


def test_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a history of 12 and a horizon of 6"):
        small()(torch.randn(1, 17, 2))
