import math

import numpy as np
import pytest
import scipy.linalg
import scipy.special
import torch

from torchs4 import hippo

# Relative to the largest entry of A, which is about 2·N; the eigenvectors are good to about 1e-12.
REBUILD_TOLERANCE = 1e-10
# The two signs are told apart to eps·‖S‖ over the gap between them: 1e-16 · 2e4 / 0.4 at N = 256.
ORTHONORMAL_TOLERANCE = 2e-11
# The mean of N diagonal entries, each rounded once.
DECAY_TOLERANCE = 1e-12
# The published frequencies have four decimals for N = 8 and two for N = 64.
FOUR_DECIMALS = 5e-5
TWO_DECIMALS = 5e-3
# A matrix exponential of a 16 × 16 matrix with a norm of about 100.
EXPONENTIAL_TOLERANCE = 1e-11
# Closed forms, rounded a few times.
FORMULA_TOLERANCE = 1e-13
# The diagonal form only tends to LegS: at N = 256 the step responses, about 1 in size, are this close.
LIMIT_TOLERANCE = 5e-3

STATE_SIZES = [2, 4, 6, 8, 64, 100, 256]
CORRECTIONS = {
    "legs": (hippo.legs, hippo.legs_correction),
    "legt": (hippo.legt, hippo.legt_correction),
}
STARTS = {
    hippo.dplr_start: hippo.DPLR_STARTS,
    hippo.diagonal_start: hippo.DIAGONAL_STARTS,
    hippo.dense_start: hippo.DENSE_STARTS,
}
RANDOM_STARTS = [
    (hippo.dplr_start, "random"),
    (hippo.diagonal_start, "random"),
    (hippo.dense_start, "gaussian"),
    (hippo.dense_start, "diagonal"),
]


def both_signs(half):
    return torch.cat([half, half.conj()], dim=-1)


def frequencies(state_size):
    return hippo.dplr_start("legs", state_size).Lambda.imag.sort().values


@pytest.mark.parametrize("state_size", STATE_SIZES)
@pytest.mark.parametrize("name", CORRECTIONS)
def test_normal_plus_low_rank_rebuilds_the_matrix(name, state_size):
    make, correction = CORRECTIONS[name]
    A, _ = make(state_size)
    Lambda, P, V = (both_signs(x) for x in hippo.normal_plus_low_rank(A, correction(state_size)))
    rebuilt = V @ (torch.diag(Lambda) - P.mT @ P.conj()) @ V.mH
    assert (rebuilt - A).abs().max() <= REBUILD_TOLERANCE * A.abs().max()


@pytest.mark.parametrize("state_size", STATE_SIZES)
@pytest.mark.parametrize("name", CORRECTIONS)
def test_modes_and_their_conjugates_are_an_orthonormal_basis(name, state_size):
    make, correction = CORRECTIONS[name]
    V = both_signs(hippo.normal_plus_low_rank(make(state_size).A, correction(state_size)).V)
    assert (V.mH @ V - torch.eye(state_size)).abs().max() <= ORTHONORMAL_TOLERANCE


@pytest.mark.parametrize("state_size", STATE_SIZES)
def test_legs_modes_all_decay_at_one_half(state_size):
    real = hippo.dplr_start("legs", state_size).Lambda.real
    assert (real + 0.5).abs().max() <= DECAY_TOLERANCE


def test_legs_frequencies_are_the_published_ones():
    published = torch.tensor([0.4275, 1.9578, 5.3542, 19.8574], dtype=torch.float64)
    torch.testing.assert_close(frequencies(8), published, atol=FOUR_DECIMALS, rtol=0)
    assert frequencies(64)[-1].item() == pytest.approx(1303.27, abs=TWO_DECIMALS)


@pytest.mark.parametrize("name", ["legs", "legt"])
def test_named_start_maps_the_input_column_into_the_modes(name):
    make, correction = CORRECTIONS[name]
    A, B = make(16)
    V = hippo.normal_plus_low_rank(A, correction(16)).V
    start = hippo.dplr_start(name, 16)
    torch.testing.assert_close(2 * (V @ start.B).real, B, atol=ORTHONORMAL_TOLERANCE, rtol=0)
    torch.testing.assert_close(2 * (start.P @ V.mT).real, correction(16), atol=ORTHONORMAL_TOLERANCE, rtol=0)


@pytest.mark.parametrize("time", [0.0, 0.1, 1.0, 5.0])
def test_legs_impulse_response_is_legendre_in_warped_time(time):
    # exp(tA)B = sqrt(2n+1) P_n(2e^-t - 1) e^-t: what makes LegS remember on a logarithmic scale.
    A, B = hippo.legs(16)
    n = np.arange(16)
    legendre = scipy.special.eval_legendre(n, 2 * math.exp(-time) - 1)
    expected = np.sqrt(2 * n + 1) * legendre * math.exp(-time)
    response = scipy.linalg.expm(time * A.numpy()) @ B.numpy()
    np.testing.assert_allclose(response, expected, atol=EXPONENTIAL_TOLERANCE, rtol=0)


def test_legt_state_is_the_legendre_coefficients_of_the_last_second():
    # For a polynomial of degree below N the coefficients of the sliding window obey x' = A x + B u exactly.
    A, B = (x.numpy() for x in hippo.legt(8))
    nodes, weights = np.polynomial.legendre.leggauss(16)
    ages = (1 - nodes) / 2
    basis = np.sqrt(2 * np.arange(8)[:, None] + 1) * scipy.special.eval_legendre(
        np.arange(8)[:, None], 1 - 2 * ages
    )
    signal = np.polynomial.Polynomial([0.3, -1.0, 0.7, 0.2, -0.1])

    def window_coefficients(polynomial, time):
        return basis @ (weights / 2 * polynomial(time - ages))

    time = 1.7
    slope = window_coefficients(signal.deriv(), time)
    state = window_coefficients(signal, time)
    np.testing.assert_allclose(slope, A @ state + B * signal(time), atol=EXPONENTIAL_TOLERANCE, rtol=0)


