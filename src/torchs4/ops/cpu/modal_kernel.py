"""The kernel of a DPLR system, C Ā^l b, as a product of two thin matrices; one feature per task.

Axes: M output channels, H features, n modes, R rank, L = J·T samples in J coarse steps of T fine ones.

    K[jT + i] = (C Ā^(jT)) (Ā^i b)

The fine vectors Ā^i b are steps of the recurrence, O(N) each. A coarse step multiplies a row by G = Ā^T,
which needs no squaring, because Ā = a - p q is diagonal plus low rank:

    Ā^T = a^T - Σ_{s<T} (a^(T-1-s) p) (q Ā^s)

The backward pass walks the same road back. Everything is real: modes become real and imaginary parts, all
real parts first, and a row c of complex numbers, which reads 2·Re Σ c x, becomes (2·Re c, -2·Im c). Products
cost L·N + (J + T)·N² multiplications; sums over modes at L/2 frequencies would cost some 12·L·N.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numba import prange
from torch import Tensor

from torchs4.ops.cpu.arrays import as_array, as_complex_array
from torchs4.ops.cpu.compiling import compiled, torch_threads
from torchs4.ops.cpu.products import add_product, add_row_product, add_transposed_product
from torchs4.ops.cpu.vectors import LANES
from torchs4.ops.registered import kernel_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Lengths that are reached by fine steps alone.
_SHORT = 64
# Below this a power is as good as zero; numbers near 1e-308 would slow everything down.
_TINY = 1e-250
# Unused numbers at the end of a row, so that rows do not crowd into few sets of the cache.
_GAP = LANES


def modal_kernel(decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, length: int) -> Tensor:
    """The twin of reference.modal_kernel."""
    kernel = torch.empty(*C.shape[:2], length, dtype=kernel_dtype(C))
    with torch_threads():
        _forward(*map(as_complex_array, (decay, p, q, b, C)), *_split(length), _tasks(C), kernel.numpy())
    return kernel


def modal_kernel_backward(
    grad: Tensor, decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor
) -> list[Tensor]:
    """The twin of reference.modal_kernel_backward."""
    system = (decay, p, q, b, C)
    grads = [torch.empty(x.shape, dtype=torch.float64) for x in system]
    with torch_threads():
        _backward(
            as_array(grad),
            *map(as_complex_array, system),
            *_split(grad.shape[-1]),
            _tasks(C),
            *map(as_complex_array, grads),
        )
    return [g.to(x.dtype) for g, x in zip(grads, system, strict=True)]


def power_kernel(a: Tensor, weights: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """The twin of reference.power_kernel: a DPLR system of rank 0 whose b is 1."""
    kernel = torch.empty(*weights.shape[:2], length, dtype=dtype)
    with torch_threads():
        _forward(*_diagonal_system(a, weights), *_split(length), _tasks(weights), kernel.numpy())
    return kernel


def power_kernel_backward(grad: Tensor, a: Tensor, weights: Tensor) -> list[Tensor]:
    """The twin of reference.power_kernel_backward."""
    system = _diagonal_system(a, weights)
    grads = [np.empty_like(x) for x in system]
    with torch_threads():
        _backward(as_array(grad), *system, *_split(grad.shape[-1]), _tasks(weights), *grads)
    decay_grad, *_, weights_grad = (torch.view_as_real(torch.from_numpy(g)) for g in grads)
    return [-decay_grad, weights_grad]


def _diagonal_system(a: Tensor, weights: Tensor) -> list[NDArray[Any]]:
    modes, C = as_complex_array(a), as_complex_array(weights)
    nothing = np.empty((0, *modes.shape), dtype=np.complex128)
    return [1 - modes, nothing, nothing, np.ones_like(modes), C]


def _split(length: int) -> tuple[int, int]:
    """Fine and coarse steps, in eights and in fours as the products want them."""
    fine = -(-(length if length <= _SHORT else math.isqrt(length)) // 8) * 8
    return fine, -(-length // (4 * fine)) * 4


def _tasks(C: Tensor) -> int:
    return min(torch.get_num_threads(), C.shape[1])


@compiled()
def _without_tiny(value):
    return value if abs(value) > _TINY else 0.0


@compiled()
def _fill_powers(rows, count, turn, columns, readers):
    """rows[i + 1] = turn·rows[i] - Σ_r columns[r]·(readers[r]·rows[i]); rows[0] is there already.

    turn: (2, half), the real and imaginary parts of the diagonal.
    """
    half = turn.shape[1]
    for i in range(count - 1):
        for k in range(half):
            x, y = rows[i, k], rows[i, half + k]
            rows[i + 1, k] = _without_tiny(turn[0, k] * x - turn[1, k] * y)
            rows[i + 1, half + k] = _without_tiny(turn[1, k] * x + turn[0, k] * y)
        for r in range(columns.shape[0]):
            push = 0.0
            for k in range(2 * half):
                push += readers[r, k] * rows[i, k]
            for k in range(2 * half):
                rows[i + 1, k] -= push * columns[r, k]


@compiled()
def _fill_powers_backward(grads, rows, count, turn, columns, readers, turn_grad, columns_grad, readers_grad):
    """The adjoint of `_fill_powers`; afterwards grads[0] belongs to rows[0]."""
    half = turn.shape[1]
    for i in range(count - 2, -1, -1):
        for k in range(half):
            x, y, u, v = rows[i, k], rows[i, half + k], grads[i + 1, k], grads[i + 1, half + k]
            turn_grad[0, k] += x * u + y * v
            turn_grad[1, k] += x * v - y * u
            grads[i, k] += turn[0, k] * u + turn[1, k] * v
            grads[i, half + k] += turn[0, k] * v - turn[1, k] * u
        for r in range(columns.shape[0]):
            push, pull = 0.0, 0.0
            for k in range(2 * half):
                push += readers[r, k] * rows[i, k]
                pull += columns[r, k] * grads[i + 1, k]
            for k in range(2 * half):
                grads[i, k] -= pull * readers[r, k]
                columns_grad[r, k] -= push * grads[i + 1, k]
                readers_grad[r, k] -= pull * rows[i, k]


@compiled()
def _fill_turns(rows, count, turn):
    """rows[i - 1] = turn·rows[i], from the last row down."""
    half = turn.shape[1]
    for i in range(count - 1, 0, -1):
        for k in range(half):
            x, y = rows[i, k], rows[i, half + k]
            rows[i - 1, k] = _without_tiny(turn[0, k] * x - turn[1, k] * y)
            rows[i - 1, half + k] = _without_tiny(turn[1, k] * x + turn[0, k] * y)


@compiled()
def _fill_turns_backward(grads, rows, count, turn, turn_grad):
    """The adjoint of `_fill_turns`; afterwards the last row of grads belongs to the last row."""
    half = turn.shape[1]
    for i in range(1, count):
        for k in range(half):
            x, y, u, v = rows[i, k], rows[i, half + k], grads[i - 1, k], grads[i - 1, half + k]
            turn_grad[0, k] += x * u + y * v
            turn_grad[1, k] += x * v - y * u
            grads[i, k] += turn[0, k] * u + turn[1, k] * v
            grads[i, half + k] += turn[0, k] * v - turn[1, k] * u


@compiled()
def _transpose(target, source, rows, columns):
    for i in range(rows):
        for j in range(columns):
            target[j, i] = source[i, j]


@compiled()
def _to_power(value, exponent):
    result = complex(1.0)
    while exponent > 0:
        if exponent & 1:
            result = result * value
        value = value * value
        exponent >>= 1
    return result


@compiled()
def _prepare(decay, p, q, b, h, turn, columns, readers, fine_rows):
    """The feature's system in real numbers, and b as the first of the fine vectors."""
    n, half = decay.shape[1], turn.shape[1]
    for k in range(n):
        turn[0, k] = 1.0 - decay[h, k].real
        turn[1, k] = -decay[h, k].imag
        fine_rows[0, k] = b[h, k].real
        fine_rows[0, half + k] = b[h, k].imag
        for r in range(p.shape[0]):
            columns[r, k] = p[r, h, k].real
            columns[r, half + k] = p[r, h, k].imag
            readers[r, k] = 2.0 * q[r, h, k].real
            readers[r, half + k] = -2.0 * q[r, h, k].imag


