"""One step of usual blocks: LayerNorm, DPLR system, GELU, gated mixing, residual; all blocks in one call.

The mixing reads every weight once, so it is bound by memory; around it a dozen calls of PyTorch per block
would cost more than all the arithmetic. Tensors are passed by their addresses, as in `modal_step`.

Axes: B batch, H features, N state size, R rank, M output channels.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from llvmlite import ir
from numba import carray
from numba.core import cgutils

from torchs4.ops.cpu.arrays import as_addressable
from torchs4.ops.cpu.compiling import compiled
from torchs4.ops.cpu.modal_step import step_system
from torchs4.ops.cpu.vectors import (
    LANES,
    Value,
    as_pointer,
    horizontal_sum,
    instruction,
    load_scalar,
    load_vector,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

_ROWS = 4


class PreparedBlocks:
    """The twin of reference.PreparedBlocks. Reads the weights where they lie: their changes are seen."""

    def __init__(self, blocks: Sequence[Any]) -> None:
        first = blocks[0]
        self._dtype = dtype = first.mixing_weight.dtype
        self._epsilon = first.epsilon
        (M, H, N), R = first.C.shape, first.system[1].shape[0]
        self._sizes = H, N, R, M
        # Held as long as their addresses.
        self._tensors = [
            as_addressable(name, tensor, shape, dtype)
            for block in blocks
            for name, tensor, shape in (
                ("norm_weight", block.norm_weight, (H,)),
                ("norm_bias", block.norm_bias, (H,)),
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
        addresses = np.array([tensor.data_ptr() for tensor in self._tensors], dtype=np.int64)
        self._weights = addresses.reshape(len(blocks), -1)
        self._call = _steps(dtype)

    def step(self, x: Tensor, states: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """The last block's output and every block's next state."""
        H, N, R, M = self._sizes
        B, dtype = x.shape[0], self._dtype
        x = as_addressable("x", x, (B, H), dtype)
        shape = (B, H, N)
        states = [as_addressable("state", state, shape, dtype) for state in states]
        if len(states) != len(self._weights):
            raise ValueError(f"There are {len(states)} states for {len(self._weights)} blocks.")
        out = torch.empty((B, H), dtype=dtype)
        new_states = [torch.empty(shape, dtype=dtype) for _ in states]
        places = np.array([state.data_ptr() for state in (*states, *new_states)], dtype=np.int64)
        self._call(self._weights, places, x.data_ptr(), out.data_ptr(), self._epsilon, B, H, N, R, M)
        return out, new_states


def _emit_dots(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
    """Add four dots: (target, matrix, vector; places in target and matrix, gap of rows, place, vectors)."""
    target, matrix, vector = arrays
    place, matrix_place, gap, vector_place, vectors = integers
    kind = ir.VectorType(element, LANES)
    sums = [cgutils.alloca_once(builder, kind) for _ in range(_ROWS)]
    for total in sums:
        builder.store(ir.Constant(kind, [0.0] * LANES), total)

    def whole(number: int) -> Any:
        return ir.Constant(place.type, number)

    with cgutils.for_range(builder, vectors) as loop:
        offset = builder.mul(loop.index, whole(LANES))
        x = load_vector(builder, element, vector, builder.add(vector_place, offset))
        for row, total in enumerate(sums):
            start = builder.add(matrix_place, builder.mul(gap, whole(row)))
            w = load_vector(builder, element, matrix, builder.add(start, offset))
            builder.store((Value(builder, builder.load(total, typ=kind)) + w * x).value, total)
    for row, total in enumerate(sums):
        at = builder.add(place, whole(row))
        dot = horizontal_sum(Value(builder, builder.load(total, typ=kind)))
        result = builder.fadd(load_scalar(builder, element, target, at), dot)
        builder.store(result, builder.gep(target.data, [at], source_etype=element))


_four_dots = instruction(3, 5, _emit_dots)


@compiled()
def _normalise(x, weight, bias, epsilon, out):
    count = x.shape[0]
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
    """Mixed += weight · active."""
    inputs = active.shape[0]
    whole = inputs // LANES * LANES
    fours = mixed.shape[0] // _ROWS * _ROWS
    for row in range(0, fours, _ROWS):
        _four_dots(mixed, weight, active, row, row * inputs, inputs, 0, whole // LANES)
        for column in range(whole, inputs):
            for r in range(row, row + _ROWS):
                mixed[r] += weight[r, column] * active[column]
    for row in range(fours, mixed.shape[0]):
        for column in range(inputs):
            mixed[row] += weight[row, column] * active[column]


@lru_cache(maxsize=2)
def _steps(dtype: torch.dtype) -> Callable[..., None]:
    number = np.float64 if dtype == torch.float64 else np.float32

    # One thread: waking a second one would take as long as it could save.
    @compiled()
    def steps(weights, places, x, out, epsilon, B, H, N, R, M):
        x, out = carray(as_pointer(x), (B, H), number), carray(as_pointer(out), (B, H), number)
        u, y = np.empty((B, H), number), np.empty((B, M, H), number)
        active, mixed = np.empty(M * H, number), np.empty(2 * H, number)
        for batch in range(B):
            for h in range(H):
                out[batch, h] = x[batch, h]
        count = len(weights)
        for block in range(count):
            norm_weight = carray(as_pointer(weights[block, 0]), (H,), number)
            norm_bias = carray(as_pointer(weights[block, 1]), (H,), number)
            a = carray(as_pointer(weights[block, 2]), (H, N), number)
            p = carray(as_pointer(weights[block, 3]), (R, H, N), number)
            q = carray(as_pointer(weights[block, 4]), (R, H, N), number)
            b = carray(as_pointer(weights[block, 5]), (H, N), number)
            C = carray(as_pointer(weights[block, 6]), (M, H, N), number)
            D = carray(as_pointer(weights[block, 7]), (M, H), number)
            weight = carray(as_pointer(weights[block, 8]), (2 * H, M * H), number)
            bias = carray(as_pointer(weights[block, 9]), (2 * H,), number)
            state = carray(as_pointer(places[block]), (B, H, N), number)
            new_state = carray(as_pointer(places[count + block]), (B, H, N), number)
            for batch in range(B):
                _normalise(out[batch], norm_weight, norm_bias, epsilon, u[batch])
            step_system(a, p, q, b, C, D, u, state, y, new_state)
            for batch in range(B):
                for m in range(M):
                    for h in range(H):
                        value = y[batch, m, h]
                        active[m * H + h] = 0.5 * value * (1.0 + math.erf(value * math.sqrt(0.5)))
                for h in range(2 * H):
                    mixed[h] = bias[h]
                _mix(active, weight, mixed)
                for h in range(H):
                    out[batch, h] += mixed[h] / (1.0 + math.exp(-mixed[H + h]))

    return steps
