import math

import numpy as np
import pytest
import scipy.signal
import torch
from oracle import (
    Parameters,
    dense_kernel,
    dense_system,
    diagonal_parameters,
    discrete_system,
    hippo_parameters,
    long_legs_oracle,
    normal,
    random_parameters,
    relative_error,
)

from torchs4 import ops, ssm

pytestmark = pytest.mark.usefixtures("implementation")

# All relative to the largest value of each kernel.
DPLR_TOLERANCE = {
    # Aliasing and the growth of rounding on the contour, 1e-12, times what cancels in a kernel of one sample.
    torch.float64: 1e-9,
    # Aliasing of 1e-8 and one rounding of 6e-8, times what cancels in a kernel of one sample.
    torch.float32: 1e-5,
}


def diagonal_tolerance(dtype):
    if dtype == torch.float64:
        # The oracle's matrix exponential is good to 1e-12 at norms of 1e4.
        return 1e-10
    # Portable: a few roundings in float32, times what cancels in a kernel of one sample. Elsewhere sums are
    # in float64: one rounding to float32 of 6e-8 is all there is.
    return 1e-5 if ops.get_implementation() == "portable" else 1e-6


# The same real matrices, whose powers are multiplied in another order.
DENSE_TOLERANCE = 1e-12
# Another order of summation: rounding, which the contour lets grow to 1e-12, and one rounding to float32.
SEPARATE_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-6}

LENGTHS = [1, 2, 3, 63, 100, 1024, 4096]
STATE_SIZES = [2, 4, 16, 64, 128]
STEP_SIZES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
DTYPES = [torch.float64, torch.float32]
DIAGONAL_STARTS = ["legs", "lin", "inv", "real"]


def select(parameters, feature):
    one = slice(feature, feature + 1)
    A, P, Q, B, C, dt = parameters
    return Parameters(A[one], P[:, one], Q[:, one], B[one], C[:, one], dt[one])


def scipy_impulse_response(A, B, C, step_size, length, method):
    column, row = B[:, None].numpy(), C[None].numpy()
    A_bar, B_bar, *_ = scipy.signal.cont2discrete(
        (A.numpy(), column, row, np.zeros((1, 1))), step_size, method=method
    )
    impulse = np.zeros(length)
    impulse[0] = 1
    # SciPy reads the state before the update, hence C Ā and C B̄ for what is C x_k here.
    _, y, _ = scipy.signal.dlsim((A_bar, B_bar, row @ A_bar, row @ B_bar, step_size), impulse)
    return torch.from_numpy(y[:, 0])


def diagonal_kernel(parameters, length, method):
    A, _, _, B, C, dt = parameters
    return ops.diagonal_kernel(A, B, C, dt, length, method)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("state_size", STATE_SIZES)
def test_dplr_kernel_matches_dense_legs(state_size, length, dtype):
    parameters, expected = long_legs_oracle(state_size, STEP_SIZES, max(LENGTHS), dtype)
    kernel = ops.dplr_kernel(*parameters, length)
    assert kernel.dtype == dtype
    assert kernel.shape == (1, len(STEP_SIZES), length)
    assert relative_error(kernel, expected[..., :length]) <= DPLR_TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [1, 2, 63, 100, 1024])
def test_dplr_kernel_matches_dense_legt(length, dtype):
    parameters = hippo_parameters("legt", 16, (1e-3, 1e-2, 1e-1)).to(dtype)
    expected = dense_kernel(dense_system(parameters), length)
    assert relative_error(ops.dplr_kernel(*parameters, length), expected) <= DPLR_TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("untied", [False, True])
@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_dplr_kernel_matches_oracle_for_every_rank(rank, untied, dtype):
    parameters = random_parameters(10, (1e-3, 3e-2, 1.0), rank=rank, channels=3, untied=untied).to(dtype)
    system = dense_system(parameters)
    assert torch.linalg.eigvals(system.A).real.max() < 0
    for length in (2, 63, 100):
        kernel = ops.dplr_kernel(*parameters, length)
        assert kernel.shape == (3, 3, length)
        assert relative_error(kernel, dense_kernel(system, length)) <= DPLR_TOLERANCE[dtype]


@pytest.mark.parametrize("step_size", [1e-3, 1e-1])
def test_dplr_kernel_matches_scipy(step_size):
    parameters = hippo_parameters("legs", 16, (step_size,))
    A, B, C, _ = dense_system(parameters)
    expected = scipy_impulse_response(A[0], B[0], C[0, 0], step_size, 1000, "bilinear")
    kernel = ops.dplr_kernel(*parameters, 1000)
    assert relative_error(kernel[0, 0], expected) <= DPLR_TOLERANCE[torch.float64]


