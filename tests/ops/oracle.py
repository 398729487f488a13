"""Systems to test the operators with, and the dense float64 system that each of them stands for.

The dense side is built from full matrices and `torchs4.ssm` alone, nothing of `torchs4.ops`.
Axes: H features, N state size, n = N/2 stored modes, R rank, M output channels, L length.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from torchs4 import hippo, ssm

if TYPE_CHECKING:
    from jaxtyping import Complex, Float

    from torchs4.ssm import Discretization


class Parameters(NamedTuple):
    """What `ops.dplr_kernel` takes before the length, in that order. Rank 0 is a diagonal system."""

    A: Float[Tensor, "H n 2"]
    P: Float[Tensor, "R H n 2"]
    Q: Float[Tensor, "R H n 2"]
    B: Float[Tensor, "H n 2"]
    C: Float[Tensor, "M H n 2"]
    dt: Float[Tensor, " H"]

    def to(self, dtype: torch.dtype) -> Parameters:
        return Parameters(*(x.to(dtype) for x in self))

    def requiring_grad(self) -> Parameters:
        return Parameters(*(x.detach().clone().requires_grad_() for x in self))


class DenseSystem(NamedTuple):
    """One real system per feature, its state interleaved as (Re x_0, Im x_0, Re x_1, …)."""

    A: Float[Tensor, "H N N"]
    B: Float[Tensor, "H N"]
    C: Float[Tensor, "M H N"]
    dt: Float[Tensor, " H"]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Float[Tensor, "..."]:
    return torch.randn(shape, dtype=torch.float64, generator=seeded(seed))


def real_pairs(values: Complex[Tensor, "*shape"]) -> Float[Tensor, "*shape 2"]:
    return torch.view_as_real(values.resolve_conj()).contiguous()


def hippo_parameters(
    name: str, state_size: int, step_sizes: tuple[float, ...], channels: int = 1
) -> Parameters:
    """A named start, the same for every feature but for the step size and C."""
    return _shared_start(hippo.dplr_start(name, state_size, seeded(1)), step_sizes, channels)


def diagonal_parameters(
    name: str, state_size: int, step_sizes: tuple[float, ...], channels: int = 1
) -> Parameters:
    """A named diagonal start, as a system of rank 0."""
    start = hippo.diagonal_start(name, state_size, seeded(1))
    no_correction = torch.zeros(0, state_size // 2, dtype=torch.complex128)
    return _shared_start(hippo.DPLRStart(start.Lambda, no_correction, start.B), step_sizes, channels)


def random_parameters(
    state_size: int, step_sizes: tuple[float, ...], *, rank: int, channels: int = 1, untied: bool = False
) -> Parameters:
    """Modes, P, B and C that differ between features. Stable: see the comments."""
    features, n = len(step_sizes), state_size // 2
    decays = -0.5 - normal(features, n, seed=2).abs()
    A = torch.stack([decays, n * normal(features, n, seed=3)], dim=-1)
    # Tied, P P* only takes energy out of the state, whatever its size.
    P = normal(rank, features, n, 2, seed=4)
    Q = P.clone()
    if untied and rank:
        # Untied, ‖P Q*‖ below the slowest decay is what keeps the system stable.
        P, Q = (_of_norm(x, 0.4 / rank**0.5) for x in (P, normal(rank, features, n, 2, seed=5)))
    return Parameters(
        A, P, Q, normal(features, n, 2, seed=6), normal(channels, features, n, 2, seed=7), _steps(step_sizes)
    )


def dense_system(parameters: Parameters) -> DenseSystem:
    """Write A = Λ - P Q* out over all conjugate pairs, then as a real matrix. Differentiable."""
    A, P, Q, B, C = (torch.view_as_complex(x.double()) for x in parameters[:5])
    A, P, Q, B, C = (torch.cat([x, x.conj()], dim=-1) for x in (A, P, Q, B, C))
    A = torch.diag_embed(A) - torch.einsum("rhn,rhm->hnm", P, Q.conj())
    basis = _pairs_from_interleaved(A.shape[-1])
    # basis / √2 is unitary, so the change of basis costs no digits.
    inverse = basis.mH / 2
    return DenseSystem(
        (inverse @ A @ basis).real, (B @ inverse.mT).real, (C @ basis).real, parameters.dt.double()
    )


def discrete_system(system: DenseSystem, method: Discretization = "bilinear") -> ssm.DiscreteSSM:
    return ssm.discretize(system.A, system.B, system.dt, method)


def dense_kernel(
    system: DenseSystem, length: int, method: Discretization = "bilinear"
) -> Float[Tensor, "M H L"]:
    """C Ā^l B̄ by running an impulse through the recurrence, one feature after the other."""
    discrete = discrete_system(system, method)
    kernels = [
        ssm.kernel(ssm.DiscreteSSM(A, B), C, length)
        for A, B, C in zip(discrete.A, discrete.B, system.C.transpose(0, 1), strict=True)
    ]
    return torch.stack(kernels).permute(2, 0, 1)


def run_dense(
    system: DenseSystem,
    u: Float[Tensor, "B L H"],
    state: Float[Tensor, "B H N"],
    method: Discretization = "bilinear",
) -> tuple[Float[Tensor, "B L M H"], Float[Tensor, "B H N"]]:
    """The recurrence, one signal and one feature after the other: outputs and final states."""
    discrete = discrete_system(system, method)
    y = u.new_empty(*u.shape[:2], *system.C.shape[:2])
    final = torch.empty_like(state)
    for b in range(u.shape[0]):
        for h in range(u.shape[2]):
            one = ssm.DiscreteSSM(discrete.A[h], discrete.B[h])
            y[b, :, :, h], final[b, h] = ssm.run(one, system.C[:, h], u[b, :, h], state[b, h])
    return y, final


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """The largest error along the last axis over the largest expected value there; NaN stays NaN."""
    error = (actual.double() - expected).abs().amax(-1) / expected.abs().amax(-1)
    return error.max().item()


@functools.cache
def long_legs_oracle(
    state_size: int, step_sizes: tuple[float, ...], length: int, dtype: torch.dtype
) -> tuple[Parameters, Float[Tensor, "1 H L"]]:
    """LegS parameters in the given precision, and the dense kernel of exactly those."""
    parameters = hippo_parameters("legs", state_size, step_sizes).to(dtype)
    if dtype == torch.float64:
        return parameters, dense_kernel(_undiagonalised_legs(parameters), length)
    return parameters, dense_kernel(dense_system(parameters.to(torch.float64)), length)


def _undiagonalised_legs(parameters: Parameters) -> DenseSystem:
    """The LegS matrix itself. Its state x has modes V* x, so 2·Re(C V* x) is what C reads."""
    features, n, _ = parameters.A.shape
    A, B = hippo.legs(2 * n)
    V = hippo.normal_plus_low_rank(A, hippo.legs_correction(2 * n)).V
    C = 2 * (torch.view_as_complex(parameters.C) @ V.mH).real
    return DenseSystem(A.expand(features, -1, -1), B.expand(features, -1), C, parameters.dt)


def _shared_start(start: hippo.DPLRStart, step_sizes: tuple[float, ...], channels: int) -> Parameters:
    features, n = len(step_sizes), start.Lambda.shape[0]
    A, P, B = (real_pairs(x) for x in start)
    P = P[:, None].repeat(1, features, 1, 1)
    return Parameters(
        A=A.repeat(features, 1, 1),
        P=P,
        Q=P.clone(),
        B=B.repeat(features, 1, 1),
        C=normal(channels, features, n, 2, seed=8),
        dt=_steps(step_sizes),
    )


def _steps(step_sizes: tuple[float, ...]) -> Float[Tensor, " H"]:
    return torch.tensor(step_sizes, dtype=torch.float64)


def _of_norm(x: Float[Tensor, "R H n 2"], norm: float) -> Float[Tensor, "R H n 2"]:
    # Both members of each conjugate pair count.
    return norm * x / (2 * x.square().sum((-2, -1), keepdim=True)).sqrt()


def _pairs_from_interleaved(state_size: int) -> Complex[Tensor, "N N"]:
    """(x, conj x) from (Re x_0, Im x_0, Re x_1, …)."""
    n = state_size // 2
    half = torch.kron(torch.eye(n, dtype=torch.complex128), torch.tensor([[1, 1j]]))
    return torch.cat([half, half.conj()])
