"""The bilinear rule for A = Λ - P Q*, one feature per task.

Names as in reference.bilinear: E = (2/Δ - Λ)⁻¹, the products E P and Q* E, Woodbury's small real matrix W.

Axes: H features, n modes, R rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchs4.ops.cpu.arrays import as_array, as_complex_array
from torchs4.ops.cpu.compiling import compiled
from torchs4.ops.cpu.sharing import shared
from torchs4.ops.cpu.workspaces import empty

if TYPE_CHECKING:
    from numpy.typing import NDArray


def bilinear(A: Tensor, P: Tensor, Q: Tensor, B: Tensor, dt: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The twin of reference.bilinear."""
    decay, p, q, b = (torch.empty(x.shape, dtype=torch.float64) for x in (A, P, Q, B))
    discrete = _Discrete(*map(as_complex_array, (decay, p, q, b)))
    _forward(len(dt), _continuous(A, P, Q, B, dt), discrete)
    return decay, p, q, b


def bilinear_backward(
    grads: list[Tensor], A: Tensor, P: Tensor, Q: Tensor, B: Tensor, dt: Tensor
) -> list[Tensor]:
    """The twin of reference.bilinear_backward."""
    inputs = (A, P, Q, B, dt)
    results = [torch.empty(x.shape, dtype=torch.float64) for x in inputs]
    discrete_grad = _Discrete(*map(as_complex_array, grads))
    _backward(len(dt), discrete_grad, _continuous(*inputs), _continuous(*results))
    return [result.to(x.dtype) for result, x in zip(results, inputs, strict=True)]


class _Continuous(NamedTuple):
    """A = Λ - P Q* and B in continuous time, and the step sizes; or gradients."""

    A: NDArray[np.complex128]
    P: NDArray[np.complex128]
    Q: NDArray[np.complex128]
    B: NDArray[np.complex128]
    dt: NDArray[np.float64]


class _Discrete(NamedTuple):
    """Ā = (1 - decay) - p q and b; or gradients."""

    decay: NDArray[np.complex128]
    p: NDArray[np.complex128]
    q: NDArray[np.complex128]
    b: NDArray[np.complex128]


class _Parts(NamedTuple):
    """What the rule is made of, of one feature: E, E P, Q* E, E P W⁻¹, W, W⁻¹ and Q* E B."""

    E: NDArray[np.complex128]
    EP: NDArray[np.complex128]
    QE: NDArray[np.complex128]
    corrected: NDArray[np.complex128]
    W: NDArray[np.float64]
    inverse: NDArray[np.float64]
    QEB: NDArray[np.float64]


def _continuous(A: Tensor, P: Tensor, Q: Tensor, B: Tensor, dt: Tensor) -> _Continuous:
    return _Continuous(*map(as_complex_array, (A, P, Q, B)), as_array(dt, torch.float64))


@compiled()
def _new_parts(R, n):
    rows, square = (R, n), (R, R)
    return _Parts(
        empty(n, np.complex128),
        empty(rows, np.complex128),
        empty(rows, np.complex128),
        empty(rows, np.complex128),
        empty(square, np.float64),
        empty(square, np.float64),
        empty(R, np.float64),
    )


@compiled()
def _pair_sum(x, y):
    """A sum over all modes from the stored half of them."""
    total = 0.0
    for k in range(x.shape[0]):
        total += x[k].real * y[k].real - x[k].imag * y[k].imag
    return 2.0 * total


@compiled()
def _inner(x, y):
    total = 0.0
    for k in range(x.shape[0]):
        total += x[k].real * y[k].real + x[k].imag * y[k].imag
    return total


@compiled()
def _invert(matrix, inverse):
    """Gauss and Jordan with pivots; destroys the matrix, which is small."""
    R = matrix.shape[0]
    for i in range(R):
        for j in range(R):
            inverse[i, j] = 1.0 if i == j else 0.0
    for i in range(R):
        pivot = i
        for j in range(i + 1, R):
            if abs(matrix[j, i]) > abs(matrix[pivot, i]):
                pivot = j
        for j in range(R):
            matrix[i, j], matrix[pivot, j] = matrix[pivot, j], matrix[i, j]
            inverse[i, j], inverse[pivot, j] = inverse[pivot, j], inverse[i, j]
        scale = 1.0 / matrix[i, i]
        for j in range(R):
            matrix[i, j] *= scale
            inverse[i, j] *= scale
        for row in range(R):
            factor = matrix[row, i]
            if row != i:
                for j in range(R):
                    matrix[row, j] -= factor * matrix[i, j]
                    inverse[row, j] -= factor * inverse[i, j]


@compiled()
def _discretize(system, h, parts):
    """Fill the parts of a feature's discrete system."""
    A, P, Q, B, dt = system
    E, EP, QE, corrected, W, inverse, QEB = parts
    R, n = P.shape[0], A.shape[1]
    for k in range(n):
        E[k] = 1.0 / (2.0 / dt[h] - A[h, k])
        for r in range(R):
            EP[r, k] = E[k] * P[r, h, k]
            QE[r, k] = Q[r, h, k].conjugate() * E[k]
    for r in range(R):
        for s in range(R):
            W[r, s] = _pair_sum(QE[r], P[s, h])
        W[r, r] += 1.0
        QEB[r] = _pair_sum(QE[r], B[h])
    _invert(W, inverse)
    for s in range(R):
        for k in range(n):
            corrected[s, k] = 0.0
        for r in range(R):
            for k in range(n):
                corrected[s, k] += EP[r, k] * inverse[r, s]


