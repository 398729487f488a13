"""Small matrix products whose sums stay in registers.

Matrices are two-dimensional C-contiguous arrays. Their rows may be longer than what is used of them: rows
whose length is a power of two would crowd into few sets of the cache.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from torchs4.ops.cpu.compiling import compiled
from torchs4.ops.cpu.vectors import (
    LANES,
    Value,
    instruction,
    load_scalar,
    load_vector,
    splat,
    store_vector,
    transpose_tile,
)


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


# Four rows of sixteen float32 numbers, or of eight float64 numbers, fill the registers with sums.
_tile_4, _tile_4_wide = _product_tile(4, 1), _product_tile(4, 2)
_row_1, _row_4 = _product_tile(1, 1), _product_tile(1, 4)
_pair_1, _pair_4 = _product_tile(2, 1), _product_tile(2, 4)


@compiled()
def _add_strided_product(target, left, right, rows, terms, columns, left_row, left_term):
    """Target += left · right, where the left factor's rows and terms may be any distance apart."""
    gap, right_gap = target.shape[1], right.shape[1]
    whole, column = rows // 4 * 4, 0
    if target.itemsize == 4:
        while column + 2 * LANES <= columns:
            for row in range(0, whole, 4):
                place, begin = row * gap + column, row * left_row
                _tile_4_wide(
                    target, left, right, place, gap, begin, left_row, left_term, column, right_gap, terms
                )
            column += 2 * LANES
    while column < columns:
        for row in range(0, whole, 4):
            place, begin = row * gap + column, row * left_row
            _tile_4(target, left, right, place, gap, begin, left_row, left_term, column, right_gap, terms)
        column += LANES
    row = whole
    if row + 2 <= rows:
        place, begin, column = row * gap, row * left_row, 0
        while column + 4 * LANES <= columns:
            _pair_4(
                target, left, right, place + column, gap, begin, left_row, left_term, column, right_gap, terms
            )
            column += 4 * LANES
        while column < columns:
            _pair_1(
                target, left, right, place + column, gap, begin, left_row, left_term, column, right_gap, terms
            )
            column += LANES
        row += 2
    if row < rows:
        place, begin, column = row * gap, row * left_row, 0
        while column + 4 * LANES <= columns:
            _row_4(
                target, left, right, place + column, gap, begin, left_row, left_term, column, right_gap, terms
            )
            column += 4 * LANES
        while column < columns:
            _row_1(
                target, left, right, place + column, gap, begin, left_row, left_term, column, right_gap, terms
            )
            column += LANES


@compiled()
def add_product(target, left, right, rows, terms, columns):
    """Target += left · right; columns come in eights."""
    _add_strided_product(target, left, right, rows, terms, columns, left.shape[1], 1)


@compiled()
def add_transposed_product(target, left, right, rows, terms, columns):
    """Target += leftᵀ · right; columns come in eights."""
    _add_strided_product(target, left, right, rows, terms, columns, 1, left.shape[1])


@compiled()
def add_toeplitz_product(target, left, response, rows, terms, columns):
    """Target[r, i] += Σ_{k≤i} left[r, k] response[terms + i - k]; columns in eights, zeros before `terms`."""
    _add_triangular_product(target, left, response, rows, terms, columns, True)


@compiled()
def add_transposed_toeplitz_product(target, left, response, rows, terms, columns):
    """Target[r, k] += Σ_{i≥k} left[r, i] response[terms + k - i]; columns in eights, zeros after `terms`."""
    _add_triangular_product(target, left, response, rows, terms, columns, False)


@compiled()
def _add_triangular_product(target, left, response, rows, terms, columns, is_upper):
    """A Toeplitz matrix is not written out: each of its rows is the one before, read from a place earlier."""
    gap, left_gap = target.shape[1], left.shape[1]
    whole, column = rows // 4 * 4, 0
    while column < columns:
        wide = target.itemsize == 4 and column + 2 * LANES <= columns
        step = 2 * LANES if wide else LANES
        # What lies beyond the diagonal is left out, but for a few zeros.
        skipped, at = (0, terms + column) if is_upper else (column, terms)
        count = min(terms, column + step) if is_upper else terms - column
        for row in range(0, whole, 4):
            place, begin = row * gap + column, row * left_gap + skipped
            if wide:
                _tile_4_wide(target, left, response, place, gap, begin, left_gap, 1, at, -1, count)
            else:
                _tile_4(target, left, response, place, gap, begin, left_gap, 1, at, -1, count)
        for row in range(whole, rows):
            begin = row * left_gap + skipped
            for shift in range(0, step, LANES):
                place = row * gap + column + shift
                _row_1(target, left, response, place, gap, begin, left_gap, 1, at + shift, -1, count)
        column += step


@compiled()
def add_upper_transposed_product(target, left, right, terms, columns):
    """The upper triangle of target += leftᵀ · right; what lies below it may stay unfinished."""
    gap, left_gap, right_gap = target.shape[1], left.shape[1], right.shape[1]
    column = 0
    while column < columns:
        wide = target.itemsize == 4 and column + 2 * LANES <= columns
        step = 2 * LANES if wide else LANES
        for row in range(0, column + step, 4):
            place = row * gap + column
            if wide:
                _tile_4_wide(target, left, right, place, gap, row, 1, left_gap, column, right_gap, terms)
            else:
                _tile_4(target, left, right, place, gap, row, 1, left_gap, column, right_gap, terms)
        column += step


@compiled()
def copy_matrix(target, source, rows, columns):
    """Target[i, j] = source[i, j], between arrays of any type and width."""
    for i in range(rows):
        for j in range(columns):
            target[i, j] = source[i, j]


@compiled()
def copy_transposed(target, source, rows, columns):
    """Target[j, i] = source[i, j]."""
    gap, source_gap = target.shape[1], source.shape[1]
    tiled, wide = rows // LANES * LANES, columns // LANES * LANES
    for i in range(0, tiled, LANES):
        for j in range(0, wide, LANES):
            transpose_tile(target, source, j * gap + i, gap, i * source_gap + j, source_gap)
    for i in range(rows):
        for j in range(wide if i < tiled else 0, columns):
            target[j, i] = source[i, j]
