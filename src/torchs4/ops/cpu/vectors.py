"""Vector instructions for numba: eight numbers at a time, written through LLVM.

numba's compiler vectorises simple loops by itself, but not the inner parts of transforms and matrix products:
it cannot know that rows of one array differ, and it does not keep sums in registers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

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
    pointer = builder.gep(array.data, [offset], source_etype=element)
    return builder.bitcast(pointer, ir.VectorType(element, LANES).as_pointer())


def load_scalar(builder: Any, element: Any, array: Any, offset: Any) -> Any:
    """One number of an array."""
    return builder.load(builder.gep(array.data, [offset], source_etype=element), align=4, typ=element)


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


def instruction(arrays: int, integers: int, emit: Callable[[Any, Any, list[Any], list[Any]], None]) -> Any:
    """An intrinsic that takes arrays of one float type and then integers, and returns nothing."""

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
    scope: dict[str, Any] = {"types": types, "codegen": codegen, "arrays": arrays, "integers": integers}
    source = (
        f"def typed(context, {', '.join(names)}):\n"
        f"    given = ({', '.join(names)},)\n"
        f"    return types.void(*given[:arrays], *(types.intp,) * integers), codegen\n"
    )
    exec(source, scope)
    return intrinsic(scope["typed"])