def test_dplr_kernel_starts_like_a_shorter_one():
    parameters = hippo_parameters("legs", 64, (1e-3, 1e-2))
    whole = ops.dplr_kernel(*parameters, 1000)
    short = ops.dplr_kernel(*parameters, 400)
    assert relative_error(short, whole[..., :400]) <= DPLR_TOLERANCE[torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dplr_kernel_of_many_features_equals_each_alone(dtype):
    # Enough features, modes and samples that the nodes are taken in several blocks.
    step_sizes = tuple(np.geomspace(1e-3, 1e-1, 64).tolist())
    parameters = hippo_parameters("legs", 128, step_sizes).to(dtype).requiring_grad()
    kernel = ops.dplr_kernel(*parameters, 1500)
    weights = normal(*kernel.shape).to(dtype)
    gradients = Parameters(*torch.autograd.grad(kernel, parameters, weights))
    for feature in (0, 31, 63):
        alone = select(parameters, feature).requiring_grad()
        expected = ops.dplr_kernel(*alone, 1500)
        assert relative_error(kernel[:, feature], expected[:, 0]) <= SEPARATE_TOLERANCE[dtype]
        expected = Parameters(*torch.autograd.grad(expected, alone, weights[:, feature : feature + 1]))
        for actual, wanted in zip(select(gradients, feature), expected, strict=True):
            assert relative_error(actual.flatten(), wanted.flatten()) <= SEPARATE_TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("state_size", [4, 64])
def test_dplr_kernel_is_right_for_extreme_step_sizes(state_size, dtype):
    parameters = hippo_parameters("legs", state_size, (1e-5, 1.0, 10.0)).to(dtype)
    expected = dense_kernel(dense_system(parameters), 1024)
    assert relative_error(ops.dplr_kernel(*parameters, 1024), expected) <= DPLR_TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [1, 2, 63, 100, 1024])
@pytest.mark.parametrize("frequency", [1e2, 1e4, 1e6])
def test_dplr_kernel_is_right_for_modes_at_nyquist(frequency, length, dtype):
    # Under the bilinear rule, Im λ·Δ ≫ 2 lands next to -1 on the unit circle and hardly decays.
    parameters = random_parameters(4, (1.0, 1.0), rank=1)
    parameters.A[..., 1] = frequency * torch.tensor([[1.0, 1.5], [-1.0, 3.0]])
    parameters = parameters.to(dtype)
    expected = dense_kernel(dense_system(parameters), length)
    assert relative_error(ops.dplr_kernel(*parameters, length), expected) <= DPLR_TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", ssm.DISCRETIZATIONS)
@pytest.mark.parametrize("start", DIAGONAL_STARTS)
def test_diagonal_kernel_matches_oracle(start, method, dtype):
    parameters = diagonal_parameters(start, 32, (1e-4, 1e-3, 1e-2, 1e-1, 0.9), channels=2).to(dtype)
    expected = dense_kernel(dense_system(parameters), 1024, method)
    for length in (1, 2, 3, 63, 64, 65, 100, 1024):
        kernel = diagonal_kernel(parameters, length, method)
        assert kernel.dtype == dtype
        assert kernel.shape == (2, 5, length)
        assert relative_error(kernel, expected[..., :length]) <= diagonal_tolerance(dtype)


@pytest.mark.parametrize("method", ssm.DISCRETIZATIONS)
@pytest.mark.parametrize("start", DIAGONAL_STARTS)
def test_diagonal_kernel_stays_right_over_65536_samples(start, method):
    length = 65_536
    parameters = diagonal_parameters(start, 64, (1e-5, 1e-4, 1e-3, 1e-2)).to(torch.float32)
    A, B, C = (torch.view_as_complex(x.double()) for x in (parameters.A, parameters.B, parameters.C))
    dt = parameters.dt.double()[:, None]
    if method == "zoh":
        exponent, b = dt * A, torch.expm1(dt * A) / A * B
    else:
        exponent, b = 2 * torch.atanh(dt * A / 2), dt * B / (1 - dt * A / 2)
    steps = torch.arange(length)
    expected = torch.stack(
        [2 * (row @ torch.exp(e[:, None] * steps)).real for row, e in zip(C[0] * b, exponent, strict=True)]
    )
    kernel = diagonal_kernel(parameters, length, method)
    assert relative_error(kernel[0], expected) <= diagonal_tolerance(torch.float32)


@pytest.mark.parametrize("method", ssm.DISCRETIZATIONS)
def test_diagonal_kernel_matches_scipy(method):
    parameters = diagonal_parameters("lin", 16, (0.02,))
    A, B, C, _ = dense_system(parameters)
    expected = scipy_impulse_response(A[0], B[0], C[0, 0], 0.02, 1000, method)
    kernel = diagonal_kernel(parameters, 1000, method)
    assert relative_error(kernel[0, 0], expected) <= diagonal_tolerance(torch.float64)


def test_diagonal_kernel_is_the_dplr_kernel_of_rank_0():
    parameters = diagonal_parameters("inv", 32, (1e-3, 1e-1), channels=2)
    kernel = diagonal_kernel(parameters, 500, "bilinear")
    assert relative_error(ops.dplr_kernel(*parameters, 500), kernel) <= DPLR_TOLERANCE[torch.float64]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("method", ssm.DISCRETIZATIONS)
