"""Powers of a DPLR system's transition, applied to vectors and rows or written out; forward and backward.

Everything is real: a state's modes are pairs of real and imaginary part, a row c of complex numbers, which
reads 2·Re Σ c x, becomes pairs (2·Re c, -2·Im c), and a mode a, which turns a pair (x, y) into
(Re a·x - Im a·y, Re a·y + Im a·x), is kept as two rows: (Re a, Re a), and (-Im a, Im a) for the swapped
pair. Rows are filled up with zeros to a width of whole vectors.

A power needs no squaring, because Ā = a - p q is diagonal plus low rank:

    Ā^T = a^T - Σ_{s<T} (a^(T-1-s) p) (q Ā^s)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torchs4.ops.cpu.compiling import compiled
from torchs4.ops.cpu.modal_rows import TINY, inner_product, subtract, turn_row, turn_row_backward
from torchs4.ops.cpu.products import add_product, add_transposed_product, copy_transposed
from torchs4.ops.cpu.vectors import LANES
from torchs4.ops.cpu.workspaces import empty

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Unused numbers at the end of a row, so that rows do not crowd into few sets of the cache.
GAP = LANES


class DiscreteSystem(NamedTuple):
    """Ā = (1 - decay) - p q, b and C as they are given, in complex numbers: of all features, or gradients."""

    decay: NDArray[np.complex128]
    p: NDArray[np.complex128]
    q: NDArray[np.complex128]
    b: NDArray[np.complex128]
    C: NDArray[np.complex128]


class Transition(NamedTuple):
    """Ā = turn - Σ_r columns[r] readers[r] of one feature, in real numbers; or its gradient."""

    turn: NDArray[np.float64]
    columns: NDArray[np.float64]
    readers: NDArray[np.float64]


class Correction(NamedTuple):
    """What Ā^T differs from a^T by, in factors: -a^(T-1-s) p in turned[r, s], q Ā^s in read[r, s]."""

    turned: NDArray[np.float64]
    read: NDArray[np.float64]


@compiled()
def new_transition(rank, width):
    """A transition, or a gradient of one, that is zero."""
    return Transition(np.zeros((2, width)), np.zeros((rank, width)), np.zeros((rank, width)))


@compiled()
def clear(transition):
    """Set a transition to zero."""
    transition.turn[:] = 0.0
    transition.columns[:] = 0.0
    transition.readers[:] = 0.0


@compiled()
def new_correction(rank, fine, width):
    """Room for the factors of `fill_correction`."""
    shape = (rank, fine, width + GAP)
    return Correction(empty(shape, np.float64), empty(shape, np.float64))


@compiled()
def new_workspace(fine, width):
    """Room for `power_backward`: a transposed matrix, and gradients of powers."""
    return empty((width, width + GAP), np.float64), empty((fine, width + GAP), np.float64)


@compiled()
def transposed_transition(transition):
    """Āᵀ, which is how Ā acts on rows: the turn is conjugate, columns and readers change places."""
    turn, columns, readers = transition
    backwards = empty(turn.shape, np.float64)
    # One by one: assigning slices would compile messages about shapes, which takes seconds.
    for k in range(turn.shape[1]):
        backwards[0, k] = turn[0, k]
        backwards[1, k] = -turn[1, k]
    return Transition(backwards, readers, columns)


@compiled()
def transposed_grad(grad):
    """Where gradients of Āᵀ go: those of columns and readers into grad itself, that of the turn beside it."""
    return Transition(np.zeros(grad.turn.shape), grad.readers, grad.columns)


@compiled()
def add_transposed_turn(grad, transposed):
    """Add the turn of `transposed_grad` to the gradient that it belongs to."""
    for k in range(grad.turn.shape[1]):
        grad.turn[0, k] += transposed.turn[0, k]
        grad.turn[1, k] -= transposed.turn[1, k]


@compiled()
def fill_powers(rows, count, transition):
    """rows[i + 1] = turn·rows[i] - Σ_r columns[r]·(readers[r]·rows[i]); rows[0] is there already."""
    turn, columns, readers = transition
    gap, width, push = rows.shape[1], turn.shape[1], empty(1, np.float64)
    for i in range(count - 1):
        here, after = i * gap, (i + 1) * gap
        turn_row(rows, rows, turn, after, here, width)
        for r in range(columns.shape[0]):
            inner_product(push, readers, rows, 0, r * width, here, width)
            subtract(rows, columns, push, after, r * width, 0, width)


@compiled()
def fill_powers_backward(grads, rows, count, transition, transition_grad):
    """The adjoint of `fill_powers`; afterwards grads[0] belongs to rows[0].

    With x = rows[i] and g = grads[i + 1], from the last row down:

        grads[i] += Āᵀ g                turn grad += g xᵀ, where turn is not zero
        columns grad -= g (readers·x)   readers grad -= (columns·g) x
    """
    turn, columns, readers = transition
    turn_grad, columns_grad, readers_grad = transition_grad
    gap, width, factors = rows.shape[1], turn.shape[1], empty(2, np.float64)
    for i in range(count - 2, -1, -1):
        here, after = i * gap, (i + 1) * gap
        turn_row_backward(grads, grads, rows, turn, turn_grad, here, after, width)
        for r in range(columns.shape[0]):
            # How far the step was pushed, and how the gradient pulls at that.
            inner_product(factors, readers, rows, 0, r * width, here, width)
            inner_product(factors, columns, grads, 1, r * width, after, width)
            subtract(grads, readers, factors, here, r * width, 1, width)
            subtract(columns_grad, grads, factors, r * width, after, 0, width)
            subtract(readers_grad, rows, factors, r * width, here, 1, width)


@compiled()
def _fill_turns(rows, count, turn):
    """rows[i - 1] = turn·rows[i], from the last row down."""
    gap = rows.shape[1]
    for i in range(count - 1, 0, -1):
        turn_row(rows, rows, turn, (i - 1) * gap, i * gap, turn.shape[1])


@compiled()
def _fill_turns_backward(grads, rows, count, turn, turn_grad):
    """The adjoint of `_fill_turns`; afterwards the last row of grads belongs to the last row.

    grads[i] += turnᵀ·grads[i - 1] and turn grad += grads[i - 1] rows[i]ᵀ, from the first row up.
    """
    gap = rows.shape[1]
    for i in range(1, count):
        turn_row_backward(grads, grads, rows, turn, turn_grad, i * gap, (i - 1) * gap, turn.shape[1])


@compiled()
def without_tiny(value):
    """The value, or zero in place of one that is as good as zero."""
    return value if abs(value) > TINY else 0.0


@compiled()
def row_width(modes):
    """How many places a row of that many modes takes."""
    return (2 * modes + LANES - 1) // LANES * LANES


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
def _set_turn(turn, k, value):
    turn[0, 2 * k] = value.real
    turn[0, 2 * k + 1] = value.real
    turn[1, 2 * k] = -value.imag
    turn[1, 2 * k + 1] = value.imag


@compiled()
def _turn_of(turn, k):
    return complex(turn[0, 2 * k], turn[1, 2 * k + 1])


@compiled()
def mode_grad(turn_grad, k):
    """The gradient for a mode, from that of its turn."""
    return complex(
        turn_grad[0, 2 * k] + turn_grad[0, 2 * k + 1], turn_grad[1, 2 * k + 1] - turn_grad[1, 2 * k]
    )


@compiled()
def _set_column(row, column):
    """A complex column as a real row."""
    for k in range(column.shape[0]):
        row[2 * k] = column[k].real
        row[2 * k + 1] = column[k].imag


@compiled()
def _column_grad(grad, row_grad):
    """The adjoint of `_set_column`."""
    for k in range(grad.shape[0]):
        grad[k] = complex(row_grad[2 * k], row_grad[2 * k + 1])


@compiled()
def set_reader(row, reader):
    """A complex row as the real one that reads 2·Re Σ c x."""
    for k in range(reader.shape[0]):
        row[2 * k] = 2.0 * reader[k].real
        row[2 * k + 1] = -2.0 * reader[k].imag


@compiled()
def reader_grad(grad, row_grad):
    """The adjoint of `set_reader`."""
    for k in range(grad.shape[0]):
        grad[k] = complex(2.0 * row_grad[2 * k], -2.0 * row_grad[2 * k + 1])


@compiled()
def prepare_feature(system, h, transition, first_row):
    """The feature's transition in real numbers, and b as the first of its powers."""
    decay, p, q, b, _ = system
    for k in range(decay.shape[1]):
        _set_turn(transition.turn, k, 1.0 - decay[h, k])
    _set_column(first_row, b[h])
    for r in range(p.shape[0]):
        _set_column(transition.columns[r], p[r, h])
        set_reader(transition.readers[r], q[r, h])


