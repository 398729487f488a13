"""What every layer, block, stack and model must do, whatever is inside."""

from __future__ import annotations

import copy
import math
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from conformance import (
    BLOCKS,
    CASES,
    LAYER_CONFIGS,
    LAYERS,
    MODELS,
    STACKS,
    Case,
    assert_close,
    run_chunks,
    run_steps,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils import _pytree as pytree

import torchs4.layers
from torchs4 import (
    LSSLConfig,
    LSTMConfig,
    S4Block,
    S4BlockConfig,
    S4Config,
    S4DConfig,
    SequenceModel,
    TransformerConfig,
    load_model,
    ops,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A float32 carries 6e-8; sums over a hundred steps, two blocks and their norms multiply that by about 100.
FLOAT32_TOLERANCE = 1e-5
# Kernels of float64 parameters are within 1e-12 (aliasing and rounding on the contour); blocks add a little.
FLOAT64_TOLERANCE = 1e-11
# Gradients sum over all positions, with terms that cancel.
GRADIENT_TOLERANCE = 1e-10
TOLERANCES = {torch.float32: FLOAT32_TOLERANCE, torch.float64: FLOAT64_TOLERANCE}
# bfloat16 carries 4e-3; a dozen roundings, some of them before a norm that magnifies small outputs.
BFLOAT16_TOLERANCE = 0.1
# The promises for L = 4096, where float32 errors of 4096 steps add up.
LONG_TOLERANCES = {torch.float32: 1e-3, torch.float64: 1e-8}
# A compiler fuses and reorders float32 sums, in the forward and in the backward pass.
COMPILED_TOLERANCE = 1e-4

IMPLEMENTATIONS = ("reference", "cpu", "portable")

BATCH = 3
# More than one block of 64 samples in prefill, and not a whole number of them.
LENGTH = 70

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
causal_case = pytest.mark.parametrize(
    "case", [case for case in CASES if case.causal], ids=lambda case: case.name
)
bidirectional_case = pytest.mark.parametrize(
    "case", [case for case in CASES if not case.causal], ids=lambda case: case.name
)
# The compiler's own code calls what PyTorch has deprecated, and looks at gradients where there are none.
torch_warns_of_itself = pytest.mark.filterwarnings(
    "ignore:`torch.jit:DeprecationWarning", "ignore:The .grad attribute of a Tensor that is not a leaf"
)
both_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])


@every_case
@pytest.mark.parametrize(
    ("dtype", "length"), [(torch.float64, 1), (torch.float32, 2), (torch.float32, 63)], ids=["1", "2", "63"]
)
def test_output_has_the_promised_shape_and_dtype(case: Case, dtype: torch.dtype, length: int) -> None:
    y = case.build(dtype)(case.inputs(BATCH, length, dtype))
    expected = (BATCH, case.output_features) if case.pooled else (BATCH, length, case.output_features)
    assert y.shape == expected
    assert y.dtype == dtype
    assert y.isfinite().all()


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.causal and not case.pooled], ids=lambda case: case.name
)
def test_outputs_do_not_depend_on_the_future(case: Case) -> None:
    module = case.build(torch.float64)
    x, other = (case.inputs(BATCH, LENGTH, torch.float64, seed) for seed in (1, 7))
    with torch.no_grad():
        before = module(x)
        for change in (1, 33, LENGTH - 1):
            after = module(torch.cat([x[:, :change], other[:, change:]], dim=1))
            assert_close(after[:, :change], before[:, :change], FLOAT64_TOLERANCE)
            assert not torch.allclose(after[:, change:], before[:, change:])


@st.composite
def lengths_and_cuts(draw: st.DrawFn) -> tuple[int, list[int]]:
    length = draw(st.integers(1, 150))
    cuts = draw(st.sets(st.integers(1, length - 1), max_size=6)) if length > 1 else set()
    return length, sorted(cuts)


@causal_case
@settings(max_examples=4, deadline=None, derandomize=True, database=None)
@given(split=lengths_and_cuts())
def test_prefill_in_any_chunks_matches_forward(case: Case, split: tuple[int, list[int]]) -> None:
    length, cuts = split
    module = case.build(torch.float64)
    x = case.inputs(BATCH, length, torch.float64)
    with torch.no_grad():
        chunked, _ = run_chunks(module, x, cuts, case.pooled)
        assert_close(chunked, module(x), FLOAT64_TOLERANCE)


