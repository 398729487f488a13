"""Which parameters an optimiser treats how."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

from torchs4 import LSSLConfig, S4BlockConfig, S4Config, S4DConfig, SequenceModel, parameter_groups
from torchs4.layers import SSMLayer

LAYERS = {"s4": S4Config, "s4d": S4DConfig, "lssl": LSSLConfig}
every_kind = pytest.mark.parametrize("kind", list(LAYERS))


def build(kind: str = "s4", norm: str = "layer", tokens: bool = False, **options: Any) -> SequenceModel:
    torch.manual_seed(0)
    block = S4BlockConfig(layer=LAYERS[kind](state_size=8, **options), norm=norm)
    vocabulary_size = 7 if tokens else None
    return SequenceModel(features=4, num_layers=2, block=block, vocabulary_size=vocabulary_size)


def settings_of(model: nn.Module, **options: Any) -> dict[str, tuple[float, float]]:
    """Learning rate and decay of every parameter that is in a group, by name; none may be in two."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    settings: dict[str, tuple[float, float]] = {}
    for group in parameter_groups(model, **options):
        for parameter in group["params"]:
            name = names[id(parameter)]
            assert name not in settings, f"{name} is in two groups"
            settings[name] = (group["lr"], group["weight_decay"])
    return settings


def state_space_names(model: nn.Module) -> set[str]:
    return {
        f"{prefix}.{name}"
        for prefix, module in model.named_modules()
        if isinstance(module, SSMLayer)
        for name in module.ssm_parameters()
    }


@every_kind
@pytest.mark.parametrize("norm", ["layer", "batch", "none"])
@pytest.mark.parametrize("tokens", [True, False])
def test_every_parameter_is_in_exactly_one_group(kind: str, norm: str, tokens: bool) -> None:
    model = build(kind, norm, tokens)
    assert set(settings_of(model, lr=0.01, weight_decay=0.05)) == {
        name for name, _ in model.named_parameters()
    }


@every_kind
@pytest.mark.parametrize(("lr", "expected"), [(0.01, 1e-3), (1e-3, 1e-3), (1e-4, 1e-4)])
def test_state_space_parameters_are_capped_and_do_not_decay(kind: str, lr: float, expected: float) -> None:
    model = build(kind)
    settings = settings_of(model, lr=lr, weight_decay=0.05)
    names = state_space_names(model)
    assert len(names) == 2 * len(model.stack.blocks[0].layer.ssm_parameters())
    for name in names:
        assert settings[name] == (expected, 0.0), name


@every_kind
def test_the_cap_can_be_chosen(kind: str) -> None:
    model = build(kind)
    settings = settings_of(model, lr=0.01, ssm_lr=5e-3)
    assert {settings[name] for name in state_space_names(model)} == {(5e-3, 0.0)}


@every_kind
@pytest.mark.parametrize("norm", ["layer", "batch"])
def test_biases_and_norms_do_not_decay(kind: str, norm: str) -> None:
    model = build(kind, norm)
    settings = settings_of(model, lr=0.01, weight_decay=0.05)
    names = [name for name in settings if name.endswith("bias") or ".norm." in name]
    assert len(names) > 6
    for name in names:
        assert settings[name] == (0.01, 0.0), name


@every_kind
def test_matrices_decay_at_the_full_rate(kind: str) -> None:
    model = build(kind, tokens=True)
    settings = settings_of(model, lr=0.01, weight_decay=0.05)
    for name in ("encoder.weight", "stack.blocks.0.mixing.weight", "head.weight"):
        assert settings[name] == (0.01, 0.05), name


def test_a_layers_own_parameters_are_those_of_the_method() -> None:
    shared = {"B", "C", "log_step_size"}
    expected = {"s4": {"log_decay", "frequency", "P"}, "s4d": {"log_decay", "frequency"}, "lssl": {"A"}}
    for kind, names in expected.items():
        assert set(build(kind).stack.blocks[0].layer.ssm_parameters()) == shared | names


FREEZING = {
    "train_state_matrix": {"log_decay", "frequency", "P", "A"},
    "train_input_matrix": {"B"},
    "train_step_size": {"log_step_size"},
}


