"""Powers of a DPLR system's transition, applied to vectors and rows or written out; forward and backward.

Everything is real: a state's modes are pairs of real and imaginary part, a row c of complex numbers, which
reads 2·Re Σ c x, becomes pairs (2·Re c, -2·Im c), and a mode a, which turns a pair (x, y) into
(Re a·x - Im a·y, Re a·y + Im a·x), is kept as two rows: (Re a, Re a), and (-Im a, Im a) for the swapped
pair. Rows are filled up with zeros to a width of whole vectors.

A power needs no squaring, because Ā = a - p q is diagonal plus low rank:

    Ā^T = a^T - Σ_{s<T} (a^(T-1-s) p) (q Ā^s)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from torchs4.ops.cpu.compiling import compiled
from torchs4.ops.cpu.products import add_product, add_transposed_product, copy_transposed
from torchs4.ops.cpu.vectors import (
    LANES,
    Value,
    horizontal_sum,
    instruction,
    load_scalar,
    load_vector,
    shuffled,
    splat,
    store_vector,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# Below this a power is as good as zero; numbers near 1e-308 would slow everything down.
_TINY = 1e-250
# Unused numbers at the end of a row, so that rows do not crowd into few sets of the cache.
GAP = LANES


def _each_vector(
    builder: Any, element: Any, count: Any, body: Callable[[Callable[..., Any], Callable[..., None]], None]
) -> None:
    """Run the body for every eight numbers of a row, with a way to read and one to write them."""
    with cgutils.for_range(builder, builder.sdiv(count, ir.Constant(count.type, LANES))) as loop:
        offset = builder.mul(loop.index, ir.Constant(count.type, LANES))

        def read(array: Any, place: Any) -> Value:
            return load_vector(builder, element, array, builder.add(place, offset))

        def write(value: Value, array: Any, place: Any) -> None:
            store_vector(value, element, array, builder.add(place, offset))

        body(read, write)


def _zero_if_tiny(value: Value) -> Value:
    builder, kind = value.builder, value.value.type
    limit = [ir.Constant(kind, [sign * _TINY] * LANES) for sign in (1, -1)]
    inside = builder.and_(
        builder.fcmp_ordered("<", value.value, limit[0]), builder.fcmp_ordered(">", value.value, limit[1])
    )
    return Value(builder, builder.select(inside, ir.Constant(kind, [0.0] * LANES), value.value))


def _emit_turn(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
    (target, source, turn), (target_place, source_place, width) = arrays, integers
    zero = ir.Constant(width.type, 0)

    def body(read: Callable[..., Any], write: Callable[..., None]) -> None:
        x = read(source, source_place)
        write(_zero_if_tiny(read(turn, zero) * x + read(turn, width) * _swapped(x)), target, target_place)

    _each_vector(builder, element, width, body)


def _emit_turn_backward(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
    source_grad, target_grad, source, turn, turn_grad = arrays
    source_place, target_place, width = integers
    zero = ir.Constant(width.type, 0)

    def body(read: Callable[..., Any], write: Callable[..., None]) -> None:
        x, grad = read(source, source_place), read(target_grad, target_place)
        write(read(turn_grad, zero) + x * grad, turn_grad, zero)
        write(read(turn_grad, width) + _swapped(x) * grad, turn_grad, width)
        back = read(turn, zero) * grad + _swapped(read(turn, width) * grad)
        write(read(source_grad, source_place) + back, source_grad, source_place)

    _each_vector(builder, element, width, body)


def _swapped(pairs: Value) -> Value:
    return shuffled(pairs, [lane ^ 1 for lane in range(LANES)])


def _emit_subtract(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
    (target, source, factors), (target_place, source_place, factor_place, width) = arrays, integers
    factor = splat(builder, load_scalar(builder, element, factors, factor_place))

    def body(read: Callable[..., Any], write: Callable[..., None]) -> None:
        write(read(target, target_place) - factor * read(source, source_place), target, target_place)

    _each_vector(builder, element, width, body)


def _emit_inner(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
    (target, x, y), (target_place, x_place, y_place, width) = arrays, integers
    kind = ir.VectorType(element, LANES)
    total = cgutils.alloca_once_value(builder, ir.Constant(kind, [0.0] * LANES))

    def body(read: Callable[..., Any], write: Callable[..., None]) -> None:
        term = read(x, x_place) * read(y, y_place)
        builder.store((Value(builder, builder.load(total, typ=kind)) + term).value, total)

    _each_vector(builder, element, width, body)
    place = builder.gep(target.data, [target_place], source_etype=element)
    builder.store(horizontal_sum(Value(builder, builder.load(total, typ=kind))), place)


# Target = turn·source. Arrays: target, source, turn; then where target and source begin, and a row's width.
_turn_row = instruction(3, 3, _emit_turn)
# Arrays: the source's and the target's gradients, source, turn, its gradient; then as before, source first.
_turn_row_backward = instruction(5, 3, _emit_turn_backward)
# Target -= factor·source. Arrays: target, source, factors; then where each begins, and a row's width.
_subtract = instruction(3, 4, _emit_subtract)
# Target = x·y. Arrays: target, x, y; then where each begins, and a row's width.
_inner = instruction(3, 4, _emit_inner)


@compiled()
def fill_powers(rows, count, turn, columns, readers):
    """rows[i + 1] = turn·rows[i] - Σ_r columns[r]·(readers[r]·rows[i]); rows[0] is there already."""
    gap, width, push = rows.shape[1], turn.shape[1], np.empty(1)
    for i in range(count - 1):
        here, after = i * gap, (i + 1) * gap
        _turn_row(rows, rows, turn, after, here, width)
        for r in range(columns.shape[0]):
            _inner(push, readers, rows, 0, r * width, here, width)
            _subtract(rows, columns, push, after, r * width, 0, width)


@compiled()
def fill_powers_backward(grads, rows, count, turn, columns, readers, turn_grad, columns_grad, readers_grad):
    """The adjoint of `fill_powers`; afterwards grads[0] belongs to rows[0]."""
    gap, width, factors = rows.shape[1], turn.shape[1], np.empty(2)
    for i in range(count - 2, -1, -1):
        here, after = i * gap, (i + 1) * gap
        _turn_row_backward(grads, grads, rows, turn, turn_grad, here, after, width)
        for r in range(columns.shape[0]):
            # How far the step was pushed, and how the gradient pulls at that.
            _inner(factors, readers, rows, 0, r * width, here, width)
            _inner(factors, columns, grads, 1, r * width, after, width)
            _subtract(grads, readers, factors, here, r * width, 1, width)
            _subtract(columns_grad, grads, factors, r * width, after, 0, width)
            _subtract(readers_grad, rows, factors, r * width, here, 1, width)


@compiled()
def _fill_turns(rows, count, turn):
    """rows[i - 1] = turn·rows[i], from the last row down."""
    gap = rows.shape[1]
    for i in range(count - 1, 0, -1):
        _turn_row(rows, rows, turn, (i - 1) * gap, i * gap, turn.shape[1])


@compiled()
def _fill_turns_backward(grads, rows, count, turn, turn_grad):
    """The adjoint of `_fill_turns`; afterwards the last row of grads belongs to the last row."""
    gap = rows.shape[1]
    for i in range(1, count):
        _turn_row_backward(grads, grads, rows, turn, turn_grad, i * gap, (i - 1) * gap, turn.shape[1])


@compiled()
def without_tiny(value):
    """The value, or zero in place of one that is as good as zero."""
    return value if abs(value) > _TINY else 0.0


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
def set_column(row, column):
    """A complex column as a real row."""
    for k in range(column.shape[0]):
        row[2 * k] = column[k].real
        row[2 * k + 1] = column[k].imag


@compiled()
def column_grad(grad, row_grad):
    """The adjoint of `set_column`."""
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
def prepare_system(decay, p, q, b, h, turn, columns, readers, first_row):
    """The feature's system in real numbers, and b as the first of its powers."""
    for k in range(decay.shape[1]):
        _set_turn(turn, k, 1.0 - decay[h, k])
    set_column(first_row, b[h])
    for r in range(p.shape[0]):
        set_column(columns[r], p[r, h])
        set_reader(readers[r], q[r, h])


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
    for k in range(turn.shape[1] // 2):
        _set_turn(jump, k, _to_power(_turn_of(turn, k), fine).conjugate())


@compiled()
def jump_backward(jump_grad, turn, fine, turn_grad):
    """The adjoint of `fill_jump`."""
    for k in range(turn.shape[1] // 2):
        # Of a^T, T·a^(T-1).
        slope = fine * _to_power(_turn_of(turn, k), fine - 1)
        total = mode_grad(jump_grad, k).conjugate() * slope.conjugate()
        turn_grad[0, 2 * k] += total.real
        turn_grad[1, 2 * k + 1] += total.imag


@compiled()
def fill_correction(fine, turn, columns, readers, turned, read):
    """What Ā^T differs from a^T by, in factors: -a^(T-1-s) p in turned[r, s], q Ā^s in read[r, s]."""
    backwards = reversed_turn(turn)
    for r in range(columns.shape[0]):
        for k in range(columns.shape[1]):
            turned[r, fine - 1, k] = -columns[r, k]
            read[r, 0, k] = readers[r, k]
        _fill_turns(turned[r], fine, turn)
        fill_powers(read[r], fine, backwards, readers, columns)


@compiled()
def fill_transition(G, fine, jump, turned, read):
    """G = Ā^T, given conj(a^T) and the factors of `fill_correction`."""
    width = jump.shape[1]
    G[:] = 0.0
    for r in range(turned.shape[0]):
        add_transposed_product(G, turned[r], read[r], width, fine, width)
    for k in range(width):
        G[k, k] += jump[0, k]
        G[k ^ 1, k] += jump[1, k]


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
    """The adjoint of `fill_transition` and `fill_correction`; with `transposed` and `grads` to work in."""
    width = turn.shape[1]
    backwards, backwards_grad = reversed_turn(turn), np.zeros((2, width))
    copy_transposed(transposed, G_grad, width, width)
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
    for k in range(width):
        turn_grad[0, k] += backwards_grad[0, k]
        turn_grad[1, k] -= backwards_grad[1, k]
        jump_grad[0, k] += G_grad[k, k]
        jump_grad[1, k] += G_grad[k ^ 1, k]
