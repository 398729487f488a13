"""Instructions on rows of pairs, as `modal_powers` keeps them: turn, subtract, inner product.

A row holds real and imaginary parts in turn and is a whole number of vectors wide.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba.core import cgutils

from torchs4.ops.cpu.vectors import (
    LANES,
    Value,
    horizontal_sum,
    instruction,
    load_scalar,
    load_vector,
    shuffled,
    splat,
    store_scalar,
    store_vector,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# Below this a power is as good as zero; numbers near 1e-308 would slow everything down.
TINY = 1e-250


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
    limit = [ir.Constant(kind, [sign * TINY] * LANES) for sign in (1, -1)]
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
    product = horizontal_sum(Value(builder, builder.load(total, typ=kind)))
    store_scalar(builder, product, element, target, target_place)


# Target = turn·source. Arrays: target, source, turn; then where target and source begin, and a row's width.
turn_row = instruction(3, 3, _emit_turn)
# Arrays: the source's and the target's gradients, source, turn, its gradient; then as before, source first.
turn_row_backward = instruction(5, 3, _emit_turn_backward)
# Target -= factor·source. Arrays: target, source, factors; then where each begins, and a row's width.
subtract = instruction(3, 4, _emit_subtract)
# Target = x·y. Arrays: target, x, y; then where each begins, and a row's width.
inner_product = instruction(3, 4, _emit_inner)