@shared
def _forward(h, system, discrete):
    A, P, _, B, dt = system
    decay, p, q, b = discrete
    R, _, n = P.shape
    parts = _new_parts(R, n)
    _discretize(system, h, parts)
    for k in range(n):
        decay[h, k] = -2.0 * A[h, k] * parts.E[k]
        total = parts.E[k] * B[h, k]
        for r in range(R):
            p[r, h, k] = 4.0 / dt[h] * parts.corrected[r, k]
            q[r, h, k] = parts.QE[r, k]
            total -= parts.corrected[r, k] * parts.QEB[r]
        b[h, k] = 2.0 * total


@shared
def _backward(h, discrete_grad, system, system_grad):
    """The adjoint of `_forward`, part by part. With F = E P W⁻¹, and bars for gradients:

        decay = -2 Λ E            Λ̄ = -2 decaȳ E*                    Ē = -2 decaȳ Λ*
        b = 2 (E B - F (Q* E B))  B̄ = 2 b̄ E*                         Ē += 2 b̄ B*
        p = (4/Δ) F               F̄ = (4/Δ) p̄ - 2 b̄ (Q* E B)
        F = E P W⁻¹               W̄ = -W⁻ᵀ ((E P)* F̄) W⁻ᵀ            (E P)‾ = F̄ W⁻ᵀ
        E = (2/Δ - Λ)⁻¹           Λ̄ += Ē (E²)*                       (2/Δ)‾ -= Re Σ Ē (E²)*

    E P = E·P, Q* E = Q*·E and W = 1 + Q* E P are products, whose factors get each other's conjugate.
    """
    decay_grad, p_grad, q_grad, b_grad = discrete_grad
    A, P, Q, B, dt = system
    A_grad, P_grad, Q_grad, B_grad, dt_grad = system_grad
    R, _, n = P.shape
    parts = _new_parts(R, n)
    E, EP, QE, corrected, _, inverse, QEB = parts
    E_grad = empty(n, np.complex128)
    QE_grad, corrected_grad = empty((R, n), np.complex128), empty((R, n), np.complex128)
    inverse_grad, W_grad = empty((R, R), np.float64), empty((R, R), np.float64)
    _discretize(system, h, parts)
    # 2/Δ enters through E and, doubled, as the factor of p.
    rate_grad = 0.0
    for k in range(n):
        E_grad[k] = 2.0 * b_grad[h, k] * B[h, k].conjugate()
        E_grad[k] -= 2.0 * decay_grad[h, k] * A[h, k].conjugate()
        A_grad[h, k] = -2.0 * decay_grad[h, k] * E[k].conjugate()
        B_grad[h, k] = 2.0 * b_grad[h, k] * E[k].conjugate()
    for r in range(R):
        rate_grad += 2.0 * _inner(p_grad[r, h], corrected[r])
        QEB_grad = -2.0 * _inner(b_grad[h], corrected[r])
        for k in range(n):
            corrected_grad[r, k] = 4.0 / dt[h] * p_grad[r, h, k] - 2.0 * b_grad[h, k] * QEB[r]
            QE_grad[r, k] = q_grad[r, h, k] + 2.0 * QEB_grad * B[h, k].conjugate()
            B_grad[h, k] += 2.0 * QEB_grad * QE[r, k].conjugate()
    for r in range(R):
        for s in range(R):
            inverse_grad[r, s] = _inner(corrected_grad[s], EP[r])
    for r in range(R):
        for s in range(R):
            # Of W⁻¹: -W⁻ᵀ grad W⁻ᵀ.
            W_grad[r, s] = 0.0
            for i in range(R):
                for j in range(R):
                    W_grad[r, s] -= inverse[i, r] * inverse_grad[i, j] * inverse[s, j]
    for r in range(R):
        for k in range(n):
            EP_grad = complex(0.0)
            P_grad[r, h, k] = 0.0
            for s in range(R):
                EP_grad += corrected_grad[s, k] * inverse[r, s]
                QE_grad[r, k] += 2.0 * W_grad[r, s] * P[s, h, k].conjugate()
                P_grad[r, h, k] += 2.0 * W_grad[s, r] * QE[s, k].conjugate()
            P_grad[r, h, k] += EP_grad * E[k].conjugate()
            E_grad[k] += EP_grad * P[r, h, k].conjugate() + QE_grad[r, k] * Q[r, h, k]
            Q_grad[r, h, k] = QE_grad[r, k].conjugate() * E[k]
    for k in range(n):
        slope = E_grad[k] * (E[k] * E[k]).conjugate()
        A_grad[h, k] += slope
        rate_grad -= slope.real
    dt_grad[h] = rate_grad * -2.0 / (dt[h] * dt[h])
