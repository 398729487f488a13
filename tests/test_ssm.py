import numpy as np
import pytest
import scipy.signal
import torch

from torchs4 import hippo, ssm

# A linear solve of a well-scaled 8 × 8 matrix, and two hundred contracting steps.
# torch.linalg.matrix_exp of one matrix with a norm of 0.01 to 0.05 has a wrong coefficient of order 8
# (pytorch issue 196592), which leaves an error of 3e-12 that B̄ ~ Δ carries as 5e-10 into the outputs.
SCIPY_TOLERANCE = {"bilinear": 1e-12, "zoh": 1e-9}
# The same few operations in another order.
ROUNDING_TOLERANCE = 1e-13

STEP_SIZES = [1e-3, 0.1, 1.0]


def make_system(state_size=8):
    generator = torch.Generator().manual_seed(0)
    A, B = hippo.legs(state_size)
    C, x = torch.randn(2, state_size, dtype=torch.float64, generator=generator)
    u = torch.randn(200, dtype=torch.float64, generator=generator)
    return A, B, C, u, x


def scipy_discretize(A, B, C, step_size, method):
    no_skip = np.zeros((1, 1))
    A_bar, B_bar, *_ = scipy.signal.cont2discrete(
        (A.numpy(), B[:, None].numpy(), C[None].numpy(), no_skip), step_size, method=method
    )
    return A_bar, B_bar


@pytest.mark.parametrize("step_size", STEP_SIZES)
@pytest.mark.parametrize("method", ssm.DISCRETIZATIONS)
def test_discretize_matches_scipy(method, step_size):
    A, B, C, _, _ = make_system()
    system = ssm.discretize(A, B, torch.tensor(step_size, dtype=torch.float64), method)
    A_bar, B_bar = scipy_discretize(A, B, C, step_size, method)
    np.testing.assert_allclose(system.A.numpy(), A_bar, atol=SCIPY_TOLERANCE[method], rtol=0)
    np.testing.assert_allclose(system.B.numpy(), B_bar[:, 0], atol=SCIPY_TOLERANCE[method], rtol=0)


