"""What people do to modules acts alike in forward, prefill and step: hooks, wrappers, other weights."""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune, weight_norm

from torchs4 import BlockStack, LSTMConfig, S4Block, S4BlockConfig, S4Config, S4DConfig, TransformerConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FEATURES = 4
# Sums over a short sequence in another order.
TOLERANCE = 1e-10
LAYERS = {
    "s4": S4Config(state_size=4),
    "s4d": S4DConfig(state_size=4),
    "lstm": LSTMConfig(),
    "transformer": TransformerConfig(heads=2),
}
PARTS = ["norm", "norm.norm", "layer", "dropout", "mixing"]

old_weight_norm = pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")


def build_block(kind: str = "s4", **options: Any) -> S4Block:
    torch.manual_seed(0)
    return S4Block(FEATURES, layer=LAYERS[kind], dropout=0.1, **options).double().eval()


def build_stack() -> BlockStack:
    torch.manual_seed(0)
    return BlockStack(FEATURES, 2, S4BlockConfig(layer=LAYERS["s4"])).double().eval()


def outputs(module: Any) -> dict[str, Tensor]:
    """What each verb makes of one sequence."""
    torch.manual_seed(1)
    x = torch.randn(2, 12, FEATURES, dtype=torch.float64)
    with torch.no_grad():
        first, state = module.prefill(x[:, :5])
        second, _ = module.prefill(x[:, 5:], state)
        state, steps = module.initial_state(2), []
        for position in range(12):
            y, state = module.step(x[:, position], state)
            steps.append(y)
        return {"forward": module(x), "prefill": torch.cat([first, second], 1), "step": torch.stack(steps, 1)}


def assert_alike(module: Any, other_than: Any = None) -> None:
    """All verbs agree; if there is a module from before, they give something else than it did."""
    now = outputs(module)
    for verb, y in now.items():
        torch.testing.assert_close(y, now["forward"], rtol=0, atol=TOLERANCE, msg=verb)
    if other_than is not None:
        assert not torch.allclose(now["forward"], outputs(other_than)["forward"])


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", list(LAYERS))
def test_a_forward_hook_acts_in_every_verb(kind: str, part: str) -> None:
    block = build_block(kind)
    plain = copy.deepcopy(block)
    handle = block.get_submodule(part).register_forward_hook(lambda module, inputs, output: 2 * output)
    assert_alike(block, other_than=plain)
    handle.remove()
    torch.testing.assert_close(outputs(block), outputs(plain))


