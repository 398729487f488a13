"""Chunks against the recurrence written out, under every implementation."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracle import (
    Parameters,
    dense_system,
    diagonal_parameters,
    discrete_system,
    hippo_parameters,
    normal,
    random_parameters,
    run_dense,
)
from torch.autograd import gradcheck

from torchs4 import ops, ssm
from torchs4.ops import cpu, portable, reference

# All relative to the largest expected value.
# A thousand contracting steps in float64, taken in another order.
RUN_TOLERANCE = 1e-11
# The same operators on other blocks of the same signal, in float64.
CHUNK_TOLERANCE = 1e-12
# The kernel's own error in float64, times the sum over the signal.
CONVOLUTION_TOLERANCE = 1e-9
# The same sums in another order; measured: 7e-7 in float32 and 2e-15 in float64.
TWIN_TOLERANCES = {torch.float32: 5e-6, torch.float64: 1e-12}
# A block of 64 steps, once by O(N) steps and once by squarings, and back; measured: 4e-13.
OPERATORS_TOLERANCE = 1e-11

LENGTHS = [1, 2, 63, 64, 65, 100, 1000]
# Odd on purpose.
BATCH, STEP_SIZES, CHANNELS = 3, (1e-3, 1e-2, 1e-1), 2
FEATURES = len(STEP_SIZES)
SYSTEMS = {
    "legs": hippo_parameters("legs", 16, STEP_SIZES, CHANNELS),
    "legt": hippo_parameters("legt", 8, STEP_SIZES, CHANNELS),
    "diagonal": diagonal_parameters("inv", 8, STEP_SIZES, CHANNELS),
    "untied": random_parameters(10, STEP_SIZES, rank=3, channels=CHANNELS, untied=True),
}
# Batch, length, features, state size, block, channels: ends inside a block, sizes that fill no vector, groups
# of features that are not full, more blocks than are in work at a time.
SIZES = [
    (1, 1, 1, 2, 1, 1),
    (3, 70, 5, 6, 8, 2),
    (2, 33, 17, 10, 13, 1),
    (5, 100, 3, 64, 64, 1),
    (2, 300, 40, 16, 24, 2),
    (7, 129, 32, 8, 40, 3),
    (1, 20000, 2, 4, 16, 1),
    (400, 3, 2, 4, 64, 1),
]

# The plain twin is compared with both of them; here it is tried itself where PyTorch differentiates it.
with_the_plain_twin = pytest.mark.parametrize(
    "implementation", ["cpu", "portable", "reference"], indirect=True
)


def assert_near(actual, expected, tolerance):
    assert actual.shape == expected.shape
    assert (actual - expected).abs().max() <= tolerance * expected.abs().max()


def make_signal(parameters, length):
    u = normal(BATCH, length, FEATURES, seed=11)
    return u, normal(BATCH, FEATURES, 2 * parameters.A.shape[1], seed=12)


def no_skip(parameters):
    return torch.zeros(parameters.C.shape[:2], dtype=torch.float64)


def pass_in_pieces(parameters, u, state, pieces):
    """The outputs and the last state, with one chunk of one block per piece."""
    outputs = []
    for piece in u.split(pieces, dim=1):
        operators = ops.dplr_chunk_operators(*parameters, piece.shape[1])
        y, state = ops.chunk_pass(operators, no_skip(parameters), piece, state)
        outputs.append(y)
    return torch.cat(outputs, dim=1), state


@with_the_plain_twin
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("length", LENGTHS)
def test_outputs_are_those_of_the_dense_recurrence(length, system, implementation):
    parameters = SYSTEMS[system]
    u, state = make_signal(parameters, length)
    expected, _ = run_dense(dense_system(parameters), u, state)
    for block in (1, 7, 64):
        operators = ops.dplr_chunk_operators(*parameters, block)
        y, _ = ops.chunk_pass(operators, no_skip(parameters), u, state)
        assert_near(y, expected, RUN_TOLERANCE)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(("block", "blocks"), [(1, 1), (1, 50), (7, 9), (64, 3), (100, 1)])
def test_the_state_after_whole_blocks_is_that_of_the_dense_recurrence(block, blocks, system, implementation):
    parameters = SYSTEMS[system]
    u, state = make_signal(parameters, block * blocks)
    _, expected = run_dense(dense_system(parameters), u, state)
    _, final = ops.chunk_pass(ops.dplr_chunk_operators(*parameters, block), no_skip(parameters), u, state)
    assert_near(final, expected, RUN_TOLERANCE)


def test_a_signal_that_ends_inside_a_block_counts_as_zero_up_to_its_end(implementation):
    parameters = SYSTEMS["legs"]
    u, state = make_signal(parameters, 50)
    padded = torch.nn.functional.pad(u, (0, 0, 0, 14))
    operators = ops.dplr_chunk_operators(*parameters, 32)
    y, final = ops.chunk_pass(operators, no_skip(parameters), u, state)
    whole, expected = ops.chunk_pass(operators, no_skip(parameters), padded, state)
    assert_near(y, whole[:, :50], CHUNK_TOLERANCE)
    assert_near(final, expected, CHUNK_TOLERANCE)


@pytest.mark.parametrize("method", ssm.DISCRETIZATIONS)
def test_diagonal_systems_of_either_rule_match_the_dense_recurrence(method, implementation):
    parameters = SYSTEMS["diagonal"]
    u, state = make_signal(parameters, 130)
    operators = ops.diagonal_chunk_operators(
        parameters.A, parameters.B, parameters.C, parameters.dt, 65, method
    )
    y, final = ops.chunk_pass(operators, no_skip(parameters), u, state)
    dense = discrete_system(dense_system(parameters), method)
    same = ops.dense_chunk_operators(*dense, dense_system(parameters).C, 65)
    expected, expected_final = ops.chunk_pass(same, no_skip(parameters), u, state)
    assert_near(y, expected, RUN_TOLERANCE)
    assert_near(final, expected_final, RUN_TOLERANCE)


@pytest.mark.parametrize("system", SYSTEMS)
def test_from_rest_it_is_the_convolution_with_the_kernel(system, implementation):
    parameters = SYSTEMS[system]
    u, state = make_signal(parameters, 100)
    skip = normal(CHANNELS, FEATURES, seed=13)
    operators = ops.dplr_chunk_operators(*parameters, 64)
    y, _ = ops.chunk_pass(operators, skip, u, torch.zeros_like(state))
    expected = ops.long_convolution(u, ops.dplr_kernel(*parameters, 100), skip=skip)
    assert_near(y, expected, CONVOLUTION_TOLERANCE)


@settings(
    max_examples=30,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(pieces=st.lists(st.integers(min_value=1, max_value=70), min_size=1, max_size=6))
def test_pieces_add_up_to_the_whole_wherever_it_is_cut(implementation, pieces):
    parameters = SYSTEMS["legs"]
    u, state = make_signal(parameters, sum(pieces))
    whole, final = run_dense(dense_system(parameters), u, state)
    y, last = pass_in_pieces(parameters, u, state, pieces)
    assert_near(y, whole, RUN_TOLERANCE)
    assert_near(last, final, RUN_TOLERANCE)


def test_every_signal_of_a_batch_has_its_own_state(implementation):
    parameters = SYSTEMS["legs"]
    operators = ops.dplr_chunk_operators(*parameters, 4)
    u, state = make_signal(parameters, 12)
    y, final = ops.chunk_pass(operators, no_skip(parameters), u, state)
    for b in range(BATCH):
        alone = slice(b, b + 1)
        y_alone, final_alone = ops.chunk_pass(operators, no_skip(parameters), u[alone], state[alone])
        assert_near(y[alone], y_alone, CHUNK_TOLERANCE)
        assert_near(final[alone], final_alone, CHUNK_TOLERANCE)


def test_inputs_are_left_alone_and_may_have_any_strides(implementation):
    parameters = SYSTEMS["legs"]
    operators = ops.dplr_chunk_operators(*parameters, 4)
    u, state = make_signal(parameters, 12)
    strided_u, strided_state = u.mT.contiguous().mT, state.mT.contiguous().mT
    before = strided_u.clone(), strided_state.clone()
    y, final = ops.chunk_pass(operators, no_skip(parameters), strided_u, strided_state)
    expected, expected_final = ops.chunk_pass(operators, no_skip(parameters), u, state)
    assert torch.equal(y, expected)
    assert torch.equal(final, expected_final)
    assert torch.equal(strided_u, before[0])
    assert torch.equal(strided_state, before[1])


@with_the_plain_twin
@pytest.mark.parametrize(("block", "length"), [(1, 1), (4, 4), (4, 7), (8, 5)])
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_gradients_are_right(rank, block, length, implementation):
    parameters = random_parameters(4, (0.1, 0.7), rank=rank, channels=2, untied=True)
    others = normal(2, 2, seed=3), normal(3, length, 2, seed=4), normal(3, 2, 4, seed=5)

    def run(*inputs):
        operators = ops.dplr_chunk_operators(*inputs[:6], block)
        return ops.chunk_pass(operators, *inputs[6:])

    assert gradcheck(run, tuple(x.detach().clone().requires_grad_() for x in (*parameters, *others)))


@with_the_plain_twin
@pytest.mark.parametrize("method", ssm.DISCRETIZATIONS)
def test_gradients_of_diagonal_systems_are_right(method, implementation):
    A, _, _, B, C, dt = random_parameters(4, (0.1, 0.7), rank=0, channels=2).requiring_grad()
    assert gradcheck(lambda *inputs: tuple(ops.diagonal_chunk_operators(*inputs, 5, method)), (A, B, C, dt))


@pytest.mark.parametrize("block", [1, 3, 64])
def test_gradients_of_dense_systems_are_right(block):
    A_bar = (normal(2, 3, 3, seed=1) / 3).requires_grad_()
    B_bar, C = (normal(*shape, seed=2).requires_grad_() for shape in ((2, 3), (2, 2, 3)))
    assert gradcheck(lambda *inputs: tuple(ops.dense_chunk_operators(*inputs, block)), (A_bar, B_bar, C))


@pytest.mark.parametrize("dtype", TWIN_TOLERANCES)
@pytest.mark.parametrize(("batch", "length", "features", "state_size", "block", "channels"), SIZES)
def test_the_fast_passes_and_their_gradients_match_the_plain_ones(
    batch, length, features, state_size, block, channels, dtype
):
    shapes = [
        (features, block, state_size),
        (channels, features, block, state_size),
        (channels, features, block),
        (features, state_size, state_size),
        (channels, features),
        (batch, length, features),
        (batch, features, state_size),
    ]
    inputs = [normal(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    # A block that makes states smaller.
    inputs[3] = 0.5 * inputs[3] / state_size - 0.5 * torch.eye(state_size, dtype=torch.float64)
    inputs = [x.to(dtype).requires_grad_() for x in inputs]
    expected = reference.chunk_pass(*inputs)
    grads = [normal(*x.shape, seed=9).to(dtype) for x in expected]
    wanted = torch.autograd.grad(expected, inputs, grads)
    bare = [x.detach() for x in inputs]
    for fast in (cpu, portable):
        actual = [*fast.chunk_pass(*bare), *fast.chunk_pass_backward(*grads, *bare)]
        for a, b in zip(actual, [*expected, *wanted], strict=True):
            assert a.dtype == dtype
            assert_near(a, b.detach(), TWIN_TOLERANCES[dtype])


@pytest.mark.parametrize("block", [1, 2, 13, 64])
@pytest.mark.parametrize(("rank", "state_size"), [(0, 2), (0, 64), (1, 4), (1, 64), (2, 10), (3, 6)])
def test_the_fast_operators_and_their_gradients_match_the_plain_ones(rank, state_size, block):
    parameters = random_parameters(state_size, (1e-3, 0.1, 0.5), rank=rank, channels=2)
    A, P, Q, B, C, dt = parameters
    system = [x.requires_grad_() for x in (*reference.bilinear(A, P, Q, B, dt), C)]
    expected = reference.modal_chunk_operators(*system, block)
    grads = [normal(*x.shape, seed=9) for x in expected]
    # A diagonal system's empty correction is not part of the graph.
    wanted = torch.autograd.grad(expected, system, grads, allow_unused=True, materialize_grads=True)
    bare = [x.detach() for x in system]
    actual = [*cpu.modal_chunk_operators(*bare, block), *cpu.modal_chunk_operators_backward(grads, *bare)]
    for a, b in zip(actual, [*expected, *wanted], strict=True):
        if b.numel():
            assert_near(a, b.detach(), OPERATORS_TOLERANCE)


@pytest.mark.parametrize("step_size", [1e-5, 1.0])
def test_float32_keeps_its_digits_over_many_blocks_of_extreme_systems(step_size):
    """At Δ = 1e-5 a block changes a state by a thousandth: without the 1 that change keeps all its digits."""
    exact = hippo_parameters("legs", 64, (step_size,) * 4)
    rough = exact.to(torch.float32)
    u, state = normal(2, 4096, 4, seed=1), torch.zeros(2, 4, 64, dtype=torch.float64)
    expected, expected_state = run_blocks(exact, u, state)
    y, final = run_blocks(rough, u.float(), state.float())
    assert y.isfinite().all()
    # Measured: 8e-7 for the outputs, 1e-6 for the states.
    assert_near(y.double(), expected, 5e-6)
    assert_near(final.double(), expected_state, 5e-6)


def run_blocks(parameters: Parameters, u, state):
    operators = ops.dplr_chunk_operators(*parameters, 64)
    return ops.chunk_pass(operators, no_skip(parameters).to(u.dtype), u, state)


def test_registered_operators_keep_the_rules_for_operators():
    A, P, Q, B, C, dt = random_parameters(4, (0.1, 0.7), rank=1, channels=2)
    system = [x.requires_grad_() for x in (*reference.bilinear(A, P, Q, B, dt), C)]
    torch.library.opcheck(torch.ops.torchs4.modal_chunk_operators.default, (*system, 5))
    operators = [x.detach().requires_grad_() for x in reference.modal_chunk_operators(*system, 5)]
    others = [x.requires_grad_() for x in (normal(2, 2), normal(3, 12, 2), normal(3, 2, 4))]
    torch.library.opcheck(torch.ops.torchs4.chunk_pass.default, (*operators, *others))


@pytest.mark.parametrize(
    ("argument", "shape"), [("skip", (1, 3)), ("u", (3, 12, 4)), ("state", (2, 3, 16)), ("block", ())]
)
def test_wrong_sizes_are_refused_by_name(argument, shape):
    parameters = SYSTEMS["legs"]
    u, state = make_signal(parameters, 12)
    arguments = {"skip": no_skip(parameters), "u": u, "state": state}
    if argument == "block":
        with pytest.raises(ValueError, match="length is 0"):
            ops.dplr_chunk_operators(*parameters, 0)
        return
    operators = ops.dplr_chunk_operators(*parameters, 4)
    with pytest.raises(ValueError, match=f"{argument} has shape"):
        ops.chunk_pass(operators, **{**arguments, argument: torch.zeros(shape, dtype=torch.float64)})


@pytest.mark.parametrize("name", ["reach", "response", "change"])
def test_operators_that_do_not_fit_one_another_are_refused(name):
    parameters = SYSTEMS["legs"]
    u, state = make_signal(parameters, 12)
    operators = ops.dplr_chunk_operators(*parameters, 4)
    wrong = operators._replace(**{name: getattr(operators, name)[..., :-1]})
    with pytest.raises(ValueError, match=f"{name} has shape"):
        ops.chunk_pass(wrong, no_skip(parameters), u, state)
