"""What every attention promises beside the conformance suite: padding, errors, options, compilation."""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import Any

import pytest
import torch
from attention_oracle import (
    CONFIGS,
    FEATURES,
    assert_close,
    build,
    every_attention,
    inputs,
    refuses,
    registered_attentions,
)

from torchs4 import TransformerConfig
from torchs4.configuration import with_options
from torchs4.description import InputDescription, OutputDescription
from torchs4.layers import LAYERS, S4BlockConfig, S4Config
from torchs4.models import BlockStack, SequenceModelConfig
from torchs4.models.building import build_model

WHOLE = [name for name, config in CONFIGS.items() if config.bidirectional]


def test_every_registered_attention_is_tested_here() -> None:
    tested = {name for name, kind in LAYERS.items() if kind in {type(config) for config in CONFIGS.values()}}
    assert tested == registered_attentions()
    assert len(tested) == 13


@every_attention
def test_holes_are_left_out(name: str) -> None:
    layer, x = build(CONFIGS[name]), inputs(length=9)
    mask = torch.tensor([[0, 1, 1, 0, 0, 1, 1, 1, 0], [1, 0, 1, 0, 1, 0, 1, 0, 1]], dtype=torch.bool)
    y = layer(x, mask=mask)
    for row in range(2):
        assert_close(y[row, mask[row]], layer(x[row, mask[row]][None])[0])


@every_attention
def test_a_sequence_of_padding_alone_does_no_harm(name: str) -> None:
    layer, x = build(CONFIGS[name]), inputs(length=9)
    x[1] = math.nan
    x.requires_grad_()
    y = layer(x, mask=torch.tensor([[True], [False]]).expand(2, 9))
    y.square().sum().backward()
    assert y.isfinite().all()
    assert_close(y[:1], layer(x[:1]))
    for leaf in (x, *layer.parameters()):
        assert leaf.grad.isfinite().all()


@every_attention
def test_the_rate_changes_nothing(name: str) -> None:
    layer, x = build(CONFIGS[name]), inputs()
    assert torch.equal(layer(x, rate=2.0), layer(x))
    with refuses("rate is 0"):
        layer(x, rate=0)


@every_attention
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    layer = build(CONFIGS[name])
    x = inputs(1, 5).requires_grad_()
    assert torch.autograd.gradcheck(layer, (x,), fast_mode=True)


@pytest.mark.parametrize("name", WHOLE)
def test_one_graph_holds_the_whole_layer(name: str) -> None:
    torch.compiler.reset()
    layer, x = build(CONFIGS[name]), inputs()
    assert_close(torch.compile(layer, fullgraph=True, backend="eager")(x), layer(x))


@pytest.mark.parametrize("name", [name for name in CONFIGS if hasattr(CONFIGS[name], "heads")])
def test_heads_that_do_not_divide_the_width_are_refused(name: str) -> None:
    config = dataclasses.replace(CONFIGS[name], heads=3)
    with refuses("heads is 3 and features is 8", "heads one of 1, 2, 4, 8, or 9 features"):
        config.build(FEATURES)
    with refuses("heads is 0"):
        dataclasses.replace(config, heads=0)


@pytest.mark.parametrize("config", [TransformerConfig, CONFIGS["performer"].__class__])
def test_queries_keys_and_values_may_be_narrower_than_the_sequence(config: Any) -> None:
    layer = config(heads=2, projection=4).build(FEATURES)
    assert layer.query_key_value.weight.shape == (12, FEATURES)
    assert layer(torch.randn(2, 5, FEATURES)).shape == (2, 5, FEATURES)
    with refuses("heads is 2 and projection is 5", "projection/heads columns", "projection."):
        config(heads=2, projection=5).build(FEATURES)
    with refuses("projection is 0"):
        config(projection=0)


@pytest.mark.parametrize("name", sorted(registered_attentions()))
def test_a_causal_request_is_met_or_refused(name: str) -> None:
    kind = LAYERS[name]
    if not kind().bidirectional:
        assert kind().build(FEATURES).causal
        return
    with refuses(f"{kind.__name__.removesuffix('Config')} cannot be causal", "'linear-transformer'", "'s4'"):
        kind(bidirectional=False)