@causal_case
@pytest.mark.parametrize(
    ("dtype", "rate"), [(torch.float32, 1.0), (torch.float64, 0.4)], ids=["float32", "float64-other-rate"]
)
def test_step_and_prefill_match_forward(case: Case, dtype: torch.dtype, rate: float) -> None:
    module = case.build(dtype)
    x = case.inputs(BATCH, LENGTH, dtype)
    with torch.no_grad():
        whole = module(x, rate=rate)
        chunked, chunk_state = run_chunks(module, x, [5, 6, 40], case.pooled, rate)
        stepped, step_state = run_steps(module, x, rate=rate)
    assert stepped.dtype == chunked.dtype == whole.dtype
    assert_close(stepped[:, -1] if case.pooled else stepped, whole, TOLERANCES[dtype])
    assert_close(chunked, whole, TOLERANCES[dtype])
    for after_chunks, after_steps in zip(
        pytree.tree_leaves(chunk_state), pytree.tree_leaves(step_state), strict=True
    ):
        assert_close(after_chunks, after_steps, TOLERANCES[dtype])


# Without pooling that is one thing with being causal.
@pytest.mark.parametrize(
    "case", [case for case in CASES if case.causal and case.pooled], ids=lambda case: case.name
)
def test_step_gives_what_forward_gives_for_everything_so_far(case: Case) -> None:
    module = case.build(torch.float64)
    x = case.inputs(BATCH, 20, torch.float64)
    with torch.no_grad():
        stepped, _ = run_steps(module, x)
        for length in (1, 2, 13, 20):
            assert_close(stepped[:, length - 1], module(x[:, :length]), FLOAT64_TOLERANCE)


@causal_case
def test_steps_and_chunks_continue_each_other(case: Case) -> None:
    module = case.build(torch.float64)
    x = case.inputs(BATCH, 40, torch.float64)
    with torch.no_grad():
        _, state = module.prefill(x[:, :17])
        _, state = run_steps(module, x[:, 17:20], state)
        y, _ = module.prefill(x[:, 20:], state)
        whole = module(x)
    assert_close(y, whole if case.pooled else whole[:, 20:], FLOAT64_TOLERANCE)


@causal_case
def test_state_is_plain_and_is_not_written_to(case: Case) -> None:
    module = case.build()
    x = case.inputs(BATCH, 9)
    with torch.no_grad():
        _, state = module.prefill(x[:, :5])
        kept = pytree.tree_map(torch.clone, state)
        assert all(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(state))
        first, _ = module.step(x[:, 5], state)
        again, _ = module.step(x[:, 5], state)
        module.prefill(x[:, 5:], state)
    assert torch.equal(first, again)
    for now, before in zip(pytree.tree_leaves(state), pytree.tree_leaves(kept), strict=True):
        assert torch.equal(now, before)


@causal_case
def test_initial_state_is_what_prefill_starts_from(case: Case) -> None:
    module = case.build()
    x = case.inputs(BATCH, 9)
    from_none, _ = module.prefill(x)
    from_initial, _ = module.prefill(x, module.initial_state(BATCH))
    assert torch.equal(from_none, from_initial)


@every_case
def test_a_sequence_alone_gives_what_it_gives_in_a_batch(case: Case) -> None:
    module = case.build(torch.float64)
    x = case.inputs(5, 31, torch.float64)
    batched = module(x)
    for index in range(5):
        assert_close(module(x[index : index + 1]), batched[index : index + 1], FLOAT64_TOLERANCE)


