"""Mistakes in what is passed to a layer, block, stack or model: named, with what is allowed."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest
import torch

from torchs4 import LSSL, S4, S4D, BlockStack, LSSLConfig, S4Block, S4BlockConfig, S4DConfig, SequenceModel

FEATURES = 4
BATCH = 3
LENGTH = 6
BLOCK = S4BlockConfig(layer=S4DConfig(state_size=8))

LEVELS = {
    "s4": lambda: S4(FEATURES, state_size=8),
    "s4d": lambda: S4D(FEATURES, state_size=8),
    "lssl": lambda: LSSL(FEATURES, state_size=8),
    "block": lambda: S4Block(FEATURES, BLOCK),
    "lssl-block": lambda: S4Block(FEATURES, layer=LSSLConfig(state_size=8), pre_norm=False),
    "stack": lambda: BlockStack(FEATURES, 2, BLOCK),
    "model": lambda: SequenceModel(input_features=FEATURES, features=5, num_layers=2, block=BLOCK),
}


@pytest.fixture(params=list(LEVELS))
def module(request: pytest.FixtureRequest) -> Any:
    return LEVELS[request.param]()


@pytest.fixture
def token_model() -> SequenceModel:
    return SequenceModel(vocabulary_size=7, features=4, num_layers=1, block=BLOCK)


@pytest.fixture
def x() -> torch.Tensor:
    return torch.randn(BATCH, LENGTH, FEATURES)


def refuses(*pieces: str) -> Any:
    """A ValueError whose text has these pieces in this order."""
    return pytest.raises(ValueError, match="(?s)" + ".*".join(map(re.escape, pieces)))


@pytest.mark.parametrize("verb", ["forward", "prefill"])
@pytest.mark.parametrize("shape", [(LENGTH,), (LENGTH, FEATURES), (2, BATCH, LENGTH, FEATURES)])
def test_a_sequence_of_another_rank_is_refused(module: Any, verb: str, shape: tuple[int, ...]) -> None:
    with refuses(str(shape), "expected (batch, length, 4)"):
        getattr(module, verb)(torch.randn(shape))


@pytest.mark.parametrize("verb", ["forward", "prefill"])
def test_another_number_of_features_is_refused(module: Any, verb: str) -> None:
    with refuses("(3, 6, 9)", "expected (batch, length, 4)"):
        getattr(module, verb)(torch.randn(BATCH, LENGTH, 9))


def test_a_transposed_sequence_gets_a_hint(module: Any, x: torch.Tensor) -> None:
    with refuses("(3, 4, 6)", "transposed", "x.transpose(1, 2)"):
        module(x.transpose(1, 2))


def test_a_missing_batch_axis_gets_a_hint(module: Any, x: torch.Tensor) -> None:
    with refuses("(6, 4)", "x.unsqueeze(0)"):
        module(x[0])


@pytest.mark.parametrize("verb", ["forward", "prefill"])
def test_an_empty_sequence_is_refused(module: Any, verb: str) -> None:
    with refuses("(3, 0, 4)", "length is 0", "at least one position"):
        getattr(module, verb)(torch.randn(BATCH, 0, FEATURES))


@pytest.mark.parametrize("verb", ["forward", "prefill"])
def test_an_empty_batch_is_refused(module: Any, verb: str) -> None:
    with refuses("0", "at least"):
        getattr(module, verb)(torch.randn(0, LENGTH, FEATURES))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_a_sequence_that_is_not_real_is_refused(module: Any, dtype: torch.dtype) -> None:
    for call in (module.forward, module.prefill):
        with refuses(str(dtype), "expected real numbers"):
            call(torch.zeros(BATCH, LENGTH, FEATURES, dtype=dtype))
    with refuses("x_t", str(dtype), "expected real numbers"):
        module.step(torch.zeros(BATCH, FEATURES, dtype=dtype), module.initial_state(BATCH))


@pytest.mark.parametrize("shape", [(FEATURES,), (BATCH, 9), (BATCH, LENGTH, FEATURES)])
def test_step_refuses_another_shape(module: Any, shape: tuple[int, ...]) -> None:
    with refuses("x_t", str(shape), "expected (batch, 4)"):
        module.step(torch.randn(shape), module.initial_state(BATCH))


def test_step_points_to_prefill_for_a_chunk(module: Any, x: torch.Tensor) -> None:
    with refuses("x_t", "(3, 6, 4)", "prefill"):
        module.step(x, module.initial_state(BATCH))


@pytest.mark.parametrize("rate", [0.0, -1.0, math.nan, math.inf])
def test_a_rate_must_be_positive_and_finite(module: Any, x: torch.Tensor, rate: float) -> None:
    calls = [
        lambda: module(x, rate=rate),
        lambda: module.prefill(x, rate=rate),
        lambda: module.step(x[:, 0], module.initial_state(BATCH), rate=rate),
    ]
    for call in calls:
        with refuses(f"rate is {rate}", "positive and finite"):
            call()


@pytest.mark.parametrize("rate", [0.0, math.nan])
def test_a_kernel_has_a_positive_rate(rate: float) -> None:
    with refuses(f"rate is {rate}", "positive and finite"):
        S4(FEATURES, state_size=8).kernel(5, rate)


@pytest.mark.parametrize("length", [0, -3])
@pytest.mark.parametrize("kind", ["s4", "s4d", "lssl"])
def test_a_kernel_has_at_least_one_sample(kind: str, length: int) -> None:
    with refuses(f"length is {length}", "at least one"):
        LEVELS[kind]().kernel(length)


@pytest.mark.parametrize(
    ("lengths", "low", "high"), [([7, 2, 3], 2, 7), ([0, 2, 3], 0, 3), ([-1, 2, 3], -1, 3)]
)
def test_lengths_outside_the_tensor_are_refused(
    module: Any, x: torch.Tensor, lengths: list[int], low: int, high: int
) -> None:
    with refuses(f"between {low} and {high}", "6 positions", "between 1 and 6"):
        module(x, lengths=lengths)


@pytest.mark.parametrize("lengths", [[2, 3], [2, 3, 4, 5], [[2], [3], [4]], 3])
def test_lengths_are_one_per_sequence(module: Any, x: torch.Tensor, lengths: Any) -> None:
    shape = tuple(torch.as_tensor(lengths).shape)
    with refuses("lengths", str(shape), "one integer for each of the 3 sequences"):
        module(x, lengths=lengths)


def test_lengths_are_integers(module: Any, x: torch.Tensor) -> None:
    with refuses("lengths", "torch.float32", "one integer for each"):
        module(x, lengths=torch.tensor([1.0, 2.0, 3.0]))


def test_lengths_and_mask_together_are_refused(module: Any, x: torch.Tensor) -> None:
    with refuses("lengths and mask", "one of them"):
        module(x, lengths=[6, 6, 6], mask=torch.ones(BATCH, LENGTH, dtype=torch.bool))


@pytest.mark.parametrize("shape", [(BATCH, LENGTH + 1), (LENGTH, BATCH), (BATCH, LENGTH, 1), (LENGTH,)])
def test_a_mask_of_another_shape_is_refused(module: Any, x: torch.Tensor, shape: tuple[int, ...]) -> None:
    with refuses("mask", str(shape), "boolean", "(3, 6)"):
        module(x, mask=torch.ones(shape, dtype=torch.bool))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
def test_a_mask_that_is_not_boolean_is_refused(module: Any, x: torch.Tensor, dtype: torch.dtype) -> None:
    with refuses("mask", str(dtype), "boolean"):
        module(x, mask=torch.ones(BATCH, LENGTH, dtype=dtype))


def test_a_state_of_another_batch_is_refused(module: Any, x: torch.Tensor) -> None:
    state = module.initial_state(BATCH + 2)
    for call in (lambda: module.prefill(x, state), lambda: module.step(x[:, 0], state)):
        with refuses("state", "5", "initial_state(batch_size=3)"):
            call()


def test_a_state_of_another_kind_is_refused(module: Any, x: torch.Tensor) -> None:
    for state in ("state", 3.0):
        for call in (
            lambda state=state: module.prefill(x, state),
            lambda state=state: module.step(x[:, 0], state),
        ):
            with refuses("state is", "initial_state"):
                call()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("kind", ["s4", "s4d", "lssl"])
def test_a_state_of_another_dtype_is_refused(kind: str, x: torch.Tensor, dtype: torch.dtype) -> None:
    layer = LEVELS[kind]()
    state = layer.initial_state(BATCH).to(dtype)
    for call in (lambda: layer.prefill(x, state), lambda: layer.step(x[:, 0], state)):
        with refuses("state", str(dtype), "torch.float32"):
            call()


def test_a_state_of_another_layer_is_refused(x: torch.Tensor) -> None:
    with refuses("state is (3, 4, 6)", "(3, 4, 8)"):
        S4(FEATURES, state_size=8).prefill(x, S4(FEATURES, state_size=6).initial_state(BATCH))


def test_a_state_of_another_depth_is_refused(x: torch.Tensor) -> None:
    state = BlockStack(FEATURES, 3, BLOCK).initial_state(BATCH)
    with refuses("3 entries", "each of the 2 blocks"):
        BlockStack(FEATURES, 2, BLOCK).prefill(x, state)


def test_a_state_of_another_pooling_is_refused(x: torch.Tensor) -> None:
    options = {"input_features": FEATURES, "features": 5, "num_layers": 1, "block": BLOCK}
    state = SequenceModel(**options, pooling="none").initial_state(BATCH)
    with refuses("state", "initial_state"):
        SequenceModel(**options, pooling="mean").prefill(x, state)


@pytest.mark.parametrize("batch_size", [0, -1])
def test_an_initial_state_has_at_least_one_sequence(module: Any, batch_size: int) -> None:
    with refuses(f"batch_size is {batch_size}", "at least 1"):
        module.initial_state(batch_size)


@pytest.mark.parametrize("token", [-1, 7])
def test_tokens_outside_the_vocabulary_are_refused(token_model: SequenceModel, token: int) -> None:
    tokens = torch.tensor([[1, token, 3]])
    calls = [
        lambda: token_model(tokens),
        lambda: token_model.prefill(tokens),
        lambda: token_model.step(tokens[:, 1], token_model.initial_state(1)),
    ]
    for call in calls:
        with refuses(str(token), "0 to 6", "vocabulary_size=7"):
            call()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64, torch.uint8])
def test_tokens_are_integers(token_model: SequenceModel, dtype: torch.dtype) -> None:
    tokens = torch.zeros(2, 5, dtype=dtype)
    calls = [
        lambda: token_model(tokens),
        lambda: token_model.prefill(tokens),
        lambda: token_model.step(tokens[:, 1], token_model.initial_state(2)),
    ]
    for call in calls:
        with refuses(str(dtype), "int64 or int32", "x.long()"):
            call()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_model_names_an_input_of_another_dtype(dtype: torch.dtype) -> None:
    model = SequenceModel(output_size=2, input_features=4, features=4, num_layers=1)
    x = torch.zeros(2, 5, 4, dtype=dtype)
    calls = [
        lambda: model(x),
        lambda: model.prefill(x),
        lambda: model.step(x[:, 1], model.initial_state(2)),
    ]
    for call in calls:
        with refuses(str(dtype), "torch.float32", "model.to("):
            call()
    # Autocast converts by itself.
    with torch.autocast("cpu", torch.bfloat16):
        assert model(torch.zeros(2, 5, 4)).isfinite().all()


@pytest.mark.parametrize("shape", [(5,), (2, 5, 1), (2, 5, 4)])
def test_tokens_of_another_rank_are_refused(token_model: SequenceModel, shape: tuple[int, ...]) -> None:
    for call in (token_model.forward, token_model.prefill):
        with refuses(str(shape), "(batch, length)"):
            call(torch.zeros(shape, dtype=torch.int64))


def test_a_token_step_of_another_rank_is_refused(token_model: SequenceModel) -> None:
    with refuses("x_t", "(2, 1)", "(batch,)"):
        token_model.step(torch.zeros(2, 1, dtype=torch.int64), token_model.initial_state(2))


def test_an_empty_token_sequence_is_refused(token_model: SequenceModel) -> None:
    with refuses("(2, 0)", "length is 0"):
        token_model(torch.zeros(2, 0, dtype=torch.int64))


def test_an_empty_batch_of_tokens_is_refused(token_model: SequenceModel) -> None:
    with refuses("0", "at least"):
        token_model(torch.zeros(0, 5, dtype=torch.int64))


def test_lengths_of_tokens_are_checked_too(token_model: SequenceModel) -> None:
    with refuses("between 1 and 6", "5 positions", "between 1 and 5"):
        token_model(torch.zeros(2, 5, dtype=torch.int64), lengths=[1, 6])


def test_small_integers_are_tokens_too(token_model: SequenceModel) -> None:
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.equal(token_model(tokens.int()), token_model(tokens))


def test_arrays_of_other_libraries_are_refused(module: Any) -> None:
    with refuses("x is a ndarray", "torch.as_tensor"):
        module.forward(torch.zeros(BATCH, LENGTH, FEATURES).numpy())


def test_a_step_without_a_state_is_refused(module: Any) -> None:
    with refuses("state is NoneType", "initial_state"):
        module.step(torch.zeros(BATCH, FEATURES), None)
