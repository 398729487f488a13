"""`device=` and `dtype=`: the same weights wherever they are asked for."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torchs4 import LSSL, LSTM, S4, S4D, BlockStack, S4Block, S4BlockConfig, S4DConfig, Transformer

BUILDERS: dict[str, Any] = {
    "s4": lambda **place: S4(4, state_size=4, start="random", rank=2, **place),
    "s4d": lambda **place: S4D(4, state_size=4, **place),
    "lssl": lambda **place: LSSL(4, state_size=4, **place),
    "lstm": lambda **place: LSTM(4, **place),
    "transformer": lambda **place: Transformer(4, heads=2, **place),
    "block": lambda **place: S4Block(4, layer=S4DConfig(state_size=4), norm="batch", **place),
    "stack": lambda **place: BlockStack(4, 2, S4BlockConfig(layer=S4DConfig(state_size=4)), **place),
}


@pytest.fixture(params=list(BUILDERS))
def build(request: pytest.FixtureRequest) -> Any:
    def build_seeded(**place: Any) -> Any:
        torch.manual_seed(0)
        return BUILDERS[request.param](**place)

    return build_seeded


def test_a_dtype_is_that_of_all_weights_and_of_the_output(build: Any) -> None:
    module = build(dtype=torch.float64)
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float64}
    assert module(torch.randn(2, 5, 4, dtype=torch.float64)).dtype == torch.float64


def test_the_same_seed_draws_the_same_weights_in_every_dtype(build: Any) -> None:
    for wide, narrow in zip(build(dtype=torch.float64).parameters(), build().parameters(), strict=True):
        assert torch.equal(wide, narrow.double())


def test_a_module_without_memory_has_the_same_shapes(build: Any) -> None:
    module, real = build(device="meta"), build()
    assert {parameter.device.type for parameter in module.parameters()} == {"meta"}
    assert {parameter.device.type for parameter in real.parameters()} == {"cpu"}
    for name, weight in real.state_dict().items():
        assert module.state_dict()[name].shape == weight.shape


def test_a_module_without_memory_takes_weights_later(build: Any) -> None:
    module, real = build(device="meta"), build()
    module.to_empty(device="cpu").load_state_dict(real.state_dict())
    x = torch.randn(2, 5, 4)
    assert torch.equal(module.eval()(x), real.eval()(x))


def test_pytorchs_default_device_is_used(build: Any) -> None:
    with torch.device("meta"):
        module = build()
        # What is said explicitly comes first.
        real = build(device="cpu")
    assert {parameter.device.type for parameter in module.parameters()} == {"meta"}
    for ours, theirs in zip(real.parameters(), build().parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_stream_of_random_numbers_goes_on_alike(build: Any) -> None:
    build()
    after = torch.randn(3)
    build(device="meta", dtype=torch.float64)
    assert torch.equal(torch.randn(3), after)


@pytest.mark.parametrize("dtype", [torch.int64, torch.complex64])
def test_weights_are_real_numbers(build: Any, dtype: torch.dtype) -> None:
    with pytest.raises(ValueError, match=rf"dtype is {dtype}; weights are real numbers"):
        build(dtype=dtype)


def test_skip_init_leaves_weights_undrawn() -> None:
    layer = torch.nn.utils.skip_init(S4, 4, state_size=4)
    assert {parameter.device.type for parameter in layer.parameters()} == {"cpu"}