@pytest.mark.parametrize("step_size", STEP_SIZES)
@pytest.mark.parametrize("method", ssm.DISCRETIZATIONS)
def test_run_matches_scipy(method, step_size):
    A, B, C, u, x = make_system()
    system = ssm.discretize(A, B, torch.tensor(step_size, dtype=torch.float64), method)
    y, _ = ssm.run(system, C, u, x)

    A_bar, B_bar = scipy_discretize(A, B, C, step_size, method)
    # SciPy reads the state before the update: y_k = C' s_k + D' u_k with s_k = x_{k-1}, so that
    # C x_k = C (Ā x_{k-1} + B̄ u_k) needs C' = C Ā and D' = C B̄.
    row = C[None].numpy()
    tolerance = SCIPY_TOLERANCE[method]
    _, expected, _ = scipy.signal.dlsim(
        (A_bar, B_bar, row @ A_bar, row @ B_bar, step_size), u.numpy(), x0=x.numpy()
    )
    np.testing.assert_allclose(y.numpy(), expected[:, 0], atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("method", ssm.DISCRETIZATIONS)
def test_discretize_takes_a_batch_of_systems(method):
    A, B, _, _, _ = make_system()
    step_sizes = torch.tensor(STEP_SIZES, dtype=torch.float64)
    batch = ssm.discretize(A.expand(3, -1, -1), B.expand(3, -1), step_sizes, method)
    for index, step_size in enumerate(step_sizes):
        one = ssm.discretize(A, B, step_size, method)
        torch.testing.assert_close(batch.A[index], one.A, atol=SCIPY_TOLERANCE[method], rtol=0)
        torch.testing.assert_close(batch.B[index], one.B, atol=SCIPY_TOLERANCE[method], rtol=0)


def test_large_systems_are_discretised_on_several_threads():
    A, B = hippo.legs(256)
    step_sizes = torch.tensor([1e-3, 1e-2, 0.1], dtype=torch.float64)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        system = ssm.discretize(A.expand(3, -1, -1), B.expand(3, -1), step_sizes)
    finally:
        torch.set_num_threads(threads)
    for row, step_size in enumerate(step_sizes):
        forward, backward = (torch.eye(256) + sign * step_size / 2 * A for sign in (1, -1))
        torch.testing.assert_close(backward @ system.A[row], forward, rtol=0, atol=1e-9)
        torch.testing.assert_close(backward @ system.B[row], step_size * B, rtol=0, atol=1e-9)


def test_zero_order_hold_needs_no_inverse_of_the_state_matrix():
    # An integrator: x' = u held for Δ adds Δ·u, and A = 0 has no inverse.
    A, B = torch.zeros(1, 1, dtype=torch.float64), torch.ones(1, dtype=torch.float64)
    system = ssm.discretize(A, B, torch.tensor(0.25, dtype=torch.float64), "zoh")
    assert system.A.item() == pytest.approx(1, abs=ROUNDING_TOLERANCE)
    assert system.B.item() == pytest.approx(0.25, abs=ROUNDING_TOLERANCE)


@pytest.mark.parametrize("method", ssm.DISCRETIZATIONS)
def test_discretize_has_right_gradients(method):
    A, B, _, _, _ = make_system(state_size=3)
    inputs = (A, B, torch.tensor(0.1, dtype=torch.float64))
    inputs = [x.clone().requires_grad_() for x in inputs]
    assert torch.autograd.gradcheck(lambda A, B, dt: tuple(ssm.discretize(A, B, dt, method)), inputs)


def test_unknown_discretization_is_refused():
    A, B, _, _, _ = make_system()
    with pytest.raises(ValueError, match="'euler'; choose 'bilinear' or 'zoh'"):
        ssm.discretize(A, B, torch.tensor(0.1), "euler")


@pytest.mark.parametrize("method", ssm.DISCRETIZATIONS)
def test_kernel_is_the_response_to_an_impulse(method):
    A, B, C, _, _ = make_system()
    system = ssm.discretize(A, B, torch.tensor(0.05, dtype=torch.float64), method)
    impulse = torch.zeros(50, dtype=torch.float64)
    impulse[0] = 1
    kernel = ssm.kernel(system, C, 50)
    torch.testing.assert_close(kernel, ssm.run(system, C, impulse)[0], atol=ROUNDING_TOLERANCE, rtol=0)
    powers = [C @ torch.linalg.matrix_power(system.A, k) @ system.B for k in range(50)]
    torch.testing.assert_close(kernel, torch.stack(powers), atol=ROUNDING_TOLERANCE, rtol=ROUNDING_TOLERANCE)


def test_step_equals_run():
    A, B, C, u, x = make_system()
    system = ssm.discretize(A, B, torch.tensor(0.05, dtype=torch.float64))
    y, final = ssm.run(system, C, u, x)
    for u_k, y_k in zip(u, y, strict=True):
        output, x = ssm.step(system, C, u_k, x)
        assert torch.equal(output, y_k)
    assert torch.equal(x, final)


def test_step_updates_the_state_before_it_reads_it():
    one = torch.ones(1, dtype=torch.float64)
    y, x = ssm.step(ssm.DiscreteSSM(0.5 * one[None], 2 * one), 3 * one, torch.tensor(1.0), 4 * one)
    assert x.item() == 0.5 * 4 + 2
    assert y.item() == 3 * x.item()


def test_run_starts_from_zero_unless_told():
    A, B, C, u, _ = make_system()
    system = ssm.discretize(A, B, torch.tensor(0.05, dtype=torch.float64))
    for given, zero in zip(ssm.run(system, C, u), ssm.run(system, C, u, torch.zeros_like(B)), strict=True):
        assert torch.equal(given, zero)


def test_run_in_two_parts_equals_the_whole():
    A, B, C, u, x = make_system()
    system = ssm.discretize(A, B, torch.tensor(0.05, dtype=torch.float64))
    whole, final = ssm.run(system, C, u, x)
    first, middle = ssm.run(system, C, u[:63], x)
    second, last = ssm.run(system, C, u[63:], middle)
    assert torch.equal(torch.cat([first, second]), whole)
    assert torch.equal(last, final)