@every_case
@pytest.mark.parametrize(
    ("dtype", "as_mask"), [(torch.float32, False), (torch.float64, True)], ids=["lengths", "mask"]
)
def test_padding_at_the_end_changes_nothing(case: Case, dtype: torch.dtype, as_mask: bool) -> None:
    module = case.build(dtype)
    lengths, padded_length = [5, 23, 1], 26
    x, padded = case.inputs(3, padded_length, dtype), case.garbage(3, padded_length, dtype)
    for index, length in enumerate(lengths):
        padded[index, :length] = x[index, :length]
    mask = torch.arange(padded_length) < torch.tensor(lengths)[:, None]
    batched = module(padded, mask=mask) if as_mask else module(padded, lengths=lengths)
    for index, length in enumerate(lengths):
        alone = module(x[index : index + 1, :length])[0]
        assert_close(batched[index] if case.pooled else batched[index, :length], alone, TOLERANCES[dtype])


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.samples_per_frame == 1], ids=lambda case: case.name
)
def test_padding_at_the_start_changes_nothing(case: Case) -> None:
    dtype = torch.float64
    module = case.build(dtype)
    lengths, padded_length = [5, 23, 1], 26
    x, padded = case.inputs(3, padded_length, dtype), case.garbage(3, padded_length, dtype)
    mask = torch.zeros(3, padded_length, dtype=torch.bool)
    for index, length in enumerate(lengths):
        padded[index, -length:] = x[index, :length]
        mask[index, -length:] = True
    batched = module(padded, mask=mask)
    for index, length in enumerate(lengths):
        alone = module(x[index : index + 1, :length])[0]
        assert_close(batched[index] if case.pooled else batched[index, -length:], alone, TOLERANCES[dtype])


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.input_features is not None], ids=lambda case: case.name
)
@pytest.mark.parametrize("filling", [math.nan, math.inf])
def test_what_padding_holds_reaches_no_gradient(case: Case, filling: float) -> None:
    module = case.build(torch.float64).train()
    mask = torch.arange(12) < torch.tensor([12, 5, 1])[:, None]
    x = case.inputs(3, 12, torch.float64).masked_fill(~mask[..., None], filling).requires_grad_()
    y = module(x, mask=mask)
    (y if case.pooled else y[mask]).square().sum().backward()
    assert_gradients_are_finite(module)
    assert x.grad[mask].isfinite().all()


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.causal and not case.growing and case.samples_per_frame == 1],
    ids=lambda case: case.name,
)
def test_a_padded_chunk_leaves_each_sequence_after_its_own_last_position(case: Case) -> None:
    dtype = torch.float64
    module = case.build(dtype)
    # Whole blocks of 64 samples, rests of several sizes, and more padding than any of them needs.
    lengths, padded_length, before = torch.tensor([131, 1, 64, 107]), 140, 9
    x, padded = case.inputs(4, 200, dtype), case.garbage(4, padded_length, dtype)
    for index, length in enumerate(lengths):
        padded[index, :length] = x[index, before : before + length]
    with torch.no_grad():
        _, state = module.prefill(x[:, :before])
        batched, state = module.prefill(padded, state, lengths=lengths)
        after, _ = module.step(x[:, -1], state)
        for index, length in enumerate(lengths.tolist()):
            _, state = module.prefill(x[index : index + 1, :before])
            alone, state = module.prefill(x[index : index + 1, before : before + length], state)
            assert_close(
                batched[index] if case.pooled else batched[index, :length], alone[0], TOLERANCES[dtype]
            )
            assert_close(after[index], module.step(x[index : index + 1, -1], state)[0][0], TOLERANCES[dtype])


@pytest.mark.parametrize(
    "case",
    [case for case in CASES if case.causal and (case.growing or case.samples_per_frame > 1)],
    ids=lambda case: case.name,
)
def test_what_cannot_hold_states_of_different_ages_refuses_padded_chunks(case: Case) -> None:
    module, x = case.build(), case.inputs(BATCH, 6)
    with pytest.raises(ValueError, match=r"lengths are 6, 2, 3: .* Prefill sequences of equal length"):
        module.prefill(x, lengths=[6, 2, 3])
    torch.testing.assert_close(module.prefill(x, lengths=[6, 6, 6])[0], module.prefill(x)[0])


@every_case
def test_lengths_may_be_a_tensor(case: Case) -> None:
    module, x = case.build(), case.inputs(BATCH, 9)
    assert torch.equal(module(x, lengths=torch.tensor([9, 3, 5])), module(x, lengths=[9, 3, 5]))


