"""The DPLR kernel's sums over modes, forward and backward, one feature per task.

Axes: H features, n modes, K nodes, R rank, M output channels, S = (M+R)·(1+R) products of a row and a
column. Inside a block of nodes real and imaginary parts lie one after the other, because all coefficients
are real: a sum over modes is then a real matrix product.

Modes whose a has a negative real part are mirrored (z → -z, a → -a): 1 - za then keeps its digits near the
Nyquist frequency. Hence the two groups of modes, each with its own node tables.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from torchs4.ops.contour import Contour
from torchs4.ops.cpu.compiling import compiled, torch_threads
from torchs4.ops.cpu.tiles import add_dots, add_products
from torchs4.ops.registered import kernel_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Nodes per block: what a block needs stays in the first two levels of the cache.
_BLOCK = 64
# Rows of a node table: (1-z)², (1-z)z, z², 1-z, z; for mirrored modes with -z in place of z.
_TABLES = 5


def modal_kernel(decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, length: int) -> Tensor:
    """The twin of reference.modal_kernel."""
    contour = Contour.around(length, kernel_dtype(C))
    nodes = _node_tables(contour)
    system = _arrays(decay, p, q, b, C)
    kernel = torch.empty(*C.shape[:2], length, dtype=kernel_dtype(C))
    for features in _feature_slices(contour, C):
        part = _slice_features(system, features)
        spectrum = torch.empty(C.shape[0], len(part[0]), contour.half, dtype=torch.complex128)
        with torch_threads():
            _forward(*part, nodes, spectrum.numpy())
        kernel[:, features] = contour.samples(spectrum)
    return kernel


def modal_kernel_backward(
    grad: Tensor, decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor
) -> list[Tensor]:
    """The twin of reference.modal_kernel_backward."""
    contour = Contour.around(grad.shape[-1], kernel_dtype(C))
    nodes = _node_tables(contour)
    system = _arrays(decay, p, q, b, C)
    grads = [torch.empty(x.shape, dtype=torch.float64) for x in (decay, p, q, b, C)]
    grad_arrays = _arrays(*grads)
    for features in _feature_slices(contour, C):
        spectrum_grad = contour.samples_backward(grad[:, features])
        with torch_threads():
            _backward(
                *_slice_features(system, features),
                nodes,
                spectrum_grad.numpy(),
                *_slice_features(grad_arrays, features),
            )
    return [g.to(x.dtype) for g, x in zip(grads, (decay, p, q, b, C), strict=True)]


def _arrays(*pairs: Tensor) -> list[NDArray[Any]]:
    return [torch.view_as_complex(x.detach().double().contiguous()).numpy() for x in pairs]


def _slice_features(system: list[NDArray[Any]], features: slice) -> list[NDArray[Any]]:
    decay, p, q, b, C = system
    return [decay[features], p[:, features], q[:, features], b[features], C[:, features]]


def _feature_slices(contour: Contour, C: Tensor) -> list[slice]:
    """Few enough features at a time to keep spectra and transforms within some 20 MB."""
    features = max(1, 2**20 // (C.shape[0] * contour.size))
    # An even split keeps every thread busy until the end.
    count = -(-C.shape[1] // features)
    step = -(-C.shape[1] // count)
    return [slice(start, start + step) for start in range(0, C.shape[1], step)]


@lru_cache(maxsize=4)
def _node_tables(contour: Contour) -> NDArray[np.float64]:
    """(blocks, groups, tables, 2·BLOCK): nodes beyond the last are z = 0."""
    z, one_minus_z = (x.numpy() for x in contour.nodes(0, contour.half, torch.device("cpu")))
    blocks = -(-len(z) // _BLOCK)
    tables = np.zeros((blocks * _BLOCK, 2, _TABLES), dtype=np.complex128)
    tables[:, :, 0] = tables[:, :, 3] = 1
    # 1 + z has no cancellation problem of its own: it is needed to the digits of z = -1 + (1 + z).
    one_plus_z = 2 - one_minus_z
    for group, (e, w) in enumerate(((one_minus_z, z), (one_plus_z, -z))):
        tables[: len(z), group] = np.stack([e * e, e * w, w * w, e, w], axis=-1)
    by_block = tables.reshape(blocks, _BLOCK, 2, _TABLES).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(np.concatenate([by_block.real, by_block.imag], axis=-1))


@compiled()
def _prepare(decay, p, q, b, C, h, c1, c2, coefficients, order):
    """Fill a feature's tables; each group of modes is padded to a multiple of four. Returns their ends."""
    M, R, n = C.shape[0], p.shape[0], decay.shape[1]
    products = (M + R) * (1 + R)
    coefficients[:] = 0.0
    order[:] = -1
    position = 0
    first_end = 0
    for group in range(2):
        for mode in range(n):
            mirrored = decay[h, mode].real > 1.0
            if mirrored != (group == 1):
                continue
            delta = 2.0 - decay[h, mode] if mirrored else decay[h, mode]
            order[position] = mode
            c1[position] = 2.0 * delta.real
            c2[position] = delta.real * delta.real + delta.imag * delta.imag
            for row in range(M + R):
                r = C[row, h, mode] if row < M else q[row - M, h, mode]
                for column in range(1 + R):
                    c = b[h, mode] if column == 0 else p[column - 1, h, mode]
                    weight = r * c
                    index = row * (1 + R) + column
                    coefficients[index, position] = 2.0 * weight.real
                    coefficients[products + index, position] = 2.0 * (weight * delta.conjugate()).real
            position += 1
        while position % 4:
            c1[position] = 0.0
            c2[position] = 0.0
            position += 1
        if group == 0:
            first_end = position
    return first_end, position