@pytest.mark.parametrize("part", PARTS)
def test_a_hook_before_the_call_acts_in_every_verb(part: str) -> None:
    block = build_block()
    plain = copy.deepcopy(block)

    def shift(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        return inputs[0] + torch.arange(inputs[0].shape[-1]), *inputs[1:]

    block.get_submodule(part).register_forward_pre_hook(shift)
    assert_alike(block, other_than=plain)


def test_hooks_with_keywords_act_in_every_verb() -> None:
    block = build_block()
    plain = copy.deepcopy(block)
    block.layer.register_forward_pre_hook(
        lambda module, inputs, options: (inputs, {**options, "rate": 2 * options["rate"]}), with_kwargs=True
    )
    block.layer.register_forward_hook(
        lambda module, inputs, options, output: options["rate"] * output, with_kwargs=True
    )
    assert_alike(block, other_than=plain)


@pytest.mark.parametrize("build", [build_block, build_stack])
def test_global_hooks_act_in_every_verb(build: Callable[[], Any]) -> None:
    module = build()

    def double_layers(called: nn.Module, inputs: Any, output: Any) -> Any:
        return (
            2 * output if isinstance(called, nn.Linear | nn.LayerNorm) or hasattr(called, "kernel") else None
        )

    handle = nn.modules.module.register_module_forward_hook(double_layers)
    try:
        hooked = outputs(module)
        assert_alike(module)
    finally:
        handle.remove()
    assert not torch.allclose(hooked["forward"], outputs(module)["forward"])


@pytest.mark.parametrize("place", ["blocks.0", "blocks.1", "norm", "blocks.1.mixing"])
def test_hooks_inside_a_stack_act_in_every_verb(place: str) -> None:
    stack = build_stack()
    plain = copy.deepcopy(stack)
    stack.get_submodule(place).register_forward_hook(lambda module, inputs, output: output.flip(-1))
    assert_alike(stack, other_than=plain)


def test_a_hook_that_only_looks_sees_every_step() -> None:
    stack, seen = build_stack(), []
    stack.blocks[1].register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
    outputs(stack)
    assert seen == [(2, 5, 4), (2, 7, 4), *[(2, 4)] * 12, (2, 12, 4)]


def test_a_backward_hook_of_the_mixing_is_called() -> None:
    block, seen = build_block(), []
    block.mixing.register_full_backward_hook(lambda module, inputs, outputs: seen.append(outputs[0].shape))
    block(torch.randn(2, 12, FEATURES, dtype=torch.float64)).sum().backward()
    assert seen == [(2, 12, 2 * FEATURES)]


def test_a_forward_of_its_own_acts_in_every_verb() -> None:
    block = build_block()
    plain, inner = copy.deepcopy(block), block.mixing.forward
    block.mixing.forward = lambda x: 2 * inner(x)
    assert_alike(block, other_than=plain)


@old_weight_norm
@pytest.mark.parametrize("normalise", [parametrizations.weight_norm, weight_norm], ids=["new", "old"])
def test_weight_norm_acts_in_every_verb(normalise: Callable[[nn.Module], nn.Module]) -> None:
    block = build_block()
    plain = copy.deepcopy(block)
    normalise(block.mixing)
    # Nothing is normalised anew: the same function.
    torch.testing.assert_close(outputs(block)["forward"], outputs(plain)["forward"])
    with torch.no_grad():
        for name, parameter in block.mixing.named_parameters():
            if name.endswith(("weight_g", "original0")):
                parameter.mul_(3)
    assert_alike(block, other_than=plain)


@pytest.mark.parametrize("place", ["mixing", "norm.norm"])
def test_pruning_acts_in_every_verb(place: str) -> None:
    block = build_block()
    plain = copy.deepcopy(block)
    part = block.get_submodule(place)
    prune.random_unstructured(part, "weight", amount=0.5)
    prune.random_unstructured(part, "bias", amount=0.5)
    with torch.no_grad():
        part.weight_orig.mul_(3)
        part.bias_orig.add_(1)
    assert_alike(block, other_than=plain)


@old_weight_norm
@pytest.mark.parametrize("kind", ["s4", "s4d"])
def test_a_pruned_or_normalised_state_space_layer_acts_alike_in_every_verb(kind: str) -> None:
    block = build_block(kind)
    plain = copy.deepcopy(block)
    prune.random_unstructured(block.layer, "D", amount=0.5)
    weight_norm(block.layer, "C")
    with torch.no_grad():
        block.layer.D_orig.add_(1)
        block.layer.C_g.mul_(3)
    assert_alike(block, other_than=plain)


class LoRA(nn.Module):
    """A frozen linear map and a small one that trains beside it."""

    def __init__(self, frozen: nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Linear(frozen.in_features, rank, bias=False)
        self.up = nn.Linear(rank, frozen.out_features, bias=False)

    @property
    def weight(self) -> Tensor:
        """The frozen weight, as wrappers like to show it."""
        return self.frozen.weight

    @property
    def bias(self) -> Tensor:
        """The frozen bias."""
        return self.frozen.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(x) + self.up(self.down(x))


def test_lora_around_the_mixing_acts_in_every_verb_and_trains() -> None:
    block = build_block()
    plain = copy.deepcopy(block)
    block.mixing = LoRA(block.mixing).double()
    assert_alike(block, other_than=plain)
    block(torch.randn(2, 12, FEATURES, dtype=torch.float64)).square().sum().backward()
    assert block.mixing.up.weight.grad.abs().max() > 0
    assert block.mixing.frozen.weight.grad is None


@pytest.mark.parametrize(
    "mixing",
    [
        lambda: nn.Linear(FEATURES, 2 * FEATURES, bias=False),
        lambda: nn.Sequential(nn.Linear(FEATURES, 7), nn.ReLU(), nn.Linear(7, 2 * FEATURES)),
    ],
    ids=["no-bias", "sequential"],
)
@pytest.mark.parametrize("tied_dropout", [False, True])
def test_another_mixing_is_used_in_every_verb(mixing: Callable[[], nn.Module], tied_dropout: bool) -> None:
    block = build_block(tied_dropout=tied_dropout)
    plain = copy.deepcopy(block)
    block.mixing = mixing().double()
    assert_alike(block, other_than=plain)
    # Training with dropout takes another way.
    assert block.train()(torch.randn(2, 12, FEATURES, dtype=torch.float64)).isfinite().all()


@pytest.mark.parametrize("norm", [nn.Identity, nn.LayerNorm, nn.RMSNorm], ids=lambda norm: norm.__name__)
@pytest.mark.parametrize("pre_norm", [True, False])
def test_one_of_pytorchs_norms_in_the_place_of_ours(norm: type, pre_norm: bool) -> None:
    block = build_block(pre_norm=pre_norm)
    block.norm = (norm() if norm is nn.Identity else norm(FEATURES)).double()
    assert_alike(block)
    x = torch.randn(2, 12, FEATURES, dtype=torch.float64)
    torch.testing.assert_close(block(x, lengths=[12, 5])[1, :5], block(x[1:, :5])[0])


@pytest.mark.parametrize(
    "dropout", [nn.Identity(), nn.Dropout(0.5), nn.Tanh()], ids=lambda m: type(m).__name__
)
def test_another_dropout_is_used_in_every_verb(dropout: nn.Module) -> None:
    block = build_block()
    block.dropout = dropout.eval()
    assert_alike(block)
    assert block.train()(torch.randn(2, 12, FEATURES, dtype=torch.float64)).isfinite().all()


class Doubled(nn.Module):
    """What another module does, times two."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor, **options: Any) -> Tensor:
        return 2 * self.inner(x, **options)

    def prefill(self, x: Tensor, state: Any = None, rate: float = 1.0) -> tuple[Tensor, Any]:
        y, state = self.inner.prefill(x, state, rate)
        return 2 * y, state

    def step(self, x_t: Tensor, state: Any, rate: float = 1.0) -> tuple[Tensor, Any]:
        y, state = self.inner.step(x_t, state, rate)
        return 2 * y, state

    def initial_state(self, batch_size: int) -> Any:
        return self.inner.initial_state(batch_size)


def test_a_wrapped_layer_is_used_in_every_verb() -> None:
    block = build_block()
    plain = copy.deepcopy(block)
    block.layer = Doubled(block.layer)
    assert_alike(block, other_than=plain)


def test_a_subclass_of_a_layer_is_used_in_every_verb() -> None:
    block = build_block()
    plain = copy.deepcopy(block)
    kind = type(block.layer)

    class Halved(kind):  # type: ignore[misc, valid-type]
        def forward(self, *inputs: Any, **options: Any) -> Tensor:
            return super().forward(*inputs, **options) / 2

        def prefill(self, *inputs: Any) -> Any:
            y, state = super().prefill(*inputs)
            return y / 2, state

        def step(self, *inputs: Any) -> Any:
            y, state = super().step(*inputs)
            return y / 2, state

    block.layer.__class__ = Halved
    assert_alike(block, other_than=plain)


def test_another_module_in_the_place_of_a_block_steps_too() -> None:
    stack = build_stack()
    plain = copy.deepcopy(stack)
    stack.blocks[0] = Doubled(stack.blocks[0])
    assert_alike(stack, other_than=plain)


@pytest.mark.filterwarnings(
    "ignore:torch.ao.quantization is deprecated", "ignore:.*torch.quantize_per_tensor"
)
def test_a_mixing_in_int8_is_used_in_every_verb() -> None:
    with one_quantization_engine():
        quantize_dynamic = pytest.importorskip("torch.ao.quantization").quantize_dynamic
        block = quantize_dynamic(build_block().float(), {nn.Linear}, dtype=torch.qint8)
        assert not isinstance(block.mixing, nn.Linear)
        x = torch.randn(2, 12, FEATURES)
        with torch.no_grad():
            whole, chunk = block(x), block.prefill(x)[0]
            y, _ = block.step(x[:, 0], block.initial_state(2))
    # Each call measures the range of its own input before it rounds to 1/255 of it.
    torch.testing.assert_close(chunk, whole, rtol=0, atol=0.05)
    torch.testing.assert_close(y, whole[:, 0], rtol=0, atol=0.05)


@contextmanager
def one_quantization_engine() -> Iterator[None]:
    before = torch.backends.quantized.engine
    engines = [engine for engine in torch.backends.quantized.supported_engines if engine != "none"]
    if not engines:
        pytest.skip("This PyTorch has no int8 kernels.")
    torch.backends.quantized.engine = engines[-1]
    try:
        yield
    finally:
        torch.backends.quantized.engine = before


def test_batch_norm_inside_may_be_hooked_or_frozen() -> None:
    torch.manual_seed(0)
    block = S4Block(FEATURES, layer=LAYERS["s4"], norm="batch")
    seen: list[int] = []
    block.norm.norm.register_forward_hook(lambda module, inputs, output: seen.append(len(inputs[0])))
    x = torch.randn(2, 12, FEATURES)
    block(x, lengths=[12, 5])
    assert seen == [17]
    block.norm.norm.eval()
    before = block.norm.norm.running_mean.clone()
    block(x, lengths=[12, 5])
    assert torch.equal(block.norm.norm.running_mean, before)