@every_case
def test_full_lengths_are_no_padding(case: Case) -> None:
    module, x = case.build(torch.float64), case.inputs(BATCH, 9, torch.float64)
    assert_close(module(x, lengths=[9] * BATCH), module(x), FLOAT64_TOLERANCE)


@every_case
def test_memory_layout_of_the_input_does_not_matter(case: Case) -> None:
    module, x = case.build(torch.float64), case.inputs(BATCH, 9, torch.float64)
    strided = x.transpose(0, 1).contiguous().transpose(0, 1)
    assert not strided.is_contiguous()
    assert_close(module(strided), module(x), FLOAT64_TOLERANCE)
    if case.causal:
        assert_close(module.prefill(strided)[0], module.prefill(x)[0], FLOAT64_TOLERANCE)


@every_case
def test_state_dict_carries_everything(case: Case) -> None:
    x = case.inputs(BATCH, 9)
    source, target = case.build(seed=0), case.build(seed=1)
    with torch.no_grad():
        expected = source(x)
        # Fills the target's caches with what its own weights gave.
        assert not torch.allclose(target(x), expected)
        target.load_state_dict(source.state_dict())
        assert torch.equal(target(x), expected)


@every_case
def test_deepcopy_is_equal_and_independent(case: Case) -> None:
    module, x = case.build(), case.inputs(BATCH, 9)
    with torch.no_grad():
        expected = module(x)
        twin = copy.deepcopy(module)
        assert torch.equal(twin(x), expected)
        for parameter in twin.parameters():
            parameter.mul_(0.5)
        assert not torch.allclose(twin(x), expected)
        assert torch.equal(module(x), expected)


@every_case
def test_deepcopy_works_after_inference_mode(case: Case) -> None:
    module, x = case.build(), case.inputs(BATCH, 9)
    with torch.inference_mode():
        expected = module(x)
    assert_close(copy.deepcopy(module)(x), expected, FLOAT32_TOLERANCE)


@pytest.mark.parametrize("case", MODELS, ids=lambda case: case.name)
def test_a_saved_model_is_loaded_again(case: Case, tmp_path: Path) -> None:
    module, x = case.build(), case.inputs(BATCH, 9)
    module.save_pretrained(tmp_path)
    loaded = load_model(tmp_path)
    assert type(loaded) is type(module)
    assert loaded.config == module.config
    with torch.no_grad():
        assert torch.equal(loaded(x), module(x))


@every_case
def test_double_and_back_keeps_the_function(case: Case) -> None:
    module, x = case.build(), case.inputs(BATCH, 31)
    with torch.no_grad():
        narrow = module(x)
        wide_input = x if case.input_features is None else x.double()
        wide = module.double()(wide_input)
        assert wide.dtype == torch.float64
        assert_close(narrow, wide, FLOAT32_TOLERANCE)
        assert torch.equal(module.float()(x), narrow)


@every_case
def test_bfloat16_parameters_run(case: Case) -> None:
    module = case.build(torch.bfloat16)
    x = case.inputs(BATCH, 31, torch.bfloat16)
    y = module(x)
    assert y.dtype == torch.bfloat16
    assert y.isfinite().all()
    reference_input = x if case.input_features is None else x.float()
    # The same rounded weights, computed without further rounding.
    assert_close(y, copy.deepcopy(module).float()(reference_input), BFLOAT16_TOLERANCE)
    y.sum().backward()
    assert_gradients_are_finite(module)


@causal_case
def test_bfloat16_parameters_stream(case: Case) -> None:
    module = case.build(torch.bfloat16)
    x = case.inputs(BATCH, 31, torch.bfloat16)
    with torch.no_grad():
        whole = module(x)
        chunked, _ = run_chunks(module, x, [10, 11], case.pooled)
        stepped, _ = run_steps(module, x)
    assert chunked.dtype == stepped.dtype == torch.bfloat16
    assert_close(chunked, whole, BFLOAT16_TOLERANCE)
    assert_close(stepped[:, -1] if case.pooled else stepped, whole, BFLOAT16_TOLERANCE)