@compiled()
def _fill_resolvents(resolvents, c1, c2, start, stop, tables):
    """1/D with D = (1-z)² + c1·(1-z)z + c2·z²."""
    ee, ze, zz = tables[0], tables[1], tables[2]
    for mode in range(start, stop):
        a, b = c1[mode], c2[mode]
        row = resolvents[mode]
        for k in range(_BLOCK):
            real = ee[k] + a * ze[k] + b * zz[k]
            imaginary = ee[_BLOCK + k] + a * ze[_BLOCK + k] + b * zz[_BLOCK + k]
            scale = 1.0 / (real * real + imaginary * imaginary)
            row[k] = real * scale
            row[_BLOCK + k] = -imaginary * scale


@compiled()
def _pair_sums(pairs, sums, group_tables, products):
    """Pairs = Σ over groups of (1-z)·sums[s] + z·sums[S+s]."""
    for s in range(products):
        out = pairs[s]
        for group in range(2):
            e, z = group_tables[group, 3], group_tables[group, 4]
            plain, turned = sums[group, s], sums[group, products + s]
            for k in range(_BLOCK):
                i = _BLOCK + k
                real = e[k] * plain[k] - e[i] * plain[i] + z[k] * turned[k] - z[i] * turned[i]
                imaginary = e[k] * plain[i] + e[i] * plain[k] + z[k] * turned[i] + z[i] * turned[k]
                if group == 0:
                    out[k] = real
                    out[i] = imaginary
                else:
                    out[k] += real
                    out[i] += imaginary


@compiled()
def _block_sums(c1, c2, coefficients, first_end, end, tables, resolvents, sums, pairs, products):
    _fill_resolvents(resolvents, c1, c2, 0, first_end, tables[0])
    _fill_resolvents(resolvents, c1, c2, first_end, end, tables[1])
    sums[:] = 0.0
    add_products(sums[0], coefficients, resolvents, 0, first_end)
    add_products(sums[1], coefficients, resolvents, first_end, end)
    _pair_sums(pairs, sums, tables, products)


