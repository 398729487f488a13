"""Options: what is built from them, and how wrong ones are refused."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import pytest
import torch

from torchs4 import (
    LSSL,
    S4,
    S4D,
    BlockStack,
    LSSLConfig,
    S4Block,
    S4BlockConfig,
    S4Config,
    S4DConfig,
    SequenceModel,
    SequenceModelConfig,
)

LAYER_CONFIGS = [S4Config, S4DConfig, LSSLConfig]


def refuses(*pieces: str) -> Any:
    """A ValueError whose text has these pieces in this order."""
    return pytest.raises(ValueError, match="(?s)" + ".*".join(map(re.escape, pieces)))


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (math.nan, 0.1),
        (0.001, math.nan),
        (0.1, 0.001),
        (-0.001, 0.1),
        (0.0, 0.1),
        (0.001, math.inf),
    ],
)
@pytest.mark.parametrize("config", LAYER_CONFIGS)
def test_an_impossible_range_of_step_sizes_is_refused(config: type, low: float, high: float) -> None:
    with refuses(f"min_step_size={low}", f"max_step_size={high}", "0 < min ≤ max"):
        config(min_step_size=low, max_step_size=high)


@pytest.mark.parametrize("size", [7, 1, 0, -2])
@pytest.mark.parametrize("config", [S4Config, S4DConfig])
def test_states_come_in_pairs(config: type, size: int) -> None:
    with refuses(f"state_size is {size}", "at least"):
        config(state_size=size)


def test_an_odd_state_size_gets_the_next_even_one() -> None:
    with refuses("state_size is 7", "even", "Try 8"):
        S4(4, state_size=7)


def test_a_dense_layer_may_have_an_odd_state_size() -> None:
    assert LSSL(4, state_size=7).initial_state(2).shape == (2, 4, 7)


@pytest.mark.parametrize("config", LAYER_CONFIGS)
@pytest.mark.parametrize("channels", [0, -1])
def test_there_is_at_least_one_channel(config: type, channels: int) -> None:
    with refuses(f"channels is {channels}", "at least 1"):
        config(channels=channels)


@pytest.mark.parametrize("config", LAYER_CONFIGS)
def test_an_unknown_start_is_refused_with_the_known_ones(config: type) -> None:
    with refuses("start is 'lags'", "'legs'"):
        config(start="lags")


@pytest.mark.parametrize("config", [S4DConfig, LSSLConfig])
def test_an_unknown_discretization_is_refused_with_the_known_ones(config: type) -> None:
    with refuses("discretization is 'euler'", "'bilinear'", "'zoh'"):
        config(discretization="euler")


def test_s4_refuses_zero_order_hold() -> None:
    with refuses("discretization is 'zoh'", "'bilinear' only", "S4D"):
        S4(4, discretization="zoh")


@pytest.mark.parametrize(("start", "rank", "needed"), [("legt", 1, 2), ("legs", 0, 1), ("random", -1, 1)])
def test_a_rank_below_what_the_start_needs_is_refused(start: str, rank: int, needed: int) -> None:
    with refuses(f"rank is {rank}", f"at least {needed}"):
        S4(4, start=start, rank=rank, state_size=8)


@pytest.mark.parametrize(
    ("build", "wrong", "meant"),
    [
        (S4, "state_sise", "state_size"),
        (S4D, "discretisation", "discretization"),
        (LSSL, "bidirectionnal", "bidirectional"),
        (S4Block, "drop_out", "dropout"),
    ],
)
def test_an_unknown_option_gets_a_suggestion(build: Any, wrong: str, meant: str) -> None:
    with refuses(f"{build.__name__}Config has no option {wrong!r}", f"Did you mean {meant!r}", "Options:"):
        build(4, **{wrong: 1})


def test_an_unknown_option_of_a_model_gets_a_suggestion() -> None:
    with refuses("SequenceModelConfig has no option 'num_layer'", "Did you mean 'num_layers'"):
        SequenceModel(num_layer=2)


def test_an_option_unlike_any_other_gets_the_list() -> None:
    with refuses("has no option 'zzz'", "Options: state_size"):
        S4(4, zzz=1)


@pytest.mark.parametrize(
    ("build", "config"), [(S4, S4DConfig()), (S4D, S4Config()), (LSSL, S4DConfig()), (S4Block, S4Config())]
)
def test_a_config_of_another_kind_is_refused(build: Any, config: Any) -> None:
    with refuses(type(config).__name__, f"{build.__name__}Config"):
        build(4, config)


@pytest.mark.parametrize("layer", ["s4", S4D], ids=["name", "class"])
def test_the_layer_of_a_block_is_a_config(layer: Any) -> None:
    with refuses("layer", "S4Config"):
        S4Block(4, layer=layer)


def test_the_block_of_a_model_is_a_config() -> None:
    with refuses("block", "S4BlockConfig"):
        SequenceModel(block=S4Config())


@pytest.mark.parametrize(
    "build", [S4, S4D, LSSL, S4Block, lambda features: BlockStack(features, 1, S4BlockConfig())]
)
@pytest.mark.parametrize("features", [0, -4])
def test_there_is_at_least_one_feature(build: Any, features: int) -> None:
    with refuses(f"features is {features}", "at least 1"):
        build(features)


@pytest.mark.parametrize("option", ["norm", "activation", "mixing"])
def test_an_unknown_choice_of_a_block_is_refused_with_the_known_ones(option: str) -> None:
    with refuses(f"{option} is 'magic'", "choose one of"):
        S4BlockConfig(**{option: "magic"})


@pytest.mark.parametrize("dropout", [-0.1, 1.0, math.nan])
def test_a_dropout_outside_its_range_is_refused(dropout: float) -> None:
    with refuses(f"dropout is {dropout}", "[0, 1)"):
        S4BlockConfig(dropout=dropout)


@pytest.mark.parametrize(
    "name", ["output_size", "input_features", "vocabulary_size", "features", "num_layers"]
)
def test_sizes_of_a_model_are_positive(name: str) -> None:
    with refuses(f"{name} is 0", "at least 1"):
        SequenceModelConfig(**{name: 0})


def test_an_unknown_pooling_is_refused_with_the_known_ones() -> None:
    with refuses("pooling is 'max'", "'mean'", "'last'", "'none'"):
        SequenceModelConfig(pooling="max")


def test_a_stack_has_at_least_one_block() -> None:
    with refuses("num_layers is 0", "at least 1"):
        BlockStack(4, 0, S4BlockConfig())


@pytest.mark.parametrize("config", [*LAYER_CONFIGS, S4BlockConfig, SequenceModelConfig])
def test_configs_are_frozen_and_compare_by_value(config: type) -> None:
    assert config() == config()
    assert hash(config()) == hash(config())
    name = dataclasses.fields(config)[0].name
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config(), name, 1)


def test_options_replace_fields_of_a_config() -> None:
    layer = S4(4, S4Config(state_size=8, channels=2), channels=3)
    assert layer.config == S4Config(state_size=8, channels=3)


@pytest.mark.parametrize("config", LAYER_CONFIGS)
def test_a_config_builds_its_layer(config: Any) -> None:
    layer = config(state_size=6).build(5)
    assert layer.config == config(state_size=6)
    assert layer.features == 5
    assert layer.state_size == 6


@pytest.mark.parametrize("config", LAYER_CONFIGS)
def test_step_sizes_start_in_their_range(config: Any) -> None:
    layer = config(state_size=4, min_step_size=0.01, max_step_size=0.02).build(200)
    step_sizes = layer.log_step_size.detach().exp()
    # Rounding of exp and log in float32.
    assert step_sizes.min() >= 0.01 * (1 - 1e-5)
    assert step_sizes.max() <= 0.02 * (1 + 1e-5)
    assert step_sizes.max() > 1.5 * step_sizes.min()


@pytest.mark.parametrize("config", LAYER_CONFIGS)
def test_per_feature_gives_every_feature_its_own_system(config: Any) -> None:
    shared, own = config(state_size=6).build(5), config(state_size=6, per_feature=True).build(5)
    for name in ("log_decay", "frequency", "A", "B"):
        if hasattr(shared, name):
            assert getattr(shared, name).shape[0] == 1
            assert getattr(own, name).shape[0] == 5
    assert shared.C.shape == own.C.shape


@pytest.mark.parametrize("config", LAYER_CONFIGS)
def test_channels_of_an_output_are_grouped(config: Any) -> None:
    torch.manual_seed(0)
    both = config(state_size=6, channels=2).build(3).double()
    x = torch.randn(2, 9, 3, dtype=torch.float64)
    for channel in range(2):
        one = config(state_size=6).build(3).double()
        weights = both.state_dict()
        one.load_state_dict({**weights, "C": weights["C"][[channel]], "D": weights["D"][[channel]]})
        torch.testing.assert_close(one(x), both(x)[..., 3 * channel : 3 * channel + 3])


FREEZING = {
    "train_state_matrix": {"log_decay", "frequency", "P", "A"},
    "train_input_matrix": {"B"},
    "train_step_size": {"log_step_size"},
}


@pytest.mark.parametrize("option", list(FREEZING))
@pytest.mark.parametrize("config", LAYER_CONFIGS)
def test_frozen_parameters_stay_and_all_others_train(config: Any, option: str) -> None:
    torch.manual_seed(0)
    block = S4Block(4, layer=config(state_size=6, **{option: False}))
    before = {name: parameter.detach().clone() for name, parameter in block.named_parameters()}
    optimizer = torch.optim.SGD(block.parameters(), lr=0.1)
    block(torch.randn(3, 9, 4)).square().mean().backward()
    optimizer.step()
    frozen = {f"layer.{name}" for name in FREEZING[option]} & set(before)
    assert frozen
    for name, parameter in block.named_parameters():
        changed = not torch.equal(parameter, before[name])
        assert changed == (name not in frozen), name
        assert (parameter.grad is None) == (name in frozen), name


def test_repr_tells_what_a_layer_is() -> None:
    text = repr(S4(4, state_size=6, channels=2, bidirectional=True))
    for piece in ("features=4", "state_size=6", "channels=2", "bidirectional=True"):
        assert piece in text


def test_an_option_of_a_nested_config_gets_its_place() -> None:
    with refuses("SequenceModelConfig has no option 'state_size'", "S4Config, the field 'layer'"):
        SequenceModel(state_size=32)


def test_a_fractional_state_size_is_refused() -> None:
    with refuses("state_size is 16.0", "whole number"):
        S4(4, state_size=16.0)