@every_case
def test_autocast_is_close_to_float32(case: Case) -> None:
    module, x = case.build(), case.inputs(BATCH, 31)
    expected = module(x)
    with torch.autocast("cpu", torch.bfloat16):
        y = module(x)
    assert_close(y, expected, BFLOAT16_TOLERANCE)


@every_case
def test_autocast_trains_with_finite_gradients(case: Case) -> None:
    module, x = case.build().train(), case.inputs(BATCH, 31)
    with torch.autocast("cpu", torch.bfloat16):
        y = module(x, lengths=[31, 12, 20])
    y.float().square().mean().backward()
    assert_gradients_are_finite(module)


@causal_case
def test_autocast_streams(case: Case) -> None:
    module, x = case.build(), case.inputs(BATCH, 12)
    with torch.no_grad():
        expected = module(x)
        with torch.autocast("cpu", torch.bfloat16):
            chunked, _ = run_chunks(module, x, [5], case.pooled)
            stepped, _ = run_steps(module, x)
    assert_close(chunked, expected, BFLOAT16_TOLERANCE)
    assert_close(stepped[:, -1] if case.pooled else stepped, expected, BFLOAT16_TOLERANCE)


@causal_case
def test_gradients_through_two_chunks_equal_those_through_forward(case: Case) -> None:
    module = case.build(torch.float64)
    x = case.inputs(BATCH, LENGTH, torch.float64)
    if case.input_features is not None:
        x.requires_grad_()
    leaves = [*module.parameters(), *([x] if x.requires_grad else [])]

    def gradients(y: Tensor) -> list[Tensor]:
        weights = torch.linspace(-1, 2, y.numel(), dtype=y.dtype).view_as(y)
        return list(torch.autograd.grad((weights * y).sum(), leaves))

    whole = gradients(module(x))
    chunked = gradients(run_chunks(module, x, [33], case.pooled)[0])
    for through_chunks, through_forward in zip(chunked, whole, strict=True):
        assert_close(through_chunks, through_forward, GRADIENT_TOLERANCE)


@pytest.mark.parametrize(
    "case", [case for case in CASES if case.causal and not case.growing], ids=lambda case: case.name
)
@pytest.mark.parametrize("seen", [0, 3])
def test_gradient_reaches_the_state_before_a_chunk(case: Case, seen: int) -> None:
    module = case.build(torch.float64)
    x = case.inputs(BATCH, 12, torch.float64)
    before = module.prefill(x[:, :seen])[1] if seen else module.initial_state(BATCH)
    state = pytree.tree_map(
        lambda leaf: leaf.detach().requires_grad_() if leaf.is_floating_point() else leaf, before
    )
    y, _ = module.prefill(x[:, 3:], state)
    y.square().sum().backward()
    recurrent = state
    while isinstance(recurrent, dict):
        recurrent = recurrent["blocks"]
    for leaf in pytree.tree_leaves(recurrent):
        if leaf.is_floating_point():
            assert leaf.grad.isfinite().all()
            # An empty memory weighs nothing, whatever is in it.
            assert leaf.grad.abs().max() > 0 or (case.weighs_nothing_at_first and not seen)


@pytest.mark.parametrize(
    "case", [case for case in [*LAYERS, *STACKS] if case.causal], ids=lambda case: case.name
)
def test_a_longer_sequence_begins_with_the_same_outputs(case: Case) -> None:
    module = case.build(torch.float64)
    x = case.inputs(1, 5000, torch.float64)
    with torch.no_grad():
        short = module(x[:, :50])
        assert_close(module(x)[:, :50], short, FLOAT64_TOLERANCE)
        assert_close(module(x[:, :50]), short, FLOAT64_TOLERANCE)


@every_case
def test_every_parameter_gets_a_gradient(case: Case) -> None:
    module, x = case.build().train(), case.inputs(BATCH, 31)
    module(x).square().mean().backward()
    assert_gradients_are_finite(module)
    assert all(parameter.grad.abs().max() > 0 for parameter in module.parameters())