@compiled()
def _solve_small(matrix, right, conjugate_transpose):
    """Gaussian elimination in place; Woodbury's matrix is near the identity, but pivots are cheap."""
    R = right.shape[0]
    if conjugate_transpose:
        for i in range(R):
            matrix[i, i] = matrix[i, i].conjugate()
            for j in range(i):
                swap = matrix[i, j].conjugate()
                matrix[i, j] = matrix[j, i].conjugate()
                matrix[j, i] = swap
    for i in range(R):
        pivot = i
        for j in range(i + 1, R):
            if abs(matrix[j, i]) > abs(matrix[pivot, i]):
                pivot = j
        if pivot != i:
            for j in range(R):
                matrix[i, j], matrix[pivot, j] = matrix[pivot, j], matrix[i, j]
            right[i], right[pivot] = right[pivot], right[i]
        for j in range(i + 1, R):
            factor = matrix[j, i] / matrix[i, i]
            for k in range(i, R):
                matrix[j, k] -= factor * matrix[i, k]
            right[j] -= factor * right[i]
    for i in range(R - 1, -1, -1):
        for j in range(i + 1, R):
            right[i] -= matrix[i, j] * right[j]
        right[i] /= matrix[i, i]


@compiled()
def _woodbury_matrix(matrix, pairs, z, k, M, R):
    for i in range(R):
        for j in range(R):
            s = (M + i) * (1 + R) + 1 + j
            matrix[i, j] = z * complex(pairs[s, k], pairs[s, _BLOCK + k])
        matrix[i, i] += 1.0


@compiled()
def _solutions(solutions, pairs, table_z, M, R, matrix, right):
    """Solve Woodbury's small system at every node of a block."""
    if R == 1:
        # pairs of q: M·2 is q·b, M·2 + 1 is q·p.
        qb, qp, out = pairs[2 * M], pairs[2 * M + 1], solutions[0]
        for k in range(_BLOCK):
            i = _BLOCK + k
            real = 1.0 + table_z[k] * qp[k] - table_z[i] * qp[i]
            imaginary = table_z[k] * qp[i] + table_z[i] * qp[k]
            scale = 1.0 / (real * real + imaginary * imaginary)
            out[k] = (qb[k] * real + qb[i] * imaginary) * scale
            out[i] = (qb[i] * real - qb[k] * imaginary) * scale
        return
    for k in range(_BLOCK):
        z = complex(table_z[k], table_z[_BLOCK + k])
        _woodbury_matrix(matrix, pairs, z, k, M, R)
        for i in range(R):
            s = (M + i) * (1 + R)
            right[i] = complex(pairs[s, k], pairs[s, _BLOCK + k])
        _solve_small(matrix, right, False)
        for i in range(R):
            solutions[i, k] = right[i].real
            solutions[i, _BLOCK + k] = right[i].imag


@compiled(parallel=True)
def _forward(decay, p, q, b, C, nodes, spectrum):
    H, n = decay.shape
    M, R, K = C.shape[0], p.shape[0], spectrum.shape[2]
    products = (M + R) * (1 + R)
    for h in prange(H):
        c1, c2 = np.empty(n + 8), np.empty(n + 8)
        coefficients = np.empty((2 * products, n + 8))
        order = np.empty(n + 8, dtype=np.int64)
        first_end, end = _prepare(decay, p, q, b, C, h, c1, c2, coefficients, order)
        resolvents = np.empty((n + 8, 2 * _BLOCK))
        sums = np.empty((2, 2 * products, 2 * _BLOCK))
        pairs = np.empty((products, 2 * _BLOCK))
        solutions, corrections = np.empty((R, 2 * _BLOCK)), np.empty(2 * _BLOCK)
        matrix, right = np.empty((R, R), dtype=np.complex128), np.empty(R, dtype=np.complex128)
        for block in range(nodes.shape[0]):
            tables = nodes[block]
            _block_sums(c1, c2, coefficients, first_end, end, tables, resolvents, sums, pairs, products)
            z = tables[0, 4]
            _solutions(solutions, pairs, z, M, R, matrix, right)
            count = min(_BLOCK, K - block * _BLOCK)
            for m in range(M):
                out = spectrum[m, h, block * _BLOCK : block * _BLOCK + count]
                direct = pairs[m * (1 + R)]
                # Summed in a buffer: a sum inside the loop over k would round by how memory happens to lie.
                corrections[:] = 0.0
                for r in range(R):
                    cp, s = pairs[m * (1 + R) + 1 + r], solutions[r]
                    for k in range(_BLOCK):
                        i = _BLOCK + k
                        corrections[k] += cp[k] * s[k] - cp[i] * s[i]
                        corrections[i] += cp[k] * s[i] + cp[i] * s[k]
                for k in range(count):
                    i = _BLOCK + k
                    out[k] = complex(
                        direct[k] - (z[k] * corrections[k] - z[i] * corrections[i]),
                        direct[i] - (z[k] * corrections[i] + z[i] * corrections[k]),
                    )


