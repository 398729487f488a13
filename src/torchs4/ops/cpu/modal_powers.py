"""Powers of a DPLR system's transition, applied to vectors and rows or written out; forward and backward.

Everything is real: modes become real and imaginary parts, all real parts first, and a row c of complex
numbers, which reads 2·Re Σ c x, becomes (2·Re c, -2·Im c). A power needs no squaring, because Ā = a - p q is
diagonal plus low rank:

    Ā^T = a^T - Σ_{s<T} (a^(T-1-s) p) (q Ā^s)
"""

from __future__ import annotations

import numpy as np

from torchs4.ops.cpu.compiling import compiled
from torchs4.ops.cpu.products import add_product, add_transposed_product
from torchs4.ops.cpu.vectors import LANES

# Below this a power is as good as zero; numbers near 1e-308 would slow everything down.
_TINY = 1e-250
# Unused numbers at the end of a row, so that rows do not crowd into few sets of the cache.
GAP = LANES


@compiled()
def without_tiny(value):
    """The value, or zero in place of one that is as good as zero."""
    return value if abs(value) > _TINY else 0.0


@compiled()
def fill_powers(rows, count, turn, columns, readers):
    """rows[i + 1] = turn·rows[i] - Σ_r columns[r]·(readers[r]·rows[i]); rows[0] is there already.

    turn: (2, half), the real and imaginary parts of the diagonal.
    """
    half = turn.shape[1]
    for i in range(count - 1):
        for k in range(half):
            x, y = rows[i, k], rows[i, half + k]
            rows[i + 1, k] = without_tiny(turn[0, k] * x - turn[1, k] * y)
            rows[i + 1, half + k] = without_tiny(turn[1, k] * x + turn[0, k] * y)
        for r in range(columns.shape[0]):
            push = 0.0
            for k in range(2 * half):
                push += readers[r, k] * rows[i, k]
            for k in range(2 * half):
                rows[i + 1, k] -= push * columns[r, k]


@compiled()
def fill_powers_backward(grads, rows, count, turn, columns, readers, turn_grad, columns_grad, readers_grad):
    """The adjoint of `fill_powers`; afterwards grads[0] belongs to rows[0]."""
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
            rows[i - 1, k] = without_tiny(turn[0, k] * x - turn[1, k] * y)
            rows[i - 1, half + k] = without_tiny(turn[1, k] * x + turn[0, k] * y)


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
def transpose(target, source, rows, columns):
    """Target[j, i] = source[i, j]."""
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
def prepare_system(decay, p, q, b, h, turn, columns, readers, fine_rows):
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
def reversed_turn(turn):
    """The turn as it acts on rows: conjugate."""
    backwards = np.empty((2, turn.shape[1]))
    # One by one: assigning slices would compile messages about shapes, which takes seconds.
    for k in range(turn.shape[1]):
        backwards[0, k] = turn[0, k]
        backwards[1, k] = -turn[1, k]
    return backwards


@compiled()
def fill_jump(jump, turn, fine):
    """conj(a^T): the coarse step of a diagonal system, as it acts on rows."""
    for k in range(turn.shape[1]):
        power = _to_power(complex(turn[0, k], turn[1, k]), fine)
        jump[0, k] = power.real
        jump[1, k] = -power.imag


@compiled()
def jump_backward(jump_grad, turn, fine, turn_grad):
    """The adjoint of `fill_jump`."""
    for k in range(turn.shape[1]):
        # Of a^T, T·a^(T-1).
        slope = fine * _to_power(complex(turn[0, k], turn[1, k]), fine - 1)
        total = complex(jump_grad[0, k], -jump_grad[1, k]) * slope.conjugate()
        turn_grad[0, k] += total.real
        turn_grad[1, k] += total.imag


@compiled()
def fill_transition(G, fine, turn, jump, columns, readers, turned, read):
    """G = Ā^T, given conj(a^T). Keeps -a^(T-1-s) p in turned[r, s] and q Ā^s in read[r, s]."""
    half = turn.shape[1]
    width = 2 * half
    backwards = reversed_turn(turn)
    G[:] = 0.0
    for r in range(columns.shape[0]):
        for k in range(width):
            turned[r, fine - 1, k] = -columns[r, k]
            read[r, 0, k] = readers[r, k]
        _fill_turns(turned[r], fine, turn)
        fill_powers(read[r], fine, backwards, readers, columns)
        add_transposed_product(G, turned[r], read[r], width, fine, width)
    for k in range(half):
        G[k, k] += jump[0, k]
        G[k, half + k] += jump[1, k]
        G[half + k, k] -= jump[1, k]
        G[half + k, half + k] += jump[0, k]


@compiled()
def transition_backward(
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
    """The adjoint of `fill_transition`; `transposed` and `grads` are room to work in."""
    half = turn.shape[1]
    width = 2 * half
    backwards, backwards_grad = reversed_turn(turn), np.zeros((2, half))
    transpose(transposed, G_grad, width, width)
    for r in range(columns.shape[0]):
        grads[:] = 0.0
        add_product(grads, read[r], transposed, fine, width, width)
        _fill_turns_backward(grads, turned[r], fine, turn, turn_grad)
        for k in range(width):
            columns_grad[r, k] -= grads[fine - 1, k]
        grads[:] = 0.0
        add_product(grads, turned[r], G_grad, fine, width, width)
        fill_powers_backward(
            grads, read[r], fine, backwards, readers, columns, backwards_grad, readers_grad, columns_grad
        )
        for k in range(width):
            readers_grad[r, k] += grads[0, k]
    for k in range(half):
        turn_grad[0, k] += backwards_grad[0, k]
        turn_grad[1, k] -= backwards_grad[1, k]
        jump_grad[0, k] += G_grad[k, k] + G_grad[half + k, half + k]
        jump_grad[1, k] += G_grad[k, half + k] - G_grad[half + k, k]
