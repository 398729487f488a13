import pytest
import torch
from oracle import (
    dense_system,
    diagonal_parameters,
    discrete_system,
    hippo_parameters,
    normal,
    random_parameters,
    run_dense,
)

from torchs4 import ops, ssm

pytestmark = pytest.mark.usefixtures("implementation")

# All relative to the largest expected value.
# Woodbury's formula against a linear solve, both in float64: at N = 128 each loses three digits.
DISCRETE_TOLERANCE = 1e-11
# A thousand contracting steps in float64, taken in another order.
RUN_TOLERANCE = 1e-11
# Odd on purpose.
BATCH, STEP_SIZES, CHANNELS = 3, (1e-3, 1e-2, 1e-1), 2
FEATURES = len(STEP_SIZES)
SYSTEMS = {
    "legs": hippo_parameters("legs", 16, STEP_SIZES, CHANNELS),
    "legt": hippo_parameters("legt", 8, STEP_SIZES, CHANNELS),
    "diagonal": diagonal_parameters("inv", 8, STEP_SIZES, CHANNELS),
    "untied": random_parameters(10, STEP_SIZES, rank=3, channels=CHANNELS, untied=True),
}


def assert_near(actual, expected, tolerance):
    assert actual.shape == expected.shape
    assert (actual - expected).abs().max() <= tolerance * expected.abs().max()


def make_signal(parameters, length):
    u = normal(BATCH, length, FEATURES, seed=11)
    return u, normal(BATCH, FEATURES, 2 * parameters.A.shape[1], seed=12)


def discretize(parameters):
    return ops.discretize_dplr(*parameters[:4], parameters.dt)


def step_through(step, u, state):
    outputs = []
    for u_k in u.unbind(1):
        y_k, state = step(u_k, state)
        outputs.append(y_k)
    return torch.stack(outputs, dim=1), state


@pytest.mark.parametrize("name", SYSTEMS)
def test_discrete_dplr_system_written_out_matches_dense_discretization(name):
    parameters = SYSTEMS[name]
    system = discretize(parameters)
    expected = discrete_system(dense_system(parameters))
    assert_near(ops.dense_transition(system), expected.A, DISCRETE_TOLERANCE)
    assert_near(system.b, expected.B, DISCRETE_TOLERANCE)
    assert_near(ops.output_row(parameters.C), dense_system(parameters).C, DISCRETE_TOLERANCE)


@pytest.mark.parametrize("state_size", [2, 64, 128])
def test_discretization_is_right_for_every_step_size(state_size):
    parameters = hippo_parameters("legs", state_size, (1e-5, 1e-3, 1e-1, 1.0, 10.0))
    expected = discrete_system(dense_system(parameters))
    system = discretize(parameters)
    assert_near(ops.dense_transition(system), expected.A, DISCRETE_TOLERANCE)
    for column, wanted in zip(system.b, expected.B, strict=True):
        assert_near(column, wanted, DISCRETE_TOLERANCE)


@pytest.mark.parametrize("method", ssm.DISCRETIZATIONS)
def test_discrete_diagonal_system_matches_dense_discretization(method):
    parameters = SYSTEMS["diagonal"]
    system = ops.discretize_diagonal(parameters.A, parameters.B, parameters.dt, method)
    expected = discrete_system(dense_system(parameters), method)
    assert system.p.shape == system.q.shape == (0, FEATURES, 8)
    assert_near(ops.dense_transition(system), expected.A, DISCRETE_TOLERANCE)
    assert_near(system.b, expected.B, DISCRETE_TOLERANCE)


@pytest.mark.parametrize("name", SYSTEMS)
def test_dplr_steps_match_dense_recurrence(name):
    parameters = SYSTEMS[name]
    system, C = discretize(parameters), ops.output_row(parameters.C)
    u, state = make_signal(parameters, 100)
    D = normal(*C.shape[:2], seed=9)
    y, final = step_through(lambda u_k, x: ops.dplr_step(system, C, D, u_k, x), u, state)
    expected_y, expected_final = run_dense(dense_system(parameters), u, state)
    assert_near(y, expected_y + D * u[:, :, None], RUN_TOLERANCE)
    assert_near(final, expected_final, RUN_TOLERANCE)


@pytest.mark.parametrize("name", SYSTEMS)
def test_dense_steps_match_dense_recurrence(name):
    parameters = SYSTEMS[name]
    dense = dense_system(parameters)
    discrete = discrete_system(dense)
    u, state = make_signal(parameters, 100)
    D = normal(*dense.C.shape[:2], seed=9)
    y, final = step_through(lambda u_k, x: ops.dense_step(*discrete, dense.C, D, u_k, x), u, state)
    expected_y, expected_final = run_dense(dense, u, state)
    assert_near(y, expected_y + D * u[:, :, None], RUN_TOLERANCE)
    assert_near(final, expected_final, RUN_TOLERANCE)


def test_recurrence_leaves_its_inputs_alone():
    parameters = SYSTEMS["legs"]
    u, state = make_signal(parameters, 7)
    u_before, state_before = u.clone(), state.clone()
    C = ops.output_row(parameters.C)
    ops.dplr_step(discretize(parameters), C, torch.ones(C.shape[:2]), u[:, 0], state)
    assert torch.equal(u, u_before)
    assert torch.equal(state, state_before)
