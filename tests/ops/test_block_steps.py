"""A step in one call is the step that the modules describe."""

import copy
import pickle
import sys

import pytest
import torch
from torch.nn.utils import prune

from torchs4 import S4, S4D, BlockStack, S4Block, S4BlockConfig, S4Config, S4DConfig, ops
from torchs4.ops import cpu, reference

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12}


def prepare(block, x):
    return block._fused_steps.prepare([block.step_parts()], x, 1.0)


def randomise_norms(module):
    """Norms that do something to every feature, with statistics that are not those at the start."""
    for norm in module.modules():
        if isinstance(norm, torch.nn.LayerNorm | torch.nn.BatchNorm1d):
            for parameter in norm.parameters():
                torch.nn.init.normal_(parameter)
        if isinstance(norm, torch.nn.BatchNorm1d):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.1, 3)


def block_and_inputs(layer, features, batch, dtype, norm="layer"):
    torch.manual_seed(0)
    block = S4Block(features, layer=layer, norm=norm).to(dtype).eval()
    randomise_norms(block)
    state = torch.randn(batch, features, layer.state_size, dtype=dtype)
    return block, torch.randn(batch, features, dtype=dtype), state


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("batch", [1, 9, 16])
@pytest.mark.parametrize("features", [1, 3, 8, 17])
@pytest.mark.parametrize(
    ("layer", "norm"),
    [
        (S4Config(state_size=16), "layer"),
        (S4Config(state_size=16), "batch"),
        (S4Config(state_size=6), "layer"),
        (S4Config(state_size=8, start="legt", channels=2), "batch"),
        (S4DConfig(state_size=8), "layer"),
    ],
)
def test_one_call_equals_module_by_module(layer, norm, features, batch, dtype):
    block, x, state = block_and_inputs(layer, features, batch, dtype, norm)
    with torch.no_grad():
        assert prepare(block, x) is not None
        y, new_state = block.step(x, state)
        middle, expected_state = block.layer.step(block.norm(x), state)
        expected = block._finish(x, middle)
    assert y.dtype == dtype
    assert (y - expected).abs().max() <= TOLERANCE[dtype] * (1 + expected.abs().max())
    assert (new_state - expected_state).abs().max() <= TOLERANCE[dtype] * (1 + expected_state.abs().max())


def weights_of(block):
    with torch.no_grad():
        system, C = block.layer.recurrence(1.0)
    norm, mixing = norm_weights_of(block.norm), block.mixing
    return ops.BlockWeights(norm, system, C, block.layer.D, mixing.weight, mixing.bias)


def norm_weights_of(outer):
    norm = outer.norm
    statistics = getattr(norm, "running_mean", None), getattr(norm, "running_var", None)
    return ops.NormWeights(norm.weight, norm.bias, norm.eps, *statistics)


@pytest.mark.parametrize("norm", ["layer", "batch"])
@pytest.mark.parametrize("blocks", [1, 3])
def test_implementations_agree(blocks, norm):
    torch.manual_seed(0)
    stack = BlockStack(9, blocks, S4BlockConfig(layer=S4Config(state_size=8), norm=norm)).double()
    randomise_norms(stack)
    weights = [weights_of(block) for block in stack.blocks]
    x, states = torch.randn(2, 9).double(), [torch.randn(2, 9, 8).double() for _ in weights]
    with torch.no_grad():
        for after in (None, norm_weights_of(stack.norm)):
            y, new_states = cpu.PreparedBlocks(weights, after).step(x, states)
            expected, expected_states = reference.PreparedBlocks(weights, after).step(x, states)
            torch.testing.assert_close([y, *new_states], [expected, *expected_states])


