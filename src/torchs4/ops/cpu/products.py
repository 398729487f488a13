"""Small matrix products of float64 numbers whose sums stay in registers.

Matrices are two-dimensional C-contiguous arrays. Their rows may be longer than what is used of them: rows
whose length is a power of two would crowd into few sets of the cache.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from torchs4.ops.cpu.compiling import compiled
from torchs4.ops.cpu.vectors import LANES, Value, instruction, load_scalar, load_vector, splat, store_vector


def _product_tile(rows: int, vectors: int) -> Any:
    """Adds `rows` × (8 · vectors) sums of `count` products each.

    Arrays: target, left, right. Integers: where the target's tile begins and the distance of its rows; where
    the left factors begin, their distance from row to row and from term to term; where the right factors
    begin, their distance from term to term; count.
    """

    def emit(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
        target, left, right = arrays
        place, row_gap, left_place, left_row, left_term, right_place, right_term, count = integers

        def index(start: Any, step: Any, times: Any) -> Any:
            return builder.add(start, builder.mul(step, times))

        def whole(number: int) -> Any:
            return ir.Constant(count.type, number)

        def target_place(row: int, vector: int) -> Any:
            return index(builder.add(place, whole(vector * LANES)), row_gap, whole(row))

        kind = ir.VectorType(element, LANES)
        sums = [[cgutils.alloca_once(builder, kind) for _ in range(vectors)] for _ in range(rows)]
        for row in range(rows):
            for vector in range(vectors):
                start = load_vector(builder, element, target, target_place(row, vector))
                builder.store(start.value, sums[row][vector])
        with cgutils.for_range(builder, count) as loop:
            begin = index(right_place, right_term, loop.index)
            terms = [
                load_vector(builder, element, right, builder.add(begin, whole(vector * LANES)))
                for vector in range(vectors)
            ]
            for row in range(rows):
                at = index(index(left_place, left_row, whole(row)), left_term, loop.index)
                factor = splat(builder, load_scalar(builder, element, left, at))
                for vector, term in enumerate(terms):
                    total = Value(builder, builder.load(sums[row][vector], typ=kind)) + factor * term
                    builder.store(total.value, sums[row][vector])
        for row in range(rows):
            for vector in range(vectors):
                total = Value(builder, builder.load(sums[row][vector], typ=kind))
                store_vector(total, element, target, target_place(row, vector))

    return instruction(3, 8, emit)


_tile_4 = _product_tile(4, 1)
_row_1, _row_4 = _product_tile(1, 1), _product_tile(1, 4)


@compiled()
def add_product(target, left, right, rows, terms, columns):
    """Target += left · right; rows come in fours, columns in eights."""
    gap, left_gap, right_gap = target.shape[1], left.shape[1], right.shape[1]
    for column in range(0, columns, LANES):
        for row in range(0, rows, 4):
            place = row * gap + column
            _tile_4(target, left, right, place, gap, row * left_gap, left_gap, 1, column, right_gap, terms)


@compiled()
def add_transposed_product(target, left, right, rows, terms, columns):
    """Target += leftᵀ · right; rows come in fours, columns in eights."""
    gap, left_gap, right_gap = target.shape[1], left.shape[1], right.shape[1]
    for column in range(0, columns, LANES):
        for row in range(0, rows, 4):
            place = row * gap + column
            _tile_4(target, left, right, place, gap, row, 1, left_gap, column, right_gap, terms)


@compiled()
def add_row_product(target, row, vector, matrix, terms, columns):
    """Target[row] += vector · matrix; columns come in eights."""
    gap, right_gap = target.shape[1], matrix.shape[1]
    column = 0
    while column + 4 * LANES <= columns:
        _row_4(target, vector, matrix, row * gap + column, gap, 0, 0, 1, column, right_gap, terms)
        column += 4 * LANES
    while column < columns:
        _row_1(target, vector, matrix, row * gap + column, gap, 0, 0, 1, column, right_gap, terms)
        column += LANES