@every_kind
@pytest.mark.parametrize("option", list(FREEZING))
def test_frozen_parameters_are_left_out(kind: str, option: str) -> None:
    model = build(kind, **{option: False})
    left_out = {name for name, _ in model.named_parameters()} - set(settings_of(model, lr=0.01))
    assert left_out == {name for name in state_space_names(model) if name.split(".")[-1] in FREEZING[option]}
    assert left_out


def test_parameters_frozen_by_hand_are_left_out() -> None:
    model = build()
    model.head.requires_grad_(False)
    assert not {"head.weight", "head.bias"} & set(settings_of(model, lr=0.01))


def test_no_group_is_empty() -> None:
    assert len(parameter_groups(nn.Linear(3, 3), lr=0.01)) == 2
    assert len(parameter_groups(nn.Linear(3, 3, bias=False), lr=0.01)) == 1
    assert len(parameter_groups(build(), lr=0.01)) == 3


@every_kind
def test_adamw_takes_a_step_with_every_parameter(kind: str) -> None:
    model = build(kind, norm="batch")
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    optimizer = torch.optim.AdamW(parameter_groups(model, lr=0.01, weight_decay=0.05))
    loss = nn.functional.cross_entropy(model(torch.randn(3, 9, 1)), torch.tensor([0, 1, 2]))
    loss.backward()
    optimizer.step()
    spaces = state_space_names(model)
    for name, parameter in model.named_parameters():
        change = (parameter.detach() - before[name]).abs().max().item()
        # Adam's first step moves by the learning rate, and decay adds lr·decay·weight; float32 rounds large
        # frequencies.
        limit = 1e-3 if name in spaces else 0.01 * (1 + 0.05 * before[name].abs().max().item())
        assert 0 < change <= limit * 1.01 + 1e-6 * before[name].abs().max().item(), name


def test_frozen_parameters_do_not_move_with_decay() -> None:
    model = build(train_state_matrix=False, train_input_matrix=False, train_step_size=False)
    layer = model.stack.blocks[0].layer
    before = {name: value.detach().clone() for name, value in layer.ssm_parameters().items()}
    optimizer = torch.optim.AdamW(parameter_groups(model, lr=0.1, weight_decay=0.5))
    model(torch.randn(3, 9, 1)).square().mean().backward()
    optimizer.step()
    for name, value in layer.ssm_parameters().items():
        assert torch.equal(value, before[name]) == (name != "C"), name
        assert (value.grad is None) == (name != "C"), name


@pytest.mark.parametrize("name", ["lr", "weight_decay", "ssm_lr", "step_size_lr"])
@pytest.mark.parametrize("value", [-0.1, math.nan])
def test_negative_or_missing_numbers_are_refused(name: str, value: float) -> None:
    options = {"lr": 0.01, name: value}
    with pytest.raises(ValueError, match=f"{name} is {value}; it must be at least 0"):
        parameter_groups(build(), **options)


def test_parameters_instead_of_their_module_are_refused() -> None:
    with pytest.raises(ValueError, match="expected the module itself"):
        parameter_groups(torch.nn.Linear(2, 2).parameters(), lr=0.1)


@every_kind
def test_output_matrices_may_be_weights_like_any_other(kind: str) -> None:
    model = build(kind)
    settings = settings_of(model, lr=0.01, weight_decay=0.05, slow_output=False)
    for name in state_space_names(model):
        assert settings[name] == ((0.01, 0.05) if name.endswith(".C") else (1e-3, 0.0)), name


def test_step_sizes_may_have_a_rate_of_their_own() -> None:
    settings = settings_of(build(), lr=0.01, ssm_lr=1e-3, step_size_lr=0.01)
    for name, (rate, decay) in settings.items():
        if name.endswith("log_step_size"):
            assert (rate, decay) == (0.01, 0.0)
        elif name.endswith(("log_decay", "frequency", "layer.B", "layer.C", "layer.P")):
            assert (rate, decay) == (1e-3, 0.0)