@compiled()
def store_feature_grad(system_grad, h, transition_grad, first_row_grad):
    """The adjoint of `prepare_feature`: the decay is 1 - a."""
    decay_grad, p_grad, q_grad, b_grad, _ = system_grad
    for k in range(decay_grad.shape[1]):
        decay_grad[h, k] = -mode_grad(transition_grad.turn, k)
    _column_grad(b_grad[h], first_row_grad)
    for r in range(p_grad.shape[0]):
        _column_grad(p_grad[r, h], transition_grad.columns[r])
        reader_grad(q_grad[r, h], transition_grad.readers[r])


@compiled()
def fill_jump(jump, turn, fine):
    """conj(a^T): the coarse step of a diagonal system, as it acts on rows."""
    for k in range(turn.shape[1] // 2):
        _set_turn(jump, k, _to_power(_turn_of(turn, k), fine).conjugate())


@compiled()
def jump_backward(jump_grad, turn, fine, turn_grad):
    """The adjoint of `fill_jump`: a grad += conj(T·a^(T-1)) conj(jump grad)."""
    for k in range(turn.shape[1] // 2):
        slope = fine * _to_power(_turn_of(turn, k), fine - 1)
        total = mode_grad(jump_grad, k).conjugate() * slope.conjugate()
        turn_grad[0, 2 * k] += total.real
        turn_grad[1, 2 * k + 1] += total.imag


@compiled()
def fill_correction(correction, fine, transition):
    """The factors that a `Correction` is made of."""
    turned, read = correction
    backwards = transposed_transition(transition)
    for r in range(turned.shape[0]):
        for k in range(transition.turn.shape[1]):
            turned[r, fine - 1, k] = -transition.columns[r, k]
            read[r, 0, k] = transition.readers[r, k]
        _fill_turns(turned[r], fine, transition.turn)
        fill_powers(read[r], fine, backwards)


@compiled()
def fill_power(G, fine, jump, correction):
    """G = Ā^T = a^T + Σ_r turned[r]ᵀ read[r], given conj(a^T) and the factors."""
    turned, read = correction
    width = jump.shape[1]
    G[:] = 0.0
    for r in range(turned.shape[0]):
        add_transposed_product(G, turned[r], read[r], width, fine, width)
    for k in range(width):
        G[k, k] += jump[0, k]
        G[k ^ 1, k] += jump[1, k]


@compiled()
def power_backward(G_grad, fine, transition, correction, workspace, transition_grad, jump_grad):
    """The adjoint of `fill_power` and `fill_correction`.

        turned[r] grad = read[r] G_gradᵀ        read[r] grad = turned[r] G_grad        jump grad += G_grad

    on the jump's places; then back through the powers that the factors are.
    """
    width = transition.turn.shape[1]
    backwards, backwards_grad = transposed_transition(transition), transposed_grad(transition_grad)
    transposed, grads = workspace
    copy_transposed(transposed, G_grad, width, width)
    for r in range(transition.columns.shape[0]):
        turned, read = correction.turned[r], correction.read[r]
        grads[:] = 0.0
        add_product(grads, read, transposed, fine, width, width)
        _fill_turns_backward(grads, turned, fine, transition.turn, transition_grad.turn)
        for k in range(width):
            transition_grad.columns[r, k] -= grads[fine - 1, k]
        grads[:] = 0.0
        add_product(grads, turned, G_grad, fine, width, width)
        fill_powers_backward(grads, read, fine, backwards, backwards_grad)
        for k in range(width):
            transition_grad.readers[r, k] += grads[0, k]
    add_transposed_turn(transition_grad, backwards_grad)
    for k in range(width):
        jump_grad[0, k] += G_grad[k, k]
        jump_grad[1, k] += G_grad[k ^ 1, k]