@compiled()
def _reversed(turn):
    """The turn as it acts on rows: conjugate."""
    backwards = np.empty((2, turn.shape[1]))
    # One by one: assigning slices would compile messages about shapes, which takes seconds.
    for k in range(turn.shape[1]):
        backwards[0, k] = turn[0, k]
        backwards[1, k] = -turn[1, k]
    return backwards


@compiled()
def _fill_jump(jump, turn, fine):
    """conj(a^T): the coarse step of a diagonal system, as it acts on rows."""
    for k in range(turn.shape[1]):
        power = _to_power(complex(turn[0, k], turn[1, k]), fine)
        jump[0, k] = power.real
        jump[1, k] = -power.imag


@compiled()
def _jump_backward(jump_grad, turn, fine, turn_grad):
    """The adjoint of `_fill_jump`."""
    for k in range(turn.shape[1]):
        # Of a^T, T·a^(T-1).
        slope = fine * _to_power(complex(turn[0, k], turn[1, k]), fine - 1)
        total = complex(jump_grad[0, k], -jump_grad[1, k]) * slope.conjugate()
        turn_grad[0, k] += total.real
        turn_grad[1, k] += total.imag


@compiled()
def _fill_transition(G, fine, turn, jump, columns, readers, turned, read):
    """G = Ā^T, given conj(a^T). Keeps -a^(T-1-s) p in turned[r, s] and q Ā^s in read[r, s]."""
    half = turn.shape[1]
    width = 2 * half
    backwards = _reversed(turn)
    G[:] = 0.0
    for r in range(columns.shape[0]):
        for k in range(width):
            turned[r, fine - 1, k] = -columns[r, k]
            read[r, 0, k] = readers[r, k]
        _fill_turns(turned[r], fine, turn)
        _fill_powers(read[r], fine, backwards, readers, columns)
        add_transposed_product(G, turned[r], read[r], width, fine, width)
    for k in range(half):
        G[k, k] += jump[0, k]
        G[k, half + k] += jump[1, k]
        G[half + k, k] -= jump[1, k]
        G[half + k, half + k] += jump[0, k]