@compiled()
def _pair_gradients(pair_grad, grad, pairs, solutions, through, z, M, R, matrix, right):
    """The adjoint of Woodbury's formula: from the spectrum's gradient (M, 2·BLOCK) to that of the pairs."""
    # The gradient of the solution: -Σ_m conj(z·k_cp)·grad.
    through[:] = 0.0
    for m in range(M):
        g = grad[m]
        for r in range(R):
            cp, out = pairs[m * (1 + R) + 1 + r], through[r]
            for k in range(_BLOCK):
                i = _BLOCK + k
                real = z[k] * cp[k] - z[i] * cp[i]
                imaginary = z[k] * cp[i] + z[i] * cp[k]
                out[k] -= g[k] * real + g[i] * imaginary
                out[i] -= g[i] * real - g[k] * imaginary
    if R == 1:
        qp, out = pairs[2 * M + 1], through[0]
        for k in range(_BLOCK):
            i = _BLOCK + k
            real = 1.0 + z[k] * qp[k] - z[i] * qp[i]
            imaginary = z[k] * qp[i] + z[i] * qp[k]
            scale = 1.0 / (real * real + imaginary * imaginary)
            # Division by the conjugate.
            t_real = (out[k] * real - out[i] * imaginary) * scale
            out[i] = (out[i] * real + out[k] * imaginary) * scale
            out[k] = t_real
    else:
        for k in range(_BLOCK):
            _woodbury_matrix(matrix, pairs, complex(z[k], z[_BLOCK + k]), k, M, R)
            for r in range(R):
                right[r] = complex(through[r, k], through[r, _BLOCK + k])
            _solve_small(matrix, right, True)
            for r in range(R):
                through[r, k] = right[r].real
                through[r, _BLOCK + k] = right[r].imag
    for row in range(M + R):
        g = grad[row] if row < M else through[row - M]
        pair_grad[row * (1 + R)] = g
        for r in range(R):
            s, out = solutions[r], pair_grad[row * (1 + R) + 1 + r]
            for k in range(_BLOCK):
                i = _BLOCK + k
                real = z[k] * s[k] - z[i] * s[i]
                imaginary = z[k] * s[i] + z[i] * s[k]
                out[k] = -(g[k] * real + g[i] * imaginary)
                out[i] = -(g[i] * real - g[k] * imaginary)


@compiled()
def _sum_gradients(sum_grad, pair_grad, group_tables, products):
    for group in range(2):
        for turned in range(2):
            w = group_tables[group, 3 + turned]
            for s in range(products):
                g, out = pair_grad[s], sum_grad[group, turned * products + s]
                for k in range(_BLOCK):
                    i = _BLOCK + k
                    out[k] = w[k] * g[k] + w[i] * g[i]
                    out[i] = w[k] * g[i] - w[i] * g[k]


@compiled()
def _denominator_gradients(c1_grad, c2_grad, resolvents, resolvent_grad, start, stop, tables):
    ze, zz = tables[1], tables[2]
    for mode in range(start, stop):
        row, g = resolvents[mode], resolvent_grad[mode]
        first, second = 0.0, 0.0
        for k in range(_BLOCK):
            i = _BLOCK + k
            # grad of D = -g·conj(R²)
            square_real = row[k] * row[k] - row[i] * row[i]
            square_imaginary = 2.0 * row[k] * row[i]
            real = -(g[k] * square_real + g[i] * square_imaginary)
            imaginary = -(g[i] * square_real - g[k] * square_imaginary)
            first += real * ze[k] + imaginary * ze[i]
            second += real * zz[k] + imaginary * zz[i]
        c1_grad[mode] += first
        c2_grad[mode] += second


