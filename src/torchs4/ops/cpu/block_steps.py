"""One step of usual blocks: norm, DPLR system, GELU, gated mixing, residual; all blocks in one call.

The mixing reads every weight once, so it is bound by memory; around it a dozen calls of PyTorch per block
would cost more than all the arithmetic. Tensors are passed by their addresses, as in `modal_step`. Where many
sequences meet many features it is the other way round: then a library's product is worth the calls.

Axes: B batch, H features, N state size, R rank, M output channels.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from llvmlite import ir
from numba import carray
from numba.core import cgutils

from torchs4.ops.cpu.arrays import as_addressable, number_type, require_same_type
from torchs4.ops.cpu.compiling import compiled, compiled_entry
from torchs4.ops.cpu.gating import gated_residual
from torchs4.ops.cpu.modal_step import modal_step, step_system
from torchs4.ops.cpu.sharing import shared
from torchs4.ops.cpu.vectors import (
    LANES,
    Value,
    as_pointer,
    horizontal_sum,
    instruction,
    load_scalar,
    load_vector,
    store_scalar,
)
from torchs4.ops.cpu.workspaces import empty
from torchs4.ops.plain_blocks import PlainBlocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

# Rows of the mixing in work at a time.
_ROWS = 4
# Sequences that one thread takes at least.
_FEW = 4


# Multiplications of a block's mixing from which on a library's product is faster.
_MANY_PRODUCTS = 2**23


class _WideBlocks(PlainBlocks):
    """Blocks whose mixing is a product of large matrices."""

    modal_step = staticmethod(modal_step)
    gated_residual = staticmethod(gated_residual)


class _Blocks(NamedTuple):
    """Where norms and weights of every block lie, a row for each; one norm more may follow the last block."""

    norms: NDArray[np.int64]
    epsilons: NDArray[np.float64]
    weights: NDArray[np.int64]


class _Sizes(NamedTuple):
    """Batch, features, state size, rank, output channels."""

    B: int
    H: int
    N: int
    R: int
    M: int


class PreparedBlocks:
    """The twin of reference.PreparedBlocks. Reads the weights where they lie: their changes are seen."""

    def __init__(self, blocks: Sequence[Any], final_norm: Any = None) -> None:
        first = blocks[0]
        self._number = number_type("mixing_weight", first.mixing_weight)
        self._dtype = dtype = first.mixing_weight.dtype
        norms = [block.norm for block in blocks] + ([] if final_norm is None else [final_norm])
        (M, H, N), R = first.C.shape, first.system[1].shape[0]
        self._sizes = H, N, R, M
        norm_parts = [
            None if tensor is None else as_addressable(f"norm_{name}", tensor, (H,), dtype)
            for norm in norms
            for name, tensor in (
                ("weight", norm.weight),
                ("bias", norm.bias),
                ("mean", norm.mean),
                ("variance", norm.variance),
            )
        ]
        block_parts = [
            as_addressable(name, tensor, shape, dtype)
            for block in blocks
            for name, tensor, shape in (
                ("a", block.system[0], (H, N // 2, 2)),
                ("p", block.system[1], (R, H, N)),
                ("q", block.system[2], (R, H, N)),
                ("b", block.system[3], (H, N)),
                ("C", block.C, (M, H, N)),
                ("D", block.D, (M, H)),
                ("mixing_weight", block.mixing_weight, (2 * H, M * H)),
                ("mixing_bias", block.mixing_bias, (2 * H,)),
            )
        ]
        self._wide = _WideBlocks(blocks, final_norm)
        # Held as long as their addresses.
        self._tensors = norm_parts, block_parts
        self._blocks = _Blocks(
            _addresses(norm_parts).reshape(len(norms), -1),
            np.array([norm.epsilon for norm in norms], dtype=np.float64),
            _addresses(block_parts).reshape(len(blocks), -1),
        )

    def step(self, x: Tensor, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """What comes out after the last block, and every block's next state."""
        H, N, _, M = self._sizes
        B, dtype = x.shape[0], self._dtype
        for name, tensor in (("x", x), *(("state", state) for state in states)):
            require_same_type(name, tensor, dtype)
        x = as_addressable("x", x, (B, H), dtype)
        shape = (B, H, N)
        states = [as_addressable("state", state, shape, dtype) for state in states]
        count = len(self._blocks.weights)
        if len(states) != count:
            raise ValueError(f"There are {len(states)} states for {count} blocks.")
        if B * 2 * H * M * H >= _MANY_PRODUCTS:
            return self._wide.step(x, states)
        out = torch.empty((B, H), dtype=dtype)
        new_states = [torch.empty(shape, dtype=dtype) for _ in states]
        places = _addresses([*states, *new_states])
        # Waking a second thread would take as long as it could save on few sequences.
        tasks = min(torch.get_num_threads(), B // _FEW)
        sizes = _Sizes(B, *self._sizes)
        given = self._blocks, places, x.data_ptr(), out.data_ptr(), self._number, sizes
        if tasks > 1:
            _step_together(tasks, *given, tasks)
        else:
            _step_some(*given, 0, B)
        return out, new_states


def _addresses(tensors: Sequence[Tensor | None]) -> NDArray[np.int64]:
    """Where tensors lie; those that are not there lie nowhere, at 0."""
    return np.array([0 if x is None else x.data_ptr() for x in tensors], dtype=np.int64)


def _dots(sequences: int) -> Any:
    """Adds the dots of four rows of a matrix with some vectors.

    Arrays: target, matrix, vectors. Integers: where the target begins, and the distance of its rows, one for
    each vector; where the matrix's rows begin, and their distance; where the vectors begin, and theirs; how
    many times eight numbers they have.
    """

    def emit(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
        target, matrix, vectors = arrays
        place, target_gap, matrix_place, gap, vector_place, vector_gap, count = integers
        kind = ir.VectorType(element, LANES)
        zero = ir.Constant(kind, [0.0] * LANES)
        sums = [[cgutils.alloca_once_value(builder, zero) for _ in range(_ROWS)] for _ in range(sequences)]
        for total in (total for row_sums in sums for total in row_sums):
            # Allocated once per function, so the instruction has to clear it.
            builder.store(zero, total)

        def at(start: Any, distance: Any, times: int) -> Any:
            return builder.add(start, builder.mul(distance, ir.Constant(place.type, times)))

        with cgutils.for_range(builder, count) as loop:
            offset = builder.mul(loop.index, ir.Constant(place.type, LANES))
            xs = [
                load_vector(builder, element, vectors, builder.add(at(vector_place, vector_gap, s), offset))
                for s in range(sequences)
            ]
            for row in range(_ROWS):
                w = load_vector(builder, element, matrix, builder.add(at(matrix_place, gap, row), offset))
                for x, row_sums in zip(xs, sums, strict=True):
                    total = Value(builder, builder.load(row_sums[row], typ=kind)) + w * x
                    builder.store(total.value, row_sums[row])
        for s, row_sums in enumerate(sums):
            for row, total in enumerate(row_sums):
                where = builder.add(at(place, target_gap, s), ir.Constant(place.type, row))
                dot = horizontal_sum(Value(builder, builder.load(total, typ=kind)))
                result = builder.fadd(load_scalar(builder, element, target, where), dot)
                store_scalar(builder, result, element, target, where)

    return instruction(3, 7, emit)


_dots_of_one, _dots_of_two = _dots(1), _dots(2)


@compiled()
def _normalise(x, parts, epsilon, number, out):
    """LayerNorm, or BatchNorm where the parts have a mean and a variance; out may be x."""
    count = x.shape[0]
    weight = carray(as_pointer(parts[0]), (count,), number)
    bias = carray(as_pointer(parts[1]), (count,), number)
    if parts[2] != 0 and parts[3] != 0:
        means = carray(as_pointer(parts[2]), (count,), number)
        variances = carray(as_pointer(parts[3]), (count,), number)
        for i in range(count):
            out[i] = (x[i] - means[i]) / np.sqrt(variances[i] + epsilon) * weight[i] + bias[i]
        return
    mean, square = 0.0, 0.0
    for i in range(count):
        mean += x[i]
    mean /= count
    for i in range(count):
        square += (x[i] - mean) * (x[i] - mean)
    scale = 1.0 / math.sqrt(square / count + epsilon)
    for i in range(count):
        out[i] = (x[i] - mean) * scale * weight[i] + bias[i]


@compiled()
def _mix(active, weight, mixed):
    """Mixed += active · weightᵀ, every row of the weight read once for all sequences."""
    sequences, inputs = active.shape
    outputs = mixed.shape[1]
    whole = inputs // LANES * LANES
    fours, pairs = outputs // _ROWS * _ROWS, sequences // 2 * 2
    for row in range(0, fours, _ROWS):
        at = row * inputs
        for s in range(0, pairs, 2):
            place = s * outputs + row
            _dots_of_two(
                mixed, weight, active, place, outputs, at, inputs, s * inputs, inputs, whole // LANES
            )
        if pairs < sequences:
            place = pairs * outputs + row
            _dots_of_one(
                mixed, weight, active, place, outputs, at, inputs, pairs * inputs, inputs, whole // LANES
            )
    for s in range(sequences):
        for row in range(outputs):
            for column in range(whole if row < fours else 0, inputs):
                mixed[s, row] += weight[row, column] * active[s, column]


@compiled_entry()
def _step_some(blocks, places, x, out, number, sizes, first, last):
    """The sequences from first to last through all blocks and a norm after them, if there is one more."""
    norms, epsilons, weights = blocks
    B, H, N, R, M = sizes
    few = last - first
    x, out = carray(as_pointer(x), (B, H), number), carray(as_pointer(out), (B, H), number)
    u, y = empty((few, H), number), empty((few, M, H), number)
    active, mixed = empty((few, M * H), number), empty((few, 2 * H), number)
    for batch in range(first, last):
        for h in range(H):
            out[batch, h] = x[batch, h]
    count = len(weights)
    for block in range(count):
        a = carray(as_pointer(weights[block, 0]), (H, N), number)
        p = carray(as_pointer(weights[block, 1]), (R, H, N), number)
        q = carray(as_pointer(weights[block, 2]), (R, H, N), number)
        b = carray(as_pointer(weights[block, 3]), (H, N), number)
        C = carray(as_pointer(weights[block, 4]), (M, H, N), number)
        D = carray(as_pointer(weights[block, 5]), (M, H), number)
        weight = carray(as_pointer(weights[block, 6]), (2 * H, M * H), number)
        bias = carray(as_pointer(weights[block, 7]), (2 * H,), number)
        state = carray(as_pointer(places[block]), (B, H, N), number)
        new_state = carray(as_pointer(places[count + block]), (B, H, N), number)
        for s in range(few):
            _normalise(out[first + s], norms[block], epsilons[block], number, u[s])
        step_system(a, p, q, b, C, D, u, state[first:last], y, new_state[first:last], 0, H)
        for s in range(few):
            for m in range(M):
                for h in range(H):
                    value = y[s, m, h]
                    active[s, m * H + h] = 0.5 * value * (1.0 + math.erf(value * math.sqrt(0.5)))
            for h in range(2 * H):
                mixed[s, h] = bias[h]
        _mix(active, weight, mixed)
        for s in range(few):
            for h in range(H):
                out[first + s, h] += mixed[s, h] / (1.0 + math.exp(-mixed[s, H + h]))
    if len(norms) > count:
        for batch in range(first, last):
            _normalise(out[batch], norms[count], epsilons[count], number, out[batch])


@shared
def _step_together(task, blocks, places, x, out, number, sizes, tasks):
    first, last = task * sizes.B // tasks, (task + 1) * sizes.B // tasks
    _step_some(blocks, places, x, out, number, sizes, first, last)