def test_linear_and_inverse_diagonal_starts_follow_their_formulas():
    n = torch.arange(8, dtype=torch.float64)
    formulas = {"lin": math.pi * n, "inv": 16 / math.pi * (16 / (2 * n + 1) - 1)}
    for name, imaginary in formulas.items():
        Lambda, B = hippo.diagonal_start(name, 16)
        expected = torch.complex(torch.full_like(n, -0.5), imaginary)
        torch.testing.assert_close(Lambda, expected, atol=0, rtol=FORMULA_TOLERANCE)
        assert (B == 1).all()


def test_real_diagonal_start_has_the_eigenvalues_of_legs():
    Lambda, _ = hippo.diagonal_start("real", 16)
    assert torch.equal(Lambda.real, hippo.legs(8).A.diagonal())
    assert (Lambda.imag == 0).all()


@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_diagonal_legs_start_tends_to_legs(n):
    # It does so in the mean: the impulse response keeps ringing, so the step response is compared.
    Lambda, B = hippo.diagonal_start("legs", 256)
    V = hippo.normal_plus_low_rank(hippo.legs(256).A, hippo.legs_correction(256)).V
    times = np.linspace(0.1, 6, 60)
    growth = torch.expm1(Lambda[:, None] * torch.from_numpy(times))
    diagonal = 2 * ((V[n] * B / Lambda) @ growth).real.numpy()
    # ∫ sqrt(2n+1) P_n(2e^-s - 1) e^-s ds from 0 to t, with x = 2e^-s - 1.
    antiderivative = np.polynomial.Legendre.basis(n).integ()
    exact = math.sqrt(2 * n + 1) / 2 * (antiderivative(1) - antiderivative(2 * np.exp(-times) - 1))
    np.testing.assert_allclose(diagonal, exact, atol=LIMIT_TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", hippo.DPLR_STARTS)
@pytest.mark.parametrize("state_size", [2, 10])
def test_dplr_start_has_one_mode_per_conjugate_pair(name, state_size):
    Lambda, P, B = hippo.dplr_start(name, state_size)
    n = state_size // 2
    assert Lambda.shape == B.shape == (n,)
    assert P.shape == ({"legs": 1, "legt": 2, "random": 1}[name], n)
    assert Lambda.dtype == P.dtype == B.dtype == torch.complex128
    assert (Lambda.imag >= 0).all()


@pytest.mark.parametrize("name", hippo.DIAGONAL_STARTS)
@pytest.mark.parametrize("state_size", [2, 10])
def test_diagonal_start_has_one_decaying_mode_per_conjugate_pair(name, state_size):
    Lambda, B = hippo.diagonal_start(name, state_size)
    assert Lambda.shape == B.shape == (state_size // 2,)
    assert Lambda.dtype == B.dtype == torch.complex128
    assert (Lambda.real < 0).all()


@pytest.mark.parametrize("name", hippo.DENSE_STARTS)
@pytest.mark.parametrize("state_size", [1, 2, 9])
def test_dense_start_has_a_square_matrix_and_a_column(name, state_size):
    A, B = hippo.dense_start(name, state_size)
    assert A.shape == (state_size, state_size)
    assert B.shape == (state_size,)
    assert A.dtype == B.dtype == torch.float64


@pytest.mark.parametrize("start", STARTS)
def test_unknown_start_is_answered_with_the_names(start):
    with pytest.raises(ValueError, match="'legz'") as error:
        start("legz", 8)
    for name in STARTS[start]:
        assert repr(name) in str(error.value)


@pytest.mark.parametrize("state_size", [-2, 0, 1, 7])
@pytest.mark.parametrize("start", [hippo.dplr_start, hippo.diagonal_start])
def test_state_size_without_pairs_is_refused(start, state_size):
    with pytest.raises(ValueError, match=f"state_size is {state_size};"):
        start("legs", state_size)


@pytest.mark.parametrize("state_size", [-1, 0])
def test_dense_start_needs_a_state(state_size):
    with pytest.raises(ValueError, match=f"state_size is {state_size};"):
        hippo.dense_start("legs", state_size)


@pytest.mark.parametrize(("start", "name"), RANDOM_STARTS)
def test_random_start_follows_its_generator(start, name):
    first, again, other = (start(name, 8, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(x, y) for x, y in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])


@pytest.mark.parametrize(("start", "name"), RANDOM_STARTS)
def test_random_start_with_a_generator_leaves_the_global_one_alone(start, name):
    before = torch.get_rng_state()
    start(name, 8, torch.Generator().manual_seed(1))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("state_size", [16, 64])
def test_gaussian_start_is_stable(state_size):
    for seed in range(50):
        A = hippo.dense_start("gaussian", state_size, torch.Generator().manual_seed(seed)).A
        assert torch.linalg.eigvals(A).real.max() < 0


def test_wrong_correction_is_refused():
    with pytest.raises(ValueError, match="not normal"):
        hippo.normal_plus_low_rank(hippo.legs(8).A, hippo.legt_correction(8))
    with pytest.raises(ValueError, match="not normal"):
        hippo.normal_plus_low_rank(hippo.legt(8).A, hippo.legs_correction(8))