@compiled(parallel=True)
def _backward(decay, p, q, b, C, nodes, spectrum_grad, decay_grad, p_grad, q_grad, b_grad, C_grad):
    H, n = decay.shape
    M, R, K = C.shape[0], p.shape[0], spectrum_grad.shape[2]
    products = (M + R) * (1 + R)
    padded = (2 * products + 3) // 4 * 4
    for h in prange(H):
        c1, c2 = np.empty(n + 8), np.empty(n + 8)
        coefficients = np.empty((2 * products, n + 8))
        order = np.empty(n + 8, dtype=np.int64)
        first_end, end = _prepare(decay, p, q, b, C, h, c1, c2, coefficients, order)
        transposed = np.zeros((n + 8, padded))
        transposed[:, : 2 * products] = coefficients.T
        resolvents = np.empty((n + 8, 2 * _BLOCK))
        resolvent_grad = np.empty((n + 8, 2 * _BLOCK))
        sums = np.empty((2, 2 * products, 2 * _BLOCK))
        sum_grad = np.zeros((2, padded, 2 * _BLOCK))
        pairs, pair_grad = np.empty((products, 2 * _BLOCK)), np.empty((products, 2 * _BLOCK))
        solutions, through = np.empty((R, 2 * _BLOCK)), np.empty((R, 2 * _BLOCK))
        matrix, right = np.empty((R, R), dtype=np.complex128), np.empty(R, dtype=np.complex128)
        grad = np.empty((M, 2 * _BLOCK))
        coefficient_grad = np.zeros((2 * products, n + 8))
        c1_grad, c2_grad = np.zeros(n + 8), np.zeros(n + 8)
        for block in range(nodes.shape[0]):
            tables = nodes[block]
            z = tables[0, 4]
            _block_sums(c1, c2, coefficients, first_end, end, tables, resolvents, sums, pairs, products)
            _solutions(solutions, pairs, z, M, R, matrix, right)
            grad[:] = 0.0
            for m in range(M):
                for k in range(min(_BLOCK, K - block * _BLOCK)):
                    value = spectrum_grad[m, h, block * _BLOCK + k]
                    grad[m, k] = value.real
                    grad[m, _BLOCK + k] = value.imag
            _pair_gradients(pair_grad, grad, pairs, solutions, through, z, M, R, matrix, right)
            _sum_gradients(sum_grad, pair_grad, tables, products)
            resolvent_grad[:] = 0.0
            for group in range(2):
                start, stop = (0, first_end) if group == 0 else (first_end, end)
                add_dots(coefficient_grad, sum_grad[group, : 2 * products], resolvents, start, stop)
                add_products(resolvent_grad[start:stop], transposed[start:stop], sum_grad[group], 0, padded)
                _denominator_gradients(
                    c1_grad, c2_grad, resolvents, resolvent_grad, start, stop, tables[group]
                )
        for position in range(end):
            mode = order[position]
            if mode < 0:
                continue
            mirrored = position >= first_end
            delta = 2.0 - decay[h, mode] if mirrored else decay[h, mode]
            delta_grad = 2.0 * c1_grad[position] + 2.0 * c2_grad[position] * delta
            b_grad[h, mode] = 0.0
            for m in range(M):
                C_grad[m, h, mode] = 0.0
            for r in range(R):
                p_grad[r, h, mode] = 0.0
                q_grad[r, h, mode] = 0.0
            for row in range(M + R):
                r_value = C[row, h, mode] if row < M else q[row - M, h, mode]
                for column in range(1 + R):
                    c_value = b[h, mode] if column == 0 else p[column - 1, h, mode]
                    s = row * (1 + R) + column
                    plain = 2.0 * coefficient_grad[s, position]
                    turned = 2.0 * coefficient_grad[products + s, position]
                    weight_grad = plain + turned * delta
                    delta_grad += turned * (r_value * c_value)
                    if row < M:
                        C_grad[row, h, mode] += weight_grad * c_value.conjugate()
                    else:
                        q_grad[row - M, h, mode] += weight_grad * c_value.conjugate()
                    if column == 0:
                        b_grad[h, mode] += weight_grad * r_value.conjugate()
                    else:
                        p_grad[column - 1, h, mode] += weight_grad * r_value.conjugate()
            decay_grad[h, mode] = -delta_grad if mirrored else delta_grad