@pytest.mark.parametrize("name", sorted(registered_attentions()))
def test_a_causal_recipe_and_a_bidirectional_one_take_any_attention(name: str) -> None:
    for bidirectional in (False, True):
        block = S4BlockConfig(layer=S4Config(bidirectional=bidirectional))
        model = with_options(SequenceModelConfig(block=block), layer=name)
        assert model.block.layer.bidirectional or not bidirectional


@pytest.mark.parametrize(
    ("name", "options", "piece"),
    [
        ("local-attention", {"window": 0}, "window is 0"),
        ("sparse-transformer", {"window": 4, "summaries": 5}, "summaries is 5, but a block has only 4"),
        ("longformer", {"reach": 0}, "reach is 0"),
        ("bigbird", {"random_blocks": -1}, "random_blocks is -1"),
        ("linformer", {"projections": 1.5}, "projections is 1.5"),
        ("reformer", {"buckets": 3}, "buckets is 3: each lies opposite"),
        ("sinkhorn", {"temperature": 0.0}, "temperature is 0.0"),
        ("synthesizer", {"scores": "made up"}, "scores is 'made up'; choose one of 'random', 'dense'"),
        ("nystromformer", {"skip_kernel": 4}, "skip_kernel is 4; choose an odd number"),
        ("luna", {"packed": 0}, "packed is 0"),
        ("performer", {"random_features": 0}, "random_features is 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(name: str, options: dict[str, Any], piece: str) -> None:
    with refuses(piece):
        LAYERS[name](**options)


@pytest.mark.parametrize("name", ["linformer", "synthesizer", "synthesizer-dense"])
def test_a_sequence_longer_than_there_are_weights_is_refused(name: str) -> None:
    layer = build(CONFIGS[name])
    layer(inputs(length=40))
    with refuses("x has 41 positions", "weights for 40 (max_length)", "max_length=41"):
        layer(inputs(length=41))


@pytest.mark.parametrize("name", ["linformer", "synthesizer"])
def test_as_many_weights_as_the_data_are_long(name: str) -> None:
    given = InputDescription(kind="values", size=2, length=57)
    config = with_options(SequenceModelConfig(features=8, num_layers=1), layer=name)
    assert build_model(config, given, OutputDescription(size=3)).config.block.layer.max_length == 57
    told = with_options(config, max_length=99)
    assert build_model(told, given, OutputDescription(size=3)).config.block.layer.max_length == 99
    assert LAYERS[name]().build(8).max_length == 4096


@every_attention
def test_options_have_names(name: str) -> None:
    config = CONFIGS[name]
    layer = type(build(config))
    parameters = inspect.signature(layer).parameters
    assert list(parameters)[:4] == ["features", "config", "device", "dtype"]
    for field in dataclasses.fields(config):
        assert parameters[field.name].default == getattr(type(config)(), field.name)
    fields = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    assert layer(FEATURES, **fields).config == config
    with refuses(f"{type(config).__name__} has no option 'windw'"):
        layer(FEATURES, windw=3)


@every_attention
def test_weights_can_be_made_elsewhere(name: str) -> None:
    layer = type(build(CONFIGS[name]))(FEATURES, CONFIGS[name], device="meta", dtype=torch.float64)
    assert all(weight.is_meta and weight.dtype == torch.float64 for weight in layer.state_dict().values())


@every_attention
def test_a_stack_tells_orders_apart(name: str) -> None:
    torch.manual_seed(0)
    stack = BlockStack(FEATURES, 1, S4BlockConfig(layer=CONFIGS[name])).double().eval()
    x = inputs(1, 12)
    swapped = x[:, [1, 0, *range(2, 12)]]
    assert stack.positions is not None
    assert not torch.allclose(stack(x).mean(1), stack(swapped).mean(1))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["performer", "linear-transformer"])
def test_steps_and_chunks_agree_with_forward_over_4096_positions(name: str) -> None:
    torch.manual_seed(0)
    layer = CONFIGS[name].build(FEATURES).eval()
    x = torch.randn(1, 4096, FEATURES)
    with torch.no_grad():
        whole = layer(x)
        first, state = layer.prefill(x[:, :1000])
        second, _ = layer.prefill(x[:, 1000:], state)
        state, steps = layer.initial_state(1), []
        for position in range(4096):
            y, state = layer.step(x[:, position], state)
            steps.append(y)
    # Sums of 4096 float32 numbers.
    assert_close(torch.cat([first, second], 1), whole, 1e-5)
    assert_close(torch.stack(steps, 1), whole, 1e-5)
