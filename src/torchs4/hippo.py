"""HiPPO matrices, their normal-plus-low-rank form, and every starting point by name.

Axes: N state size, n = N/2 stored modes (one of each conjugate pair), R rank of the correction.
Everything is computed in float64: the layers round once, when they make parameters of it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Complex, Float


_Start = TypeVar("_Start")


class DenseStart(NamedTuple):
    """A state matrix and an input column, as the continuous system x' = A x + B u has them."""

    A: Float[Tensor, "N N"]
    B: Float[Tensor, " N"]


class DPLRStart(NamedTuple):
    """The stored half of A = Λ - P P* and of B, in the basis where Λ is diagonal."""

    Lambda: Complex[Tensor, " n"]
    P: Complex[Tensor, "R n"]
    B: Complex[Tensor, " n"]


class DiagonalStart(NamedTuple):
    """The stored half of a diagonal state matrix and of B."""

    Lambda: Complex[Tensor, " n"]
    B: Complex[Tensor, " n"]


class NormalPlusLowRank(NamedTuple):
    """A = V (Λ - P P*) V*, one of each conjugate pair: the full V is [V, conj(V)]."""

    Lambda: Complex[Tensor, " n"]
    P: Complex[Tensor, "R n"]
    V: Complex[Tensor, "N n"]


def legs(state_size: int) -> DenseStart:
    """HiPPO-LegS: the state holds the coefficients of the whole past in shifted Legendre polynomials."""
    n = _indices(state_size)
    scale = torch.sqrt(2 * n + 1)
    A = -torch.tril(torch.outer(scale, scale), diagonal=-1) - torch.diag(n + 1)
    return DenseStart(A, scale)


def legt(state_size: int) -> DenseStart:
    """HiPPO-LegT: the state holds the Legendre coefficients of a sliding window of length 1."""
    n = _indices(state_size)
    scale = torch.sqrt(2 * n + 1)
    signs = torch.where(n[:, None] >= n[None, :], 1.0, (-1.0) ** (n[:, None] - n[None, :]))
    return DenseStart(-torch.outer(scale, scale) * signs, scale)


def legs_correction(state_size: int) -> Float[Tensor, "1 N"]:
    """The p of LegS: A + p pᵀ = -½ I + a skew-symmetric matrix."""
    return torch.sqrt(_indices(state_size) + 0.5)[None]


def legt_correction(state_size: int) -> Float[Tensor, "2 N"]:
    """The two corrections of LegT, one on the even and one on the odd coefficients."""
    n = _indices(state_size)
    scale = torch.sqrt(2 * n + 1)
    return torch.stack([scale * (n % 2 == 0), scale * (n % 2 == 1)])


def normal_plus_low_rank(A: Float[Tensor, "N N"], correction: Float[Tensor, "R N"]) -> NormalPlusLowRank:
    """Diagonalise A + Σ p pᵀ, which must be a multiple of I plus a skew-symmetric matrix."""
    require_even(A.shape[0])
    normal = A + correction.T @ correction
    shift = normal.diagonal().mean()
    skew = normal - shift * torch.eye(A.shape[0], dtype=A.dtype)
    asymmetry = (skew + skew.T).abs().max()
    if asymmetry > 1e-9 * A.abs().max():
        raise ValueError(
            f"A plus its correction is not normal: it differs from a shifted skew-symmetric matrix "
            f"by {asymmetry:.2e}. Pass the correction that belongs to this A (legs_correction for legs)."
        )
    # -iS is Hermitian, so its eigenvectors are orthonormal to rounding. A general eigensolver on A
    # itself is hopeless: A's own eigenvectors have entries that grow like 2^(4N/3).
    frequencies, V = torch.linalg.eigh(-1j * 0.5 * (skew - skew.T))
    half = A.shape[0] // 2
    # eigh sorts upwards and the spectrum is symmetric: the upper half has the positive frequencies.
    frequencies, V = frequencies[half:], V[:, half:]
    Lambda = torch.complex(shift.expand(half).clone(), frequencies)
    return NormalPlusLowRank(Lambda, correction.to(V.dtype) @ V.conj(), V)


def _hippo_dplr(dense: DenseStart, correction: Float[Tensor, "R N"]) -> DPLRStart:
    form = normal_plus_low_rank(dense.A, correction)
    return DPLRStart(form.Lambda, form.P, dense.B.to(form.V.dtype) @ form.V.conj())


def _dplr_legs(state_size: int, generator: torch.Generator | None) -> DPLRStart:
    return _hippo_dplr(legs(state_size), legs_correction(state_size))


def _dplr_legt(state_size: int, generator: torch.Generator | None) -> DPLRStart:
    return _hippo_dplr(legt(state_size), legt_correction(state_size))


def _dplr_random(state_size: int, generator: torch.Generator | None) -> DPLRStart:
    """The ablation's random NPLR: LegS's decay and number of modes, nothing of its structure."""
    half = state_size // 2
    Lambda = torch.complex(
        torch.full((half,), -0.5, dtype=torch.float64),
        half * _normal((half,), generator).abs(),
    )
    return DPLRStart(Lambda, _complex_normal((1, half), generator), _complex_normal((half,), generator))


