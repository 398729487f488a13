"""Vector instructions for numba: eight numbers at a time, written through LLVM.

numba's compiler vectorises simple loops by itself, but not the inner parts of transforms and matrix products:
it cannot know that rows of one array differ, and it does not keep sums in registers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import TypingError
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

from torchs4.ops.cpu.debugging import check_places

if TYPE_CHECKING:
    from collections.abc import Callable

LANES = 8

# Products and sums may be fused into one instruction.
_FLAGS = ("contract", "nsz")


class Value:
    """A vector of eight floats in the program that is being written."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder = builder
        self.value = value

    def __add__(self, other: Value) -> Value:
        return Value(self.builder, self.builder.fadd(self.value, other.value, flags=_FLAGS))

    def __sub__(self, other: Value) -> Value:
        return Value(self.builder, self.builder.fsub(self.value, other.value, flags=_FLAGS))

    def __mul__(self, other: Value | float) -> Value:
        if not isinstance(other, Value):
            other = Value(self.builder, ir.Constant(self.value.type, [float(other)] * LANES))
        return Value(self.builder, self.builder.fmul(self.value, other.value, flags=_FLAGS))

    def __neg__(self) -> Value:
        return Value(self.builder, self.builder.fneg(self.value, flags=_FLAGS))


def vector_pointer(builder: Any, element: Any, array: Any, offset: Any) -> Any:
    """Where eight numbers of an array begin; the offset counts numbers."""
    check_places(builder, array, offset, LANES)
    pointer = builder.gep(array.data, [offset], source_etype=element)
    return builder.bitcast(pointer, ir.VectorType(element, LANES).as_pointer())


def load_scalar(builder: Any, element: Any, array: Any, offset: Any) -> Any:
    """One number of an array."""
    return builder.load(_scalar_pointer(builder, element, array, offset), align=4, typ=element)


def store_scalar(builder: Any, value: Any, element: Any, array: Any, offset: Any) -> None:
    """Write one number into an array."""
    builder.store(value, _scalar_pointer(builder, element, array, offset))


def _scalar_pointer(builder: Any, element: Any, array: Any, offset: Any) -> Any:
    check_places(builder, array, offset, 1)
    return builder.gep(array.data, [offset], source_etype=element)


def load_vector(builder: Any, element: Any, array: Any, offset: Any) -> Value:
    """Eight numbers of an array, from wherever they begin."""
    pointer = vector_pointer(builder, element, array, offset)
    return Value(builder, builder.load(pointer, align=4, typ=ir.VectorType(element, LANES)))


def store_vector(value: Value, element: Any, array: Any, offset: Any) -> None:
    """Write eight numbers into an array."""
    builder = value.builder
    builder.store(value.value, vector_pointer(builder, element, array, offset), align=4)


def splat(builder: Any, scalar: Any) -> Value:
    """The same number eight times."""
    undefined = ir.Constant(ir.VectorType(scalar.type, LANES), ir.Undefined)
    vector = builder.insert_element(undefined, scalar, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return Value(builder, builder.shuffle_vector(vector, vector, mask))


def shuffled(value: Value, order: list[int]) -> Value:
    """Lane i gets what lane order[i] had."""
    mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), order)
    return Value(value.builder, value.builder.shuffle_vector(value.value, value.value, mask))


def _transposed(rows: list[Value]) -> list[Value]:
    """Eight vectors as the rows of a matrix, turned into its columns."""
    builder = rows[0].builder
    for distance in (4, 2, 1):
        # Rows and lanes whose numbers differ in one bit change places across the diagonal.
        lanes = range(LANES)
        lower = [lane if not lane & distance else LANES + lane - distance for lane in lanes]
        upper = [lane + distance if not lane & distance else LANES + lane for lane in lanes]
        masks = [ir.Constant(ir.VectorType(ir.IntType(32), LANES), order) for order in (lower, upper)]
        turned = list(rows)
        for i in lanes:
            if not i & distance:
                first, second = rows[i].value, rows[i + distance].value
                turned[i] = Value(builder, builder.shuffle_vector(first, second, masks[0]))
                turned[i + distance] = Value(builder, builder.shuffle_vector(first, second, masks[1]))
        rows = turned
    return rows