@pytest.mark.parametrize("sequences", [1, 4, 7])
@pytest.mark.parametrize("features", [9, 130])
def test_wide_blocks_and_many_threads_agree(features, sequences, monkeypatch):
    torch.manual_seed(0)
    stack = BlockStack(features, 2, S4BlockConfig(layer=S4Config(state_size=16)))
    weights, after = [weights_of(block) for block in stack.blocks], norm_weights_of(stack.norm)
    x, states = torch.randn(sequences, features), [torch.randn(sequences, features, 16) for _ in weights]
    with torch.no_grad():
        expected, expected_states = reference.PreparedBlocks(weights, after).step(x, states)
        found = [cpu.PreparedBlocks(weights, after).step(x, states)]
        monkeypatch.setattr("torchs4.ops.cpu.block_steps._MANY_PRODUCTS", 1)
        found.append(cpu.PreparedBlocks(weights, after).step(x, states))
        # The name of the module is the function's, too.
        monkeypatch.setattr(sys.modules["torchs4.ops.cpu.modal_step"], "_WORTH_A_THREAD", 1)
        before = torch.get_num_threads()
        torch.set_num_threads(2)
        try:
            found.append(cpu.PreparedBlocks(weights, after).step(x, states))
        finally:
            torch.set_num_threads(before)
    for y, new_states in found:
        torch.testing.assert_close([y, *new_states], [expected, *expected_states], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("norm", ["layer", "batch"])
@pytest.mark.parametrize("implementation", ["cpu", "reference"])
def test_a_stack_steps_like_its_blocks(implementation, norm):
    torch.manual_seed(0)
    stack = BlockStack(9, 3, S4BlockConfig(layer=S4Config(state_size=8), norm=norm)).double().eval()
    randomise_norms(stack)
    x, states = torch.randn(2, 9).double(), tuple(torch.randn(2, 9, 8).double() for _ in range(3))
    before = ops.get_implementation()
    ops.set_implementation(implementation)
    try:
        with torch.no_grad():
            y, new_states = stack.step(x, states)
        expected, expected_states = x, []
        # With gradients on, module by module.
        for block, state in zip(stack.blocks, states, strict=True):
            expected, new_state = block.step(expected, state)
            expected_states.append(new_state.detach())
    finally:
        ops.set_implementation(before)
    torch.testing.assert_close(
        [y, *new_states], [stack.norm(expected).detach(), *expected_states], rtol=1e-10, atol=1e-10
    )


@pytest.mark.parametrize(
    "options",
    [
        {"norm": "none"},
        {"pre_norm": False},
        {"activation": "relu"},
        {"mixing": "linear"},
        {"residual": False},
    ],
)
def test_unusual_blocks_go_module_by_module(options):
    block = S4Block(4, layer=S4Config(state_size=4), **options).eval()
    with torch.no_grad():
        assert prepare(block, torch.randn(1, 4)) is None


def test_gradients_and_half_precision_go_module_by_module():
    block, x, _ = block_and_inputs(S4Config(state_size=4), 4, 1, torch.float32)
    assert prepare(block, x) is None
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert prepare(block, x) is None
    with torch.no_grad():
        assert prepare(block.bfloat16(), x.bfloat16()) is None


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


@pytest.mark.parametrize("name", ["D", "mixing_weight"])
def test_what_has_no_bounds_is_checked_before_its_address_is_taken(name):
    block, _, _ = block_and_inputs(S4Config(state_size=8), 8, 1, torch.float32)
    weights = weights_of(block)
    wrong = weights._replace(**{name: getattr(weights, name)[..., :-1]})
    with pytest.raises(ValueError, match=r"has shape .*; expected"):
        cpu.PreparedBlocks([wrong])
    elsewhere = weights._replace(**{name: getattr(weights, name).to("meta")})
    with pytest.raises(ValueError, match=f"{name} is on meta"):
        cpu.PreparedBlocks([elsewhere])


@pytest.mark.parametrize("name", ["weight", "bias", "mean", "variance"])
@pytest.mark.parametrize("place", ["in a block", "after the blocks"])
def test_norms_without_bounds_are_checked_too(name, place):
    block, _, _ = block_and_inputs(S4Config(state_size=8), 8, 1, torch.float32, "batch")
    weights = weights_of(block)
    wrong = weights.norm._replace(**{name: getattr(weights.norm, name)[:-1]})
    given = ([weights._replace(norm=wrong)], None) if place == "in a block" else ([weights], wrong)
    with pytest.raises(ValueError, match=rf"norm_{name} has shape \(7,\); expected \(8,\)"):
        cpu.PreparedBlocks(*given)


def test_inputs_and_states_without_bounds_are_checked_too():
    block, x, state = block_and_inputs(S4Config(state_size=8), 8, 1, torch.float32)
    prepared = cpu.PreparedBlocks([weights_of(block)])
    with pytest.raises(ValueError, match=r"state has shape \(1, 8, 7\); expected \(1, 8, 8\)"):
        prepared.step(x, [state[..., :-1]])
    with pytest.raises(ValueError, match=r"x has shape \(1, 7\); expected \(1, 8\)"):
        prepared.step(x[:, :-1], [state])
    with pytest.raises(ValueError, match="There are 2 states for 1 blocks"):
        prepared.step(x, [state, state])


OTHER_TYPES = [torch.bfloat16, torch.float16, torch.int64]


@pytest.mark.parametrize("dtype", [*OTHER_TYPES, torch.float64])
def test_inputs_and_states_of_another_type_are_refused(dtype):
    block, x, state = block_and_inputs(S4Config(state_size=8), 8, 1, torch.float32)
    prepared = ops.prepare_blocks([weights_of(block)])
    with pytest.raises(ValueError, match=f"^state has dtype {dtype}, the weights have torch.float32. Try"):
        prepared.step(x, [state.to(dtype)])
    with pytest.raises(ValueError, match=f"^x has dtype {dtype}, the weights have torch.float32. Try"):
        prepared.step(x.to(dtype), [state])


@pytest.mark.parametrize("dtype", OTHER_TYPES)
def test_weights_and_states_of_a_type_without_compiled_code_are_refused(dtype):
    block, x, state = block_and_inputs(S4Config(state_size=8), 8, 1, torch.float32)
    weights = weights_of(block)
    with pytest.raises(ValueError, match=f"^mixing_weight has dtype {dtype}; a compiled step takes"):
        ops.prepare_blocks([weights._replace(mixing_weight=weights.mixing_weight.detach().to(dtype))])
    with torch.no_grad(), pytest.raises(ValueError, match=f"^state has dtype {dtype}; a compiled step takes"):
        ops.dplr_step(weights.system, weights.C, weights.D, x, state.to(dtype))


def test_another_module_in_the_place_of_ours_is_used():
    block, x, state = block_and_inputs(S4Config(state_size=4), 4, 1, torch.float32)

    class Doubled(torch.nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    with torch.no_grad():
        before = block.step(x, state)[0]
        other = Doubled(4, 8)
        other.load_state_dict(block.mixing.state_dict())
        block.mixing = other
        middle, _ = block.layer.step(block.norm(x), state)
        expected = block._finish(x, middle)
        assert not torch.allclose(expected, before)
        torch.testing.assert_close(block.step(x, state)[0], expected)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_a_mixing_without_bias_steps_too(mode):
    block, x, state = block_and_inputs(S4Config(state_size=4), 4, 1, torch.float32)
    block.mixing = torch.nn.Linear(4, 8, bias=False)
    with mode():
        y = block.step(x, state)[0]
        middle, _ = block.layer.step(block.norm(x), state)
        expected = x + torch.nn.functional.glu(block.mixing(torch.nn.functional.gelu(middle)))
    torch.testing.assert_close(y, expected)


@pytest.mark.parametrize("twin_of", [copy.deepcopy, lambda stack: pickle.loads(pickle.dumps(stack))])
def test_a_copy_reads_its_own_weights(twin_of):
    torch.manual_seed(0)
    stack = BlockStack(4, 2, S4BlockConfig(layer=S4Config(state_size=4))).eval()
    x = torch.randn(1, 4)
    with torch.no_grad():
        expected = stack.step(x, stack.initial_state(1))[0]
        twin = twin_of(stack)
        for parameter in stack.parameters():
            parameter.zero_()
        assert torch.equal(twin.step(x, twin.initial_state(1))[0], expected)
        assert not torch.equal(stack.step(x, stack.initial_state(1))[0], expected)


@pytest.mark.parametrize("module", ["block", "stack"])
def test_bidirectional_blocks_say_that_they_cannot_step(module):
    config = S4BlockConfig(layer=S4Config(state_size=4, bidirectional=True))
    built = S4Block(4, config) if module == "block" else BlockStack(4, 1, config)
    state = torch.zeros(1, 4, 4)
    with torch.no_grad(), pytest.raises(ValueError, match="A bidirectional layer needs the whole sequence"):
        built.step(torch.randn(1, 4), state if module == "block" else (state,))


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
        for parameter in block.parameters():
            parameter.data = parameter.data * 1.1
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


def assert_steps_like_its_modules(stack):
    """With gradients on, blocks go module by module."""
    x, state = torch.randn(2, stack.features, dtype=stack.blocks[0].layer.D.dtype), stack.initial_state(2)
    expected = stack.step(x, state)[0].detach()
    with torch.no_grad():
        torch.testing.assert_close(stack.step(x, state)[0], expected, rtol=1e-4, atol=1e-5)


def test_every_block_has_its_own_epsilon_and_changes_of_it_are_noticed():
    torch.manual_seed(0)
    stack = BlockStack(8, 3, S4BlockConfig(layer=S4Config(state_size=8))).eval()
    assert_steps_like_its_modules(stack)
    for block, epsilon in zip(stack.blocks, (1e-5, 0.3, 2.0), strict=True):
        block.norm.norm.eps = epsilon
    assert_steps_like_its_modules(stack)
    stack.blocks[0].norm.norm.eps = 0.5
    assert_steps_like_its_modules(stack)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_new_running_statistics_are_noticed_in_blocks_and_after_them(dtype):
    torch.manual_seed(0)
    stack = BlockStack(8, 2, S4BlockConfig(layer=S4Config(state_size=8), norm="batch")).to(dtype)
    for _ in range(2):
        stack.train()(3 * torch.randn(4, 20, 8, dtype=dtype) + 1)
        stack.eval()
        assert_steps_like_its_modules(stack)
    for norm in (stack.blocks[1].norm.norm, stack.norm.norm):
        norm.running_mean.data.add_(1)
        assert_steps_like_its_modules(stack)
        norm.running_var = norm.running_var * 4
        assert_steps_like_its_modules(stack)
        norm.reset_running_stats()
        assert_steps_like_its_modules(stack)


def test_batch_norm_that_is_still_training_steps_by_its_running_statistics():
    torch.manual_seed(0)
    stack = BlockStack(8, 2, S4BlockConfig(layer=S4Config(state_size=8), norm="batch")).train()
    randomise_norms(stack)
    assert_steps_like_its_modules(stack)


def _without_statistics(norm):
    norm.norm = torch.nn.BatchNorm1d(8, track_running_stats=False)


def _without_weights(norm):
    norm.norm = torch.nn.BatchNorm1d(8, affine=False)


def _with_hook(norm):
    norm.norm.register_forward_hook(lambda module, inputs, output: 2 * output)


def _with_outer_hook(norm):
    norm.register_forward_hook(lambda module, inputs, output: 2 * output)


def _replaced(norm):
    norm.norm = torch.nn.Identity()


@pytest.mark.parametrize("place", ["stack", "block"])
@pytest.mark.parametrize(
    "change", [_without_statistics, _without_weights, _with_hook, _with_outer_hook, _replaced]
)
def test_an_unusual_norm_goes_module_by_module(place, change):
    torch.manual_seed(0)
    stack = BlockStack(8, 2, S4BlockConfig(layer=S4Config(state_size=8), norm="batch")).eval()
    randomise_norms(stack)
    assert_steps_like_its_modules(stack)
    change(stack.norm if place == "stack" else stack.blocks[1].norm)
    stack.eval()
    assert_steps_like_its_modules(stack)


def test_statistics_of_another_type_are_never_read_as_if_they_were_not():
    torch.manual_seed(0)
    stack = BlockStack(8, 2, S4BlockConfig(layer=S4Config(state_size=8), norm="batch")).eval()
    stack.norm.norm.running_mean = stack.norm.norm.running_mean.double()
    with torch.no_grad():
        parts = [block.step_parts() for block in stack.blocks]
        assert stack._fused_steps.prepare(parts, torch.randn(2, 8), 1.0, stack.norm.norm) is None


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
@pytest.mark.parametrize("part", ["norm.norm", "mixing"])
def test_weights_that_a_hook_computes_are_the_newest(part):
    torch.manual_seed(0)
    stack = BlockStack(8, 2, S4BlockConfig(layer=S4Config(state_size=8))).eval()
    assert_steps_like_its_modules(stack)
    module = stack.blocks[1].get_submodule(part)
    prune.random_unstructured(module, "weight", amount=0.5)
    assert_steps_like_its_modules(stack)
    module.weight_orig.data.mul_(3)
    assert_steps_like_its_modules(stack)
    prune.remove(module, "weight")
    torch.nn.utils.weight_norm(stack.blocks[0].mixing)
    assert_steps_like_its_modules(stack)
    stack.blocks[0].mixing.weight_g.data.mul_(3)
    assert_steps_like_its_modules(stack)
