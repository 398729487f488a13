import pytest
import torch
from oracle import (
    Parameters,
    dense_kernel,
    dense_system,
    hippo_parameters,
    normal,
    random_parameters,
    relative_error,
)
from torch.autograd import gradcheck

from torchs4 import ops, ssm
from torchs4.ops import reference

# Relative to the largest gradient of each input.
GRADIENT_TOLERANCE = {
    # The contour's 1e-12, summed over a thousand samples and multiplied by slopes in Δ of up to 1/Δ.
    torch.float64: 1e-8,
    # The gradient of the output arrives in float32 and each gradient is rounded once; aliasing is 1e-8.
    torch.float32: 1e-4,
}

# The same operations, traced.
COMPILED_TOLERANCE = 1e-13

DTYPES = list(GRADIENT_TOLERANCE)
under_every_implementation = pytest.mark.usefixtures("implementation")
STEP_SIZES = (0.1, 0.7)
LENGTHS = [1, 2, 5, 12]


def small_parameters(rank, state_size=4, channels=2):
    untied = random_parameters(state_size, STEP_SIZES, rank=rank, channels=channels, untied=True)
    return untied.requiring_grad()


def leaf(*shape, seed=0):
    return normal(*shape, seed=seed).requires_grad_()


def discrete_matrix(features=2, state_size=3):
    return (normal(features, state_size, state_size, seed=1) / state_size).requires_grad_()


@under_every_implementation
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_dplr_kernel_has_right_gradients(rank, length):
    assert gradcheck(lambda *inputs: ops.dplr_kernel(*inputs, length), tuple(small_parameters(rank)))


@under_every_implementation
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("method", ssm.DISCRETIZATIONS)
def test_diagonal_kernel_has_right_gradients(method, length):
    A, _, _, B, C, dt = small_parameters(rank=0)
    assert gradcheck(lambda *inputs: ops.diagonal_kernel(*inputs, length, method), (A, B, C, dt))


@pytest.mark.parametrize("length", LENGTHS)
def test_dense_kernel_has_right_gradients(length):
    inputs = (discrete_matrix(), leaf(2, 3, seed=2), leaf(2, 2, 3, seed=3))
    assert gradcheck(lambda *inputs: ops.dense_kernel(*inputs, length), inputs)


@under_every_implementation
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("both_ways", [False, True])
def test_convolution_has_right_gradients(both_ways, length):
    kernels = [leaf(2, 3, length, seed=seed) for seed in (1, 2)[: 1 + both_ways]]
    backward_kernel = kernels[1] if both_ways else None
    inputs = (leaf(3, length, 3, seed=3), kernels[0], backward_kernel, leaf(2, 3, seed=4))
    assert gradcheck(ops.long_convolution, inputs)


@pytest.mark.parametrize("name", ["cpu", "reference"])
@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_bilinear_rule_has_right_gradients(rank, name):
    A, P, Q, B, _, dt = small_parameters(rank)
    before = ops.get_implementation()
    ops.set_implementation(name)
    try:
        assert gradcheck(torch.ops.torchs4.bilinear, (A, P, Q, B, dt))
        torch.library.opcheck(torch.ops.torchs4.bilinear.default, (A, P, Q, B, dt))
    finally:
        ops.set_implementation(before)


@under_every_implementation
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_discretize_dplr_has_right_gradients(rank):
    A, P, Q, B, _, dt = small_parameters(rank)
    assert gradcheck(lambda *inputs: tuple(ops.discretize_dplr(*inputs)), (A, P, Q, B, dt))


@under_every_implementation
@pytest.mark.parametrize("method", ssm.DISCRETIZATIONS)
def test_discretize_diagonal_has_right_gradients(method):
    A, _, _, B, _, dt = small_parameters(rank=0)
    # The empty correction depends on nothing, so it is left out.
    assert gradcheck(lambda A, B, dt: ops.discretize_diagonal(A, B, dt, method)[::3], (A, B, dt))


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_dense_transition_and_output_row_have_right_gradients(rank):
    a, p, q = leaf(2, 3, 2, seed=1), leaf(rank, 2, 6, seed=2), leaf(rank, 2, 6, seed=3)
    b = normal(2, 6)
    assert gradcheck(lambda a, p, q: ops.dense_transition(ops.DiscreteDPLR(a, p, q, b)), (a, p, q))
    assert gradcheck(ops.output_row, (leaf(2, 2, 3, 2, seed=4),))


