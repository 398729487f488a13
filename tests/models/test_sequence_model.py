"""The whole network: what its encoder, pooling and head make of the blocks, and that it learns."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree

from torchs4 import (
    LanguageModel,
    LSSLConfig,
    S4Block,
    S4BlockConfig,
    S4Config,
    S4DConfig,
    SequenceModel,
    UNetModel,
    parameter_groups,
)

LAYER_CONFIGS = {"s4": S4Config, "s4d": S4DConfig, "lssl": LSSLConfig}
every_pooling = pytest.mark.parametrize("pooling", ["mean", "last", "shares", "none"])
# The same numbers in float64, summed in another order.
FLOAT64_TOLERANCE = 1e-11


def build(seed: int = 0, **options: Any) -> SequenceModel:
    torch.manual_seed(seed)
    defaults = {
        "output_size": 5,
        "input_features": 2,
        "features": 4,
        "num_layers": 2,
        "block": S4BlockConfig(layer=S4DConfig(state_size=8)),
    }
    return SequenceModel(**{**defaults, **options}).double().eval()


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=FLOAT64_TOLERANCE, atol=FLOAT64_TOLERANCE)


def test_mean_pooling_is_the_head_of_the_mean() -> None:
    model = build(pooling="mean")
    x = torch.randn(3, 9, 2, dtype=torch.float64)
    assert_close(model(x), model.head(model.stack(model.encoder(x)).mean(dim=1)))


def test_last_pooling_is_the_last_output_of_no_pooling() -> None:
    last, every = build(pooling="last"), build(pooling="none")
    every.load_state_dict(last.state_dict())
    x = torch.randn(3, 9, 2, dtype=torch.float64)
    assert_close(last(x), every(x)[:, -1])
    assert_close(last(x, lengths=[9, 4, 1]), every(x)[torch.arange(3), torch.tensor([8, 3, 0])])


def test_tokens_are_embedded() -> None:
    model = build(vocabulary_size=7, pooling="none")
    tokens = torch.randint(7, (3, 9))
    assert_close(model(tokens), model.head(model.stack(model.encoder.weight[tokens])))


def test_a_model_has_as_many_blocks_as_asked_for_and_they_differ() -> None:
    model = build(num_layers=3)
    assert len(model.stack.blocks) == 3
    first, second, _ = model.stack.blocks
    assert not torch.equal(first.layer.C, second.layer.C)


@every_pooling
def test_only_real_positions_get_gradients(pooling: str) -> None:
    model = build(pooling=pooling)
    x = torch.randn(2, 9, 2, dtype=torch.float64, requires_grad=True)
    y = model(x, lengths=[9, 4])
    (y if pooling != "none" else y[:, :4]).square().sum().backward()
    assert (x.grad[1, 4:] == 0).all()
    assert (x.grad[1, :4] != 0).any()


@every_pooling
def test_padding_of_nan_stays_out(pooling: str) -> None:
    model = build(pooling=pooling, block=S4BlockConfig(layer=S4Config(state_size=8), norm="batch"))
    x = torch.randn(2, 9, 2, dtype=torch.float64)
    x[1, 4:] = float("nan")
    y = model(x, lengths=[9, 4])
    alone = model(x[1:, :4])
    assert_close(y[1:] if pooling != "none" else y[1:, :4], alone)


@every_pooling
def test_state_can_be_detached_saved_and_loaded(pooling: str, tmp_path: Any) -> None:
    model = build(pooling=pooling)
    x = torch.randn(3, 9, 2, dtype=torch.float64)
    _, state = model.prefill(x[:, :4])
    expected, _ = model.prefill(x[:, 4:], state)
    detached = pytree.tree_map(lambda leaf: leaf.detach(), state)
    torch.save(detached, tmp_path / "state.pt")
    loaded = torch.load(tmp_path / "state.pt", weights_only=True)
    assert torch.equal(model.prefill(x[:, 4:], loaded)[0], expected)


def test_a_detached_state_stops_the_gradient() -> None:
    model = build(pooling="none")
    x = torch.randn(3, 9, 2, dtype=torch.float64, requires_grad=True)
    _, state = model.prefill(x[:, :4])
    y, _ = model.prefill(x[:, 4:], pytree.tree_map(lambda leaf: leaf.detach(), state))
    y.sum().backward()
    assert (x.grad[:, :4] == 0).all()
    assert (x.grad[:, 4:] != 0).any()


def test_the_running_mean_keeps_its_digits_over_a_long_stream() -> None:
    model = build(num_layers=1).float()
    # A large offset: a running sum of these would lose what varies.
    x = 100 + torch.randn(1, 20_000, 2)
    with torch.no_grad():
        chunked, state = None, None
        for chunk in x.split(100, dim=1):
            chunked, state = model.prefill(chunk, state)
        # float32 over 200 updates of a mean.
        torch.testing.assert_close(chunked, model(x), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_the_running_mean_counts_in_half_precision_too(dtype: torch.dtype) -> None:
    model = build(num_layers=1).to(dtype)
    # A bfloat16 cannot count beyond 256, a float16 not beyond 2048.
    x = torch.cat([torch.zeros(1, 2100, 2), torch.ones(1, 2100, 2)], dim=1).to(dtype)
    with torch.no_grad():
        expected = model(x)
        state = None
        for position in range(0, 4200, 3):
            streamed, state = model.prefill(x[:, position : position + 3], state)
    # A few roundings to bfloat16, 4e-3 each, around values of order 1.
    torch.testing.assert_close(streamed.float(), expected.float(), rtol=0.05, atol=0.05)


def test_training_and_evaluation_differ_only_by_dropout() -> None:
    model = build(block=S4BlockConfig(layer=S4DConfig(state_size=8), dropout=0.3))
    x = torch.randn(3, 9, 2, dtype=torch.float64)
    expected = model(x)
    model.train()
    assert not torch.allclose(model(x), expected)
    for module in model.modules():
        if hasattr(module, "probability"):
            module.probability = 0.0
    assert_close(model(x), expected)


def test_a_model_remembers_its_config() -> None:
    model = build(pooling="last", num_layers=1)
    twin = SequenceModel(model.config).double().eval()
    twin.load_state_dict(model.state_dict())
    x = torch.randn(3, 9, 2, dtype=torch.float64)
    assert torch.equal(twin(x), model(x))


@pytest.mark.parametrize("norm", ["batch", "layer"])
def test_a_model_trained_on_padded_batches_streams_what_it_learnt(norm: str) -> None:
    torch.manual_seed(0)
    model = build(block=S4BlockConfig(layer=S4Config(state_size=8), norm=norm)).train()
    optimizer = torch.optim.AdamW(parameter_groups(model, lr=0.01, weight_decay=0.05))
    for _ in range(3):
        x = torch.randn(4, 12, 2, dtype=torch.float64)
        loss = F.cross_entropy(model(x, lengths=[12, 5, 8, 2]), torch.tensor([0, 1, 2, 3]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        state = model.initial_state(4)
        for position in range(12):
            y_t, state = model.step(x[:, position], state)
        assert_close(y_t, model(x))


@pytest.mark.slow
@pytest.mark.parametrize("kind", list(LAYER_CONFIGS))
def test_one_layer_learns_to_repeat_its_input_after_twenty_steps(kind: str) -> None:
    torch.manual_seed(0)
    layer = LAYER_CONFIGS[kind](state_size=32, min_step_size=0.02, max_step_size=0.1)
    model = SequenceModel(
        output_size=1,
        features=16,
        num_layers=1,
        block=S4BlockConfig(layer=layer, norm="none"),
        pooling="none",
    )
    optimizer = torch.optim.AdamW(parameter_groups(model, lr=0.01, ssm_lr=0.01))
    losses = []
    for _ in range(150):
        x = torch.randn(16, 100, 1)
        loss = nn.functional.mse_loss(model(x)[:, 20:], x[:, :-20])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    # The input is white noise: without memory nothing is below its variance of 1.
    assert sum(losses[:5]) / 5 > 0.9
    assert sum(losses[-10:]) / 10 < 0.1


@pytest.mark.parametrize("rate", [1.0, 2.0])
@pytest.mark.parametrize(
    "model",
    [
        SequenceModel(input_features=2, output_size=3, features=8, num_layers=2),
        SequenceModel(input_features=2, output_size=3, features=8, num_layers=2, stem=(4,)),
        UNetModel(input_features=2, output_size=3, features=8, num_layers=1, pools=(2,)),
        LanguageModel(
            vocabulary_size=50, cutoffs=(20,), features=8, num_layers=2, block=S4BlockConfig(dropout=0.1)
        ),
    ],
    ids=["plain", "stem", "U-Net", "language"],
)
def test_under_autocast_the_sum_of_all_blocks_is_not_rounded(model: SequenceModel, rate: float) -> None:
    seen: list[torch.dtype] = []
    for block in (module for module in model.modules() if isinstance(module, S4Block)):
        block.register_forward_hook(lambda _, given, y: seen.extend([given[0].dtype, y.dtype]))
    x = torch.randint(50, (2, 24)) if model.config.vocabulary_size else torch.randn(2, 24, 2)
    with torch.autocast("cpu", torch.bfloat16):
        model(x, rate=rate)
    assert seen
    assert set(seen) == {torch.float32}
