"""The bilinear rule for A = Λ - P Q*, one feature per task.

Names as in reference.bilinear: E = (2/Δ - Λ)⁻¹, the products E P and Q* E, Woodbury's small real matrix W.

Axes: H features, n modes, R rank.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torchs4.ops.cpu.arrays import as_array, as_complex_array
from torchs4.ops.cpu.compiling import compiled
from torchs4.ops.cpu.sharing import shared


def bilinear(A: Tensor, P: Tensor, Q: Tensor, B: Tensor, dt: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The twin of reference.bilinear."""
    decay, p, q, b = (torch.empty(x.shape, dtype=torch.float64) for x in (A, P, Q, B))
    _forward(
        len(dt),
        *map(as_complex_array, (A, P, Q, B)),
        as_array(dt, torch.float64),
        *map(as_complex_array, (decay, p, q, b)),
    )
    return decay, p, q, b


def bilinear_backward(
    grads: list[Tensor], A: Tensor, P: Tensor, Q: Tensor, B: Tensor, dt: Tensor
) -> list[Tensor]:
    """The twin of reference.bilinear_backward."""
    inputs = (A, P, Q, B, dt)
    results = [torch.empty(x.shape, dtype=torch.float64) for x in inputs]
    _backward(
        len(dt),
        *map(as_complex_array, (*grads, A, P, Q, B)),
        as_array(dt, torch.float64),
        *map(as_complex_array, results[:4]),
        as_array(results[4]),
    )
    return [result.to(x.dtype) for result, x in zip(results, inputs, strict=True)]


@compiled()
def _rows(R, n):
    return np.empty((R, n), dtype=np.complex128)


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
def _discretize(A, P, Q, B, dt, h, E, EP, QE, corrected, W, inverse, QEB):
    """Fill the parts of a feature's discrete system: E, E P, Q* E, E P W⁻¹, W⁻¹ and Q* E B."""
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
def _forward(h, A, P, Q, B, dt, decay, p, q, b):
    R, _, n = P.shape
    E = np.empty(n, dtype=np.complex128)
    EP, QE, corrected = _rows(R, n), _rows(R, n), _rows(R, n)
    W, inverse, QEB = np.empty((R, R)), np.empty((R, R)), np.empty(R)
    _discretize(A, P, Q, B, dt, h, E, EP, QE, corrected, W, inverse, QEB)
    for k in range(n):
        decay[h, k] = -2.0 * A[h, k] * E[k]
        total = E[k] * B[h, k]
        for r in range(R):
            p[r, h, k] = 4.0 / dt[h] * corrected[r, k]
            q[r, h, k] = QE[r, k]
            total -= corrected[r, k] * QEB[r]
        b[h, k] = 2.0 * total


@shared
def _backward(h, decay_grad, p_grad, q_grad, b_grad, A, P, Q, B, dt, A_grad, P_grad, Q_grad, B_grad, dt_grad):
    R, _, n = P.shape
    E, E_grad = np.empty(n, dtype=np.complex128), np.empty(n, dtype=np.complex128)
    EP, QE, corrected = _rows(R, n), _rows(R, n), _rows(R, n)
    QE_grad, corrected_grad = _rows(R, n), _rows(R, n)
    W, inverse, QEB = np.empty((R, R)), np.empty((R, R)), np.empty(R)
    inverse_grad, W_grad = np.empty((R, R)), np.empty((R, R))
    _discretize(A, P, Q, B, dt, h, E, EP, QE, corrected, W, inverse, QEB)
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