def test_diagonal_kernel_is_right_for_extreme_step_sizes(method, dtype):
    parameters = diagonal_parameters("legs", 64, (1e-5, 1.0, 10.0)).to(dtype)
    expected = dense_kernel(dense_system(parameters), 1024, method)
    assert relative_error(diagonal_kernel(parameters, 1024, method), expected) <= diagonal_tolerance(dtype)


@pytest.mark.parametrize("method", ssm.DISCRETIZATIONS)
@pytest.mark.parametrize("angle", [math.pi, 1.5 * math.pi, -math.pi, 1e4])
def test_diagonal_kernel_is_right_at_and_above_nyquist(angle, method):
    parameters = random_parameters(4, (1.0, 0.5), rank=0)
    parameters.A[..., 1] = angle / parameters.dt[:, None]
    expected = dense_kernel(dense_system(parameters), 100, method)
    kernel = diagonal_kernel(parameters, 100, method)
    assert relative_error(kernel, expected) <= diagonal_tolerance(torch.float64)


@pytest.mark.parametrize(
    ("eigenvalue", "method"),
    [
        ((-2.0, 0.0), "bilinear"),
        ((-2.0000001, 0.0), "bilinear"),
        ((-20.0, 3.0), "zoh"),
        ((-40.0, 0.0), "zoh"),
        ((-1000.0, 1.0), "zoh"),
    ],
)
def test_diagonal_kernel_is_right_for_modes_that_die_at_once(eigenvalue, method):
    # A mode may have nothing left after one sample: a = 0 to rounding, or exactly at λΔ = -2 when bilinear.
    parameters = random_parameters(4, (1.0, 1.0), rank=0)
    parameters.A[:, 0] = torch.tensor(eigenvalue)
    parameters = parameters.requiring_grad()
    expected = dense_kernel(dense_system(parameters), 100, method)
    kernel = diagonal_kernel(parameters, 100, method)
    assert relative_error(kernel, expected) <= diagonal_tolerance(torch.float64)
    for gradient in torch.autograd.grad(kernel.sum(), (parameters.A, parameters.dt)):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("length", [1, 2, 3, 63, 64, 65, 100, 1024])
def test_dense_kernel_matches_oracle(length):
    system = dense_system(hippo_parameters("legs", 16, (1e-3, 1e-2, 1e-1), channels=2))
    discrete = discrete_system(system)
    kernel = ops.dense_kernel(discrete.A, discrete.B, system.C, length)
    assert kernel.shape == (2, 3, length)
    assert relative_error(kernel, dense_kernel(system, length)) <= DENSE_TOLERANCE


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_kernels_of_narrow_parameters_come_in_float32(dtype):
    parameters = random_parameters(4, (0.1, 0.2), rank=1).to(dtype)
    rounded = parameters.to(torch.float64)
    kernel = ops.dplr_kernel(*parameters, 50)
    assert kernel.dtype == torch.float32
    expected = dense_kernel(dense_system(rounded), 50)
    assert relative_error(kernel, expected) <= DPLR_TOLERANCE[torch.float32]
    kernel = diagonal_kernel(parameters, 50, "zoh")
    assert kernel.dtype == torch.float32
    assert relative_error(kernel, diagonal_kernel(rounded, 50, "zoh")) <= diagonal_tolerance(torch.float32)


@pytest.mark.parametrize("name", Parameters._fields)
def test_dplr_kernel_refuses_a_wrong_shape(name):
    parameters = random_parameters(4, (0.1, 0.2), rank=1)
    wrong = getattr(parameters, name)
    wrong = wrong[:-1] if name == "dt" else wrong[..., :1]
    with pytest.raises(ValueError, match=rf"{name} has shape .*; expected"):
        ops.dplr_kernel(*parameters._replace(**{name: wrong}), 8)


@pytest.mark.parametrize("name", ["B", "C", "dt"])
def test_diagonal_kernel_refuses_a_wrong_shape(name):
    parameters = random_parameters(4, (0.1, 0.2), rank=0)
    wrong = getattr(parameters, name)
    wrong = wrong[:-1] if name == "dt" else wrong[..., :1]
    with pytest.raises(ValueError, match=rf"{name} has shape .*; expected"):
        diagonal_kernel(parameters._replace(**{name: wrong}), 8, "zoh")


@pytest.mark.parametrize("length", [0, -1])
def test_kernels_need_a_length(length):
    parameters = random_parameters(4, (0.1, 0.2), rank=1)
    with pytest.raises(ValueError, match=f"length is {length};"):
        ops.dplr_kernel(*parameters, length)
    with pytest.raises(ValueError, match=f"length is {length};"):
        diagonal_kernel(parameters, length, "zoh")


def test_diagonal_kernel_refuses_an_unknown_discretization():
    with pytest.raises(ValueError, match="'euler'; choose 'bilinear' or 'zoh'"):
        diagonal_kernel(random_parameters(4, (0.1,), rank=0), 8, "euler")
