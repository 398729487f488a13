"""A step in one call is the step that the modules describe."""

import pytest
import torch

from torchs4 import S4, S4D, S4Block, S4Config, S4DConfig, ops
from torchs4.ops import cpu, reference

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


def block_and_inputs(layer, features, batch, dtype):
    torch.manual_seed(0)
    block = S4Block(features, layer=layer).to(dtype).eval()
    for parameter in block.norm.parameters():
        torch.nn.init.normal_(parameter)
    state = torch.randn(batch, features, layer.state_size, dtype=dtype)
    return block, torch.randn(batch, features, dtype=dtype), state


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("features", [1, 3, 8, 17])
@pytest.mark.parametrize(
    "layer",
    [
        S4Config(state_size=16),
        S4Config(state_size=6),
        S4Config(state_size=8, start="legt", channels=2),
        S4DConfig(state_size=8),
    ],
)
def test_one_call_equals_module_by_module(layer, features, batch, dtype):
    block, x, state = block_and_inputs(layer, features, batch, dtype)
    with torch.no_grad():
        assert block._steps_in_one_call(x)
        y, new_state = block.step(x, state)
        middle, expected_state = block.layer.step(block.norm.step(x), state)
        expected = block._finish(x, middle)
    assert y.dtype == dtype
    assert (y - expected).abs().max() <= TOLERANCE[dtype] * (1 + expected.abs().max())
    assert (new_state - expected_state).abs().max() <= TOLERANCE[dtype] * (1 + expected_state.abs().max())


def test_implementations_agree():
    block, x, state = block_and_inputs(S4Config(state_size=8), 9, 2, torch.float64)
    with torch.no_grad():
        system, C = block.layer.recurrence(state, 2, 1.0)
        norm, mixing = block.norm.norm, block.mixing
        arguments = (x, norm.weight, norm.bias, norm.eps, system, C, block.layer.D)
        arguments = (*arguments, mixing.weight, mixing.bias, state)
        for a, b in zip(cpu.block_step(*arguments), reference.block_step(*arguments), strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    "options",
    [
        {"norm": "batch"},
        {"pre_norm": False},
        {"activation": "relu"},
        {"mixing": "linear"},
        {"residual": False},
    ],
)
def test_unusual_blocks_go_module_by_module(options):
    block = S4Block(4, layer=S4Config(state_size=4), **options).eval()
    with torch.no_grad():
        assert not block._steps_in_one_call(torch.randn(1, 4))


def test_gradients_and_half_precision_go_module_by_module():
    block, x, _ = block_and_inputs(S4Config(state_size=4), 4, 1, torch.float32)
    assert not block._steps_in_one_call(x)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert not block._steps_in_one_call(x)
    with torch.no_grad():
        assert not block.bfloat16()._steps_in_one_call(x.bfloat16())


@pytest.mark.parametrize("part", ["layer", "norm", "mixing"])
def test_parts_in_another_precision_are_never_read_as_if_they_were_not(part):
    block, x, _ = block_and_inputs(S4Config(state_size=8), 8, 1, torch.float32)
    with torch.no_grad():
        expected = block.double().step(x.double(), block.initial_state(1))[0]
        block.float()
        getattr(block, part).double()
        try:
            actual = block.step(x, block.initial_state(1))[0]
        except RuntimeError:
            # PyTorch refuses to mix precisions in a matrix product; that is fine, reading wrong bytes is not.
            return
    assert (actual - expected).abs().max() <= 1e-4 * (1 + expected.abs().max())


@pytest.mark.parametrize("name", ["norm_weight", "D", "mixing_weight", "state"])
def test_what_has_no_bounds_is_checked_before_its_address_is_taken(name):
    block, x, state = block_and_inputs(S4Config(state_size=8), 8, 1, torch.float32)
    with torch.no_grad():
        system, C = block.layer.recurrence(state, 1, 1.0)
    norm, mixing = block.norm.norm, block.mixing
    arguments = {
        "x": x,
        "norm_weight": norm.weight,
        "norm_bias": norm.bias,
        "epsilon": norm.eps,
        "system": system,
        "C": C,
        "D": block.layer.D,
        "mixing_weight": mixing.weight,
        "mixing_bias": mixing.bias,
        "state": state,
    }
    wrong = {**arguments, name: arguments[name][..., :-1]}
    with pytest.raises(ValueError, match=r"has shape .*; expected"):
        cpu.block_step(**wrong)
    elsewhere = {**arguments, name: arguments[name].to("meta")}
    with pytest.raises(ValueError, match=f"{name} is on meta"):
        cpu.block_step(**elsewhere)


def test_a_state_of_another_batch_is_refused_here_too():
    block, x, state = block_and_inputs(S4Config(state_size=4), 4, 2, torch.float32)
    with torch.no_grad(), pytest.raises(ValueError, match=r"expected a tensor of shape \(1, 4, 4\)"):
        block.step(x[:1], state)


def test_new_weights_are_noticed():
    block, x, state = block_and_inputs(S4Config(state_size=4), 4, 1, torch.float64)
    with torch.no_grad():
        before = block.step(x, state)[0]
        for parameter in block.parameters():
            parameter.data.mul_(1.1)
            after = block.step(x, state)[0]
            assert not torch.equal(before, after)
            before = after


@pytest.mark.parametrize("build", [S4, S4D])
def test_a_parametrised_weight_steps_like_a_plain_one(build):
    torch.manual_seed(0)
    layer = build(3, state_size=4)
    x, state = torch.randn(1, 3), layer.initial_state(1)
    with torch.no_grad():
        expected = layer.step(x, state)[0]
        torch.nn.utils.parametrize.register_parametrization(layer, "C", torch.nn.Identity())
        torch.testing.assert_close(layer.step(x, state)[0], expected)
    assert set(layer.ssm_parameters()) >= {"C"}
    assert ops.get_implementation() == "auto"