@every_case
def test_no_grad_and_inference_mode_equal_grad_mode(case: Case) -> None:
    module, x = case.build(), case.inputs(BATCH, 31)
    with torch.inference_mode():
        inferred = module(x)
    with torch.no_grad():
        ungraded = module(x)
    graded = module(x)
    assert graded.requires_grad
    assert_close(ungraded, graded, FLOAT32_TOLERANCE)
    assert_close(inferred, graded, FLOAT32_TOLERANCE)
    graded.square().mean().backward()
    assert_gradients_are_finite(module)


@bidirectional_case
def test_bidirectional_outputs_depend_on_past_and_future(case: Case) -> None:
    module = case.build(torch.float64)
    x = case.inputs(1, 15, torch.float64)
    changed = case.inputs(1, 15, torch.float64, seed=7)
    first = torch.cat([changed[:, :1], x[:, 1:]], dim=1)
    last = torch.cat([x[:, :-1], changed[:, -1:]], dim=1)
    y = module(x)
    pick = slice(None) if case.pooled else 7
    for other in (first, last):
        assert not torch.allclose(module(other)[:, pick], y[:, pick])


@bidirectional_case
@pytest.mark.parametrize("verb", ["prefill", "step", "initial_state"])
def test_bidirectional_modules_refuse_to_stream(case: Case, verb: str) -> None:
    module, x = case.build(), case.inputs(BATCH, 9)
    calls = {
        "prefill": lambda: module.prefill(x),
        "step": lambda: module.step(x[:, 0], None),
        "initial_state": lambda: module.initial_state(BATCH),
    }
    with pytest.raises(ValueError, match=r"(?s)bidirectional.*bidirectional=False"):
        calls[verb]()


def assert_gradients_are_finite(module: Any) -> None:
    for name, parameter in module.named_parameters():
        assert parameter.grad is not None, f"{name} got no gradient"
        assert parameter.grad.isfinite().all(), f"{name} got a gradient that is not finite"


# At the sizes that people use: 64 states, default step sizes.
LONG_CONFIGS = {
    "s4": S4Config(),
    "s4d": S4DConfig(),
    "lssl": LSSLConfig(),
    "lstm": LSTMConfig(),
    "transformer": TransformerConfig(heads=2),
}