@compiled()
def _transition_backward(
    G_grad,
    fine,
    turn,
    columns,
    readers,
    turned,
    read,
    transposed,
    grads,
    turn_grad,
    jump_grad,
    columns_grad,
    readers_grad,
):
    """The adjoint of `_fill_transition`; `transposed` and `grads` are room to work in."""
    half = turn.shape[1]
    width = 2 * half
    backwards, backwards_grad = _reversed(turn), np.zeros((2, half))
    _transpose(transposed, G_grad, width, width)
    for r in range(columns.shape[0]):
        grads[:] = 0.0
        add_product(grads, read[r], transposed, fine, width, width)
        _fill_turns_backward(grads, turned[r], fine, turn, turn_grad)
        for k in range(width):
            columns_grad[r, k] -= grads[fine - 1, k]
        grads[:] = 0.0
        add_product(grads, turned[r], G_grad, fine, width, width)
        _fill_powers_backward(
            grads, read[r], fine, backwards, readers, columns, backwards_grad, readers_grad, columns_grad
        )
        for k in range(width):
            readers_grad[r, k] += grads[0, k]
    for k in range(half):
        turn_grad[0, k] += backwards_grad[0, k]
        turn_grad[1, k] -= backwards_grad[1, k]
        jump_grad[0, k] += G_grad[k, k] + G_grad[half + k, half + k]
        jump_grad[1, k] += G_grad[k, half + k] - G_grad[half + k, k]


@compiled()
def _fill_coarse(coarse_rows, count, C, jump, G, diagonal):
    """coarse_rows[j] = C G^j, or C a^(jT) when the system is diagonal."""
    half, n = jump.shape[1], C.shape[0]
    width = 2 * half
    coarse_rows[0] = 0.0
    for k in range(n):
        coarse_rows[0, k] = 2.0 * C[k].real
        coarse_rows[0, half + k] = -2.0 * C[k].imag
    if diagonal:
        nothing = np.empty((0, width))
        _fill_powers(coarse_rows, count, jump, nothing, nothing)
        return
    for j in range(1, count):
        coarse_rows[j] = 0.0
        add_row_product(coarse_rows, j, coarse_rows[j - 1], G, width, width)
        for k in range(width):
            coarse_rows[j, k] = _without_tiny(coarse_rows[j, k])


@compiled(parallel=True)
def _forward(decay, p, q, b, C, fine, coarse, tasks, kernel):
    H, n = decay.shape
    M, R, length = C.shape[0], p.shape[0], kernel.shape[2]
    half = (n + 3) // 4 * 4
    width = 2 * half
    used = (length + fine - 1) // fine
    for task in prange(tasks):
        turn, jump = np.zeros((2, half)), np.empty((2, half))
        columns, readers = np.zeros((R, width)), np.zeros((R, width))
        fine_rows, fine_columns = np.zeros((fine, width + _GAP)), np.empty((width, fine + _GAP))
        turned, read = np.empty((R, fine, width + _GAP)), np.empty((R, fine, width + _GAP))
        G = np.empty((width, width + _GAP))
        coarse_rows, product = np.zeros((coarse, width + _GAP)), np.empty((coarse, fine + _GAP))
        for h in range(task, H, tasks):
            _prepare(decay, p, q, b, h, turn, columns, readers, fine_rows)
            _fill_powers(fine_rows, fine, turn, columns, readers)
            _transpose(fine_columns, fine_rows, fine, width)
            if used > 1:
                _fill_jump(jump, turn, fine)
            if used > 1 and R > 0:
                _fill_transition(G, fine, turn, jump, columns, readers, turned, read)
            for m in range(M):
                _fill_coarse(coarse_rows, used, C[m, h], jump, G, R == 0)
                product[:] = 0.0
                add_product(product, coarse_rows, fine_columns, coarse, width, fine)
                for j in range(used):
                    for i in range(min(fine, length - j * fine)):
                        kernel[m, h, j * fine + i] = product[j, i]