def _diagonal_legs(state_size: int, generator: torch.Generator | None) -> DiagonalStart:
    start = _dplr_legs(state_size, generator)
    # Without the rank-1 term, half of B gives LegS's own kernels in the limit of large N.
    return DiagonalStart(start.Lambda, start.B / 2)


def _diagonal_lin(state_size: int, generator: torch.Generator | None) -> DiagonalStart:
    return _ones_input(-0.5, math.pi * _indices(state_size // 2))


def _diagonal_inv(state_size: int, generator: torch.Generator | None) -> DiagonalStart:
    n = _indices(state_size // 2)
    return _ones_input(-0.5, state_size / math.pi * (state_size / (2 * n + 1) - 1))


def _diagonal_real(state_size: int, generator: torch.Generator | None) -> DiagonalStart:
    n = _indices(state_size // 2)
    return _ones_input(-(n + 1), torch.zeros_like(n))


def _diagonal_random(state_size: int, generator: torch.Generator | None) -> DiagonalStart:
    half = state_size // 2
    return _ones_input(-_normal((half,), generator).exp(), half * _normal((half,), generator).abs())


def _dense_gaussian(state_size: int, generator: torch.Generator | None) -> DenseStart:
    """Gaussian, shifted so that its slowest mode decays like LegS's: unshifted it would be unstable."""
    A = _normal((state_size, state_size), generator) / math.sqrt(state_size)
    slowest = torch.linalg.eigvals(A).real.max()
    A = A - (slowest + 0.5) * torch.eye(state_size, dtype=torch.float64)
    return DenseStart(A, _normal((state_size,), generator))


def _dense_diagonal(state_size: int, generator: torch.Generator | None) -> DenseStart:
    decays = _normal((state_size,), generator).exp()
    return DenseStart(torch.diag(-decays), _normal((state_size,), generator))


DPLR_STARTS: dict[str, Callable[[int, torch.Generator | None], DPLRStart]] = {
    "legs": _dplr_legs,
    "legt": _dplr_legt,
    "random": _dplr_random,
}
DIAGONAL_STARTS: dict[str, Callable[[int, torch.Generator | None], DiagonalStart]] = {
    "legs": _diagonal_legs,
    "lin": _diagonal_lin,
    "inv": _diagonal_inv,
    "real": _diagonal_real,
    "random": _diagonal_random,
}
DENSE_STARTS: dict[str, Callable[[int, torch.Generator | None], DenseStart]] = {
    "legs": lambda state_size, generator: legs(state_size),
    "legt": lambda state_size, generator: legt(state_size),
    "gaussian": _dense_gaussian,
    "diagonal": _dense_diagonal,
}


def dplr_start(name: str, state_size: int, generator: torch.Generator | None = None) -> DPLRStart:
    """Where an S4 layer starts: "legs" (rank 1), "legt" (rank 2) or "random" (rank 1)."""
    require_even(state_size)
    return _named(DPLR_STARTS, name)(state_size, generator)


def diagonal_start(name: str, state_size: int, generator: torch.Generator | None = None) -> DiagonalStart:
    """Where an S4D layer starts: "legs", "lin", "inv", "real" or "random"."""
    require_even(state_size)
    return _named(DIAGONAL_STARTS, name)(state_size, generator)


def dense_start(name: str, state_size: int, generator: torch.Generator | None = None) -> DenseStart:
    """Where a dense layer starts: "legs", "legt", "gaussian" or "diagonal"."""
    if state_size < 1:
        raise ValueError(f"state_size is {state_size}; it must be at least 1.")
    return _named(DENSE_STARTS, name)(state_size, generator)


def _named(starts: dict[str, _Start], name: str) -> _Start:
    if name not in starts:
        raise ValueError(f"start is {name!r}; choose one of {', '.join(map(repr, starts))}.")
    return starts[name]


def require_even(state_size: int) -> None:
    """Modes come in conjugate pairs, of which one is stored."""
    if state_size < 2 or state_size % 2:
        raise ValueError(
            f"state_size is {state_size}; it must be even and at least 2, because modes come in "
            f"conjugate pairs. Try {max(2, state_size + state_size % 2)}."
        )


def _indices(count: int) -> Float[Tensor, " count"]:
    return torch.arange(count, dtype=torch.float64)


def _ones_input(real: float | Tensor, imaginary: Tensor) -> DiagonalStart:
    real = torch.as_tensor(real, dtype=torch.float64).expand(imaginary.shape)
    return DiagonalStart(
        torch.complex(real.clone(), imaginary), torch.ones(imaginary.shape, dtype=torch.complex128)
    )


def _normal(shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=generator)


def _complex_normal(shape: tuple[int, ...], generator: torch.Generator | None) -> Tensor:
    return torch.randn(shape, dtype=torch.complex128, generator=generator)