@pytest.mark.slow
@both_dtypes
@pytest.mark.parametrize("level", ["layer", "model"])
@pytest.mark.parametrize("kind", list(LONG_CONFIGS))
def test_forward_prefill_and_step_agree_over_4096_positions(
    kind: str, level: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    config = LONG_CONFIGS[kind]
    if level == "layer":
        module: Any = config.build(4)
    else:
        block = S4BlockConfig(layer=config, norm="batch")
        module = SequenceModel(
            output_size=3, input_features=4, features=4, num_layers=2, block=block, pooling="none"
        )
    module = module.to(dtype).eval()
    x = torch.randn(1, 4096, 4, dtype=dtype)
    with torch.no_grad():
        whole = module(x)
        chunked, _ = run_chunks(module, x, [1000, 1001, 3000])
        stepped, _ = run_steps(module, x)
    assert_close(chunked, whole, LONG_TOLERANCES[dtype])
    assert_close(stepped, whole, LONG_TOLERANCES[dtype])


COMPILED_CONFIGS = {**LAYER_CONFIGS, "s4-legt": replace(LAYER_CONFIGS["s4"], start="legt")}


def compilers(*inductor_kinds: str) -> pytest.MarkDecorator:
    # aot_eager traces and runs the graph without generating code: a second instead of half a minute.
    quick = [
        pytest.param(kind, "aot_eager", implementation, id=f"{kind}-aot_eager-{implementation}")
        for kind, implementation in (
            ("s4", "cpu"),
            ("s4", "portable"),
            ("s4-legt", "reference"),
            ("s4d", "cpu"),
            ("s4d", "portable"),
            ("lssl", "reference"),
            ("lstm", "cpu"),
            ("transformer", "cpu"),
            ("performer", "cpu"),
        )
    ]
    full = [
        pytest.param(kind, "inductor", "auto", id=f"{kind}-inductor", marks=pytest.mark.slow)
        for kind in inductor_kinds
    ]
    return pytest.mark.parametrize(("kind", "backend", "implementation"), quick + full)


def compile_whole(function: Any, kind: str, backend: str) -> Any:
    # PyTorch compiles around its LSTM, not through it.
    return torch.compile(function, fullgraph=kind != "lstm", backend=backend)


@contextmanager
def implemented_by(implementation: Any) -> Iterator[None]:
    before = ops.get_implementation()
    ops.set_implementation(implementation)
    try:
        yield
    finally:
        ops.set_implementation(before)


def build_compiled_block(kind: str, norm: str) -> S4Block:
    # Graphs of earlier tests count towards a limit.
    torch.compiler.reset()
    torch.manual_seed(0)
    return S4Block(4, layer=COMPILED_CONFIGS[kind], norm=norm)


@torch_warns_of_itself
@compilers("s4")
def test_compiled_block_trains_like_the_plain_one(kind: str, backend: str, implementation: str) -> None:
    block = build_compiled_block(kind, norm="layer")
    compiled = compile_whole(copy.deepcopy(block), kind, backend)
    x = torch.randn(3, 20, 4)
    with implemented_by(implementation):
        for module in (block, compiled):
            module(x).square().mean().backward()
        assert_close(compiled(x), block(x), COMPILED_TOLERANCE)
    for ours, theirs in zip(compiled.parameters(), block.parameters(), strict=True):
        assert_close(ours.grad, theirs.grad, COMPILED_TOLERANCE)


@torch_warns_of_itself
@compilers("s4")
def test_compiled_block_evaluates_like_the_plain_one(kind: str, backend: str, implementation: str) -> None:
    block = build_compiled_block(kind, norm="batch").eval()
    x = torch.randn(3, 20, 4)
    compiled = compile_whole(block, kind, backend)
    with torch.no_grad(), implemented_by(implementation):
        assert_close(compiled(x), block(x), COMPILED_TOLERANCE)


@torch_warns_of_itself
@compilers("s4", "s4d")
def test_compiled_step_matches_forward(kind: str, backend: str, implementation: str) -> None:
    block = build_compiled_block(kind, norm="batch").eval()
    x = torch.randn(3, 5, 4)
    step = compile_whole(block.step, kind, backend)
    with torch.no_grad(), implemented_by(implementation):
        whole, state = block(x), block.initial_state(3)
        for position in range(5):
            y_t, state = step(x[:, position], state)
            assert_close(y_t, whole[:, position], COMPILED_TOLERANCE)


@pytest.mark.parametrize("case", [case for case in CASES if case.own_operators], ids=lambda case: case.name)
def test_every_implementation_gives_the_same(case: Case) -> None:
    x = case.inputs(BATCH, LENGTH, torch.float64)
    outputs, gradients = [], []
    for implementation in IMPLEMENTATIONS:
        module = case.build(torch.float64)
        with implemented_by(implementation):
            y = module(x)
            y.square().sum().backward()
            if case.causal:
                with torch.no_grad():
                    y = torch.cat([y.flatten(), run_steps(module, x[:, :5])[0].flatten()])
        outputs.append(y)
        gradients.append([parameter.grad for parameter in module.parameters()])
    for y, of_weights in zip(outputs[1:], gradients[1:], strict=True):
        assert_close(y, outputs[0], FLOAT64_TOLERANCE)
        for ours, theirs in zip(of_weights, gradients[0], strict=True):
            assert_close(ours, theirs, GRADIENT_TOLERANCE)


THREADS_SCRIPT = """
import torch
from torchs4 import S4Block
before = torch.get_num_threads()
block = S4Block(4)
block(torch.randn(3, 100, 4)).sum().backward()
assert torch.get_num_threads() == before == 1, (before, torch.get_num_threads())
"""


@pytest.mark.slow
def test_a_limit_on_threads_is_kept() -> None:
    # In a process of its own: thread pools are made once.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    environment.pop("NUMBA_NUM_THREADS", None)
    subprocess.run([sys.executable, "-c", THREADS_SCRIPT], env=environment, check=True, timeout=300)


def test_the_suite_covers_every_registered_layer() -> None:
    assert set(LAYER_CONFIGS) == set(torchs4.layers.LAYERS)


def test_the_suite_covers_every_level() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
    assert len(names) == len(LAYERS) + len(BLOCKS) + len(STACKS) + len(MODELS)