@compiled(parallel=True)
def _backward(grad, decay, p, q, b, C, fine, coarse, tasks, decay_grad, p_grad, q_grad, b_grad, C_grad):
    H, n = decay.shape
    M, R, length = C.shape[0], p.shape[0], grad.shape[2]
    half = (n + 3) // 4 * 4
    width = 2 * half
    used = (length + fine - 1) // fine
    for task in prange(tasks):
        turn, turn_grad = np.zeros((2, half)), np.empty((2, half))
        jump, jump_grad = np.empty((2, half)), np.empty((2, half))
        columns, readers = np.zeros((R, width)), np.zeros((R, width))
        columns_grad, readers_grad = np.empty((R, width)), np.empty((R, width))
        fine_rows, fine_grad = np.zeros((fine, width + _GAP)), np.empty((fine, width + _GAP))
        turned, read = np.empty((R, fine, width + _GAP)), np.empty((R, fine, width + _GAP))
        G, G_grad = np.empty((width, width + _GAP)), np.empty((width, width + _GAP))
        transposed = np.empty((width, width + _GAP))
        coarse_rows, coarse_grad = np.zeros((coarse, width + _GAP)), np.empty((coarse, width + _GAP))
        product_grad, row_grads = np.zeros((coarse, fine + _GAP)), np.empty((fine, width + _GAP))
        for h in range(task, H, tasks):
            turn_grad[:] = 0.0
            jump_grad[:] = 0.0
            columns_grad[:] = 0.0
            readers_grad[:] = 0.0
            fine_grad[:] = 0.0
            G_grad[:] = 0.0
            _prepare(decay, p, q, b, h, turn, columns, readers, fine_rows)
            _fill_powers(fine_rows, fine, turn, columns, readers)
            if used > 1:
                _fill_jump(jump, turn, fine)
            if used > 1 and R > 0:
                _fill_transition(G, fine, turn, jump, columns, readers, turned, read)
                _transpose(transposed, G, width, width)
            for m in range(M):
                _fill_coarse(coarse_rows, used, C[m, h], jump, G, R == 0)
                for j in range(used):
                    for i in range(min(fine, length - j * fine)):
                        product_grad[j, i] = grad[m, h, j * fine + i]
                coarse_grad[:] = 0.0
                add_product(coarse_grad, product_grad, fine_rows, coarse, fine, width)
                add_transposed_product(fine_grad, product_grad, coarse_rows, fine, coarse, width)
                if R == 0:
                    _fill_powers_backward(
                        coarse_grad, coarse_rows, used, jump, columns, columns, jump_grad, columns, columns
                    )
                elif used > 1:
                    for j in range(used - 1, 0, -1):
                        add_row_product(coarse_grad, j - 1, coarse_grad[j], transposed, width, width)
                    add_transposed_product(G_grad, coarse_rows, coarse_grad[1:], width, used - 1, width)
                for k in range(n):
                    C_grad[m, h, k] = complex(2.0 * coarse_grad[0, k], -2.0 * coarse_grad[0, half + k])
            if used > 1 and R > 0:
                _transition_backward(
                    G_grad,
                    fine,
                    turn,
                    columns,
                    readers,
                    turned,
                    read,
                    transposed,
                    row_grads,
                    turn_grad,
                    jump_grad,
                    columns_grad,
                    readers_grad,
                )
            if used > 1:
                _jump_backward(jump_grad, turn, fine, turn_grad)
            _fill_powers_backward(
                fine_grad, fine_rows, fine, turn, columns, readers, turn_grad, columns_grad, readers_grad
            )
            for k in range(n):
                decay_grad[h, k] = -complex(turn_grad[0, k], turn_grad[1, k])
                b_grad[h, k] = complex(fine_grad[0, k], fine_grad[0, half + k])
                for r in range(R):
                    p_grad[r, h, k] = complex(columns_grad[r, k], columns_grad[r, half + k])
                    q_grad[r, h, k] = complex(2.0 * readers_grad[r, k], -2.0 * readers_grad[r, half + k])