@under_every_implementation
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_dplr_step_has_right_gradients(rank):
    a, p, q, b = leaf(2, 3, 2, seed=1), leaf(rank, 2, 6, seed=2), leaf(rank, 2, 6, seed=3), leaf(2, 6, seed=4)
    C, D, u, state = leaf(2, 2, 6, seed=5), leaf(2, 2, seed=8), leaf(3, 2, seed=6), leaf(3, 2, 6, seed=7)
    assert gradcheck(
        lambda a, p, q, b, *rest: ops.dplr_step(ops.DiscreteDPLR(a, p, q, b), *rest),
        (a, p, q, b, C, D, u, state),
    )


def test_dense_step_has_right_gradients():
    inputs = (
        discrete_matrix(),
        leaf(2, 3, seed=2),
        leaf(2, 2, 3, seed=3),
        leaf(2, 2, seed=6),
        leaf(3, 2, seed=4),
        leaf(3, 2, 3, seed=5),
    )
    assert gradcheck(ops.dense_step, inputs)


@under_every_implementation
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("length", [1, 2, 63, 100, 1024])
@pytest.mark.parametrize(("start", "state_size"), [("legs", 16), ("legt", 8)])
def test_dplr_kernel_gradients_match_the_dense_oracle(start, state_size, length, dtype):
    parameters = hippo_parameters(start, state_size, (1e-3, 1e-2, 1e-1)).to(dtype)
    assert_gradients_match_the_dense_oracle(parameters, length, dtype)


@under_every_implementation
@pytest.mark.parametrize("dtype", DTYPES)
def test_dplr_kernel_gradients_are_right_for_extreme_step_sizes(dtype):
    parameters = hippo_parameters("legs", 16, (1e-5, 1.0, 10.0)).to(dtype)
    assert_gradients_match_the_dense_oracle(parameters, 100, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_dplr_kernel_gradients_are_right_for_modes_at_nyquist(dtype):
    parameters = random_parameters(4, (1.0, 1.0), rank=1)
    parameters.A[..., 1] = 1e4 * torch.tensor([[1.0, 1.5], [-1.0, 3.0]])
    assert_gradients_match_the_dense_oracle(parameters.to(dtype), 100, dtype)


def assert_gradients_match_the_dense_oracle(parameters, length, dtype):
    parameters = parameters.requiring_grad()
    exact = parameters.to(torch.float64).requiring_grad()
    expected_kernel = dense_kernel(dense_system(exact), length)
    weights = normal(*expected_kernel.shape, seed=9).to(dtype)
    actual = torch.autograd.grad(ops.dplr_kernel(*parameters, length), parameters, weights)
    expected = torch.autograd.grad(expected_kernel, exact, weights.double())
    for name, gradient, wanted in zip(Parameters._fields, actual, expected, strict=True):
        assert gradient.dtype == dtype
        # One row per feature, because features with small steps have far smaller gradients.
        feature_axis = 1 if name in "PQC" else 0
        gradient, wanted = (
            x.movedim(feature_axis, 0).reshape(x.shape[feature_axis], -1) for x in (gradient, wanted)
        )
        assert relative_error(gradient, wanted) <= GRADIENT_TOLERANCE[dtype], name


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_registered_kernel_keeps_the_rules_for_operators(rank, dtype):
    inputs = [x.detach().requires_grad_() for x in modal_inputs(rank, dtype)]
    torch.library.opcheck(torch.ops.torchs4.modal_kernel.default, (*inputs, 7))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rank", [0, 1, 2])
def test_registered_kernel_backward_keeps_the_rules_for_operators(rank, dtype):
    inputs = [x.detach() for x in modal_inputs(rank, dtype)]
    gradient = normal(2, 2, 7).to(dtype)
    torch.library.opcheck(torch.ops.torchs4.modal_kernel_backward.default, (gradient, *inputs))


@pytest.mark.parametrize("start", ["legs", "legt"])
def test_compiled_kernel_equals_the_plain_one(start):
    # A compiler calls operators with some of PyTorch's dispatch switched off, lazy conjugation among it.
    parameters = hippo_parameters(start, 8, (1e-2, 1e-1), channels=2).requiring_grad()

    def kernel_and_gradients(function):
        kernel = function(*parameters, 12)
        return kernel, *torch.autograd.grad(kernel, parameters, normal(2, 2, 12))

    # The compiler's front half shows all of it and needs no C++ compiler.
    compiled = torch.compile(ops.dplr_kernel, backend="aot_eager", fullgraph=True)
    plain = kernel_and_gradients(ops.dplr_kernel)
    for actual, expected in zip(kernel_and_gradients(compiled), plain, strict=True):
        assert relative_error(actual, expected) <= COMPILED_TOLERANCE


def modal_inputs(rank, dtype):
    A, P, Q, B, C, dt = small_parameters(rank)
    return *reference.bilinear(A, P, Q, B, dt), C.to(dtype)