def _emit_transpose(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
    target, source = arrays
    target_place, target_gap, source_place, source_gap = integers

    def place(start: Any, gap: Any, row: int) -> Any:
        return builder.add(start, builder.mul(gap, ir.Constant(gap.type, row)))

    rows = [load_vector(builder, element, source, place(source_place, source_gap, i)) for i in range(LANES)]
    for i, row in enumerate(_transposed(rows)):
        store_vector(row, element, target, place(target_place, target_gap, i))


def horizontal_sum(value: Value) -> Any:
    """The sum of all lanes, as a scalar."""
    for distance in (4, 2, 1):
        value = value + shuffled(value, [(lane + distance) % LANES for lane in range(LANES)])
    return value.builder.extract_element(value.value, ir.Constant(ir.IntType(32), 0))


@intrinsic
def as_pointer(context: Any, address: Any) -> Any:
    """A whole number as the address that it is."""

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), codegen


def instruction(arrays: int, integers: int, emit: Callable[[Any, Any, list[Any], list[Any]], None]) -> Any:
    """An intrinsic that takes arrays of one float type and then integers, and returns nothing."""

    def signature_of(given: tuple[Any, ...]) -> Any:
        kinds = {kind.dtype for kind in given[:arrays]}
        if len(kinds) > 1:
            # Read as numbers of the first array's type, the others would be garbage.
            raise TypingError(f"An instruction takes arrays of one type of numbers, not of {kinds}.")
        return types.void(*given[:arrays], *(types.intp,) * integers)

    def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        places = [
            make_array(kind)(context, builder, value)
            for kind, value in zip(signature.args[:arrays], arguments[:arrays], strict=True)
        ]
        element = context.get_value_type(signature.args[0].dtype)
        emit(builder, element, places, list(arguments[arrays:]))
        return context.get_dummy_value()

    # numba reads an intrinsic's signature from its parameters, so they are spelled out for each count.
    names = [f"a{i}" for i in range(arrays + integers)]
    scope: dict[str, Any] = {"signature_of": signature_of, "codegen": codegen}
    source = (
        f"def typed(context, {', '.join(names)}):\n    return signature_of(({', '.join(names)},)), codegen\n"
    )
    exec(source, scope)
    return intrinsic(scope["typed"])


def exponential(x: Value) -> Value:
    """exp(x), held at the borders of the number range; near zero exact to the last digit. NaN stays NaN."""
    builder, kind = x.builder, x.value.type
    wide = isinstance(kind.element, ir.DoubleType)
    mantissa, bias, border, degree = (52, 1023, 708.0, 13) if wide else (23, 127, 87.0, 7)

    def constant(number: float) -> Value:
        return Value(builder, ir.Constant(kind, [number] * LANES))

    for sign, comparison in ((1.0, ">"), (-1.0, "<")):
        # NaN compares false, so it passes.
        beyond = builder.fcmp_ordered(comparison, x.value, constant(sign * border).value)
        x = Value(builder, builder.select(beyond, constant(sign * border).value, x.value))
    # exp(x) = 2^k·exp(r) with x = k·ln 2 + r.
    rounding = cgutils.get_or_insert_function(
        builder.module, ir.FunctionType(kind, [kind]), f"llvm.rint.v{LANES}f{64 if wide else 32}"
    )
    k = Value(builder, builder.call(rounding, [(x * (1 / math.log(2))).value]))
    r = x - k * math.log(2)
    result = constant(1 / math.factorial(degree))
    for power in range(degree - 1, -1, -1):
        result = result * r + constant(1 / math.factorial(power))
    # Conversion to 32 bits first: older processors have none to 64.
    exponent = builder.fptosi(k.value, ir.VectorType(ir.IntType(32), LANES))
    integers = ir.VectorType(ir.IntType(64 if wide else 32), LANES)
    if wide:
        exponent = builder.sext(exponent, integers)
    exponent = builder.add(exponent, ir.Constant(integers, [bias] * LANES))
    scale = builder.shl(exponent, ir.Constant(integers, [mantissa] * LANES))
    return result * Value(builder, builder.bitcast(scale, kind))


def sigmoid(x: Value) -> Value:
    """1 / (1 + exp(-x))."""
    one = Value(x.builder, ir.Constant(x.value.type, [1.0] * LANES))
    return Value(x.builder, x.builder.fdiv(one.value, (one + exponential(-x)).value))


# Eight rows of eight numbers become columns. Arrays: target, source; of each, where the tile begins and the
# distance of its rows.
transpose_tile = instruction(2, 4, _emit_transpose)
