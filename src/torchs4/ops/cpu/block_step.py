"""One step of a whole usual block: LayerNorm, DPLR system, GELU, gated mixing and residual in one call.

The mixing reads every weight once, so it is bound by memory; around it a dozen calls of PyTorch would cost
more than all the arithmetic. Tensors are passed by their addresses, as in `modal_step`.

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
    from collections.abc import Callable

    from torch import Tensor

_ROWS = 4


def block_step(
    x: Tensor,
    norm_weight: Tensor,
    norm_bias: Tensor,
    epsilon: float,
    system: tuple[Tensor, Tensor, Tensor, Tensor],
    C: Tensor,
    D: Tensor,
    mixing_weight: Tensor,
    mixing_bias: Tensor,
    state: Tensor,
) -> tuple[Tensor, Tensor]:
    """The twin of reference.block_step."""
    B, H, N = state.shape
    out, new_state = torch.empty((B, H), dtype=x.dtype), torch.empty((B, H, N), dtype=x.dtype)
    a, p, q, b = system
    M, R = C.shape[0], p.shape[0]
    # Held until the call is over: what was converted would otherwise be freed under its address.
    tensors = [
        as_addressable(name, tensor, shape, x.dtype)
        for name, tensor, shape in (
            ("x", x, (B, H)),
            ("norm_weight", norm_weight, (H,)),
            ("norm_bias", norm_bias, (H,)),
            ("a", a, (H, N // 2, 2)),
            ("p", p, (R, H, N)),
            ("q", q, (R, H, N)),
            ("b", b, (H, N)),
            ("C", C, (M, H, N)),
            ("D", D, (M, H)),
            ("mixing_weight", mixing_weight, (2 * H, M * H)),
            ("mixing_bias", mixing_bias, (2 * H,)),
            ("state", state, (B, H, N)),
        )
    ]
    addresses = [tensor.data_ptr() for tensor in (*tensors, out, new_state)]
    _step(x.dtype)(*addresses, epsilon, B, H, N, R, M)
    return out, new_state


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
def _step(dtype: torch.dtype) -> Callable[..., None]:
    number = np.float64 if dtype == torch.float64 else np.float32

    # One thread: waking a second one would take as long as it could save.
    @compiled()
    def step(
        x,
        norm_weight,
        norm_bias,
        a,
        p,
        q,
        b,
        C,
        D,
        weight,
        bias,
        state,
        out,
        new_state,
        epsilon,
        B,
        H,
        N,
        R,
        M,
    ):
        x, out = carray(as_pointer(x), (B, H), number), carray(as_pointer(out), (B, H), number)
        norm_weight = carray(as_pointer(norm_weight), (H,), number)
        norm_bias = carray(as_pointer(norm_bias), (H,), number)
        a, b = carray(as_pointer(a), (H, N), number), carray(as_pointer(b), (H, N), number)
        p, q = carray(as_pointer(p), (R, H, N), number), carray(as_pointer(q), (R, H, N), number)
        C, D = carray(as_pointer(C), (M, H, N), number), carray(as_pointer(D), (M, H), number)
        weight = carray(as_pointer(weight), (2 * H, M * H), number)
        bias = carray(as_pointer(bias), (2 * H,), number)
        state = carray(as_pointer(state), (B, H, N), number)
        new_state = carray(as_pointer(new_state), (B, H, N), number)
        u, y = np.empty((B, H), number), np.empty((B, M, H), number)
        active, mixed = np.empty(M * H, number), np.empty(2 * H, number)
        for batch in range(B):
            _normalise(x[batch], norm_weight, norm_bias, epsilon, u[batch])
        step_system(a, p, q, b, C, D, u, state, y, new_state)
        for batch in range(B):
            for m in range(M):
                for h in range(H):
                    value = y[batch, m, h]
                    active[m * H + h] = 0.5 * value * (1.0 + math.erf(value * math.sqrt(0.5)))
            mixed[:] = bias
            _mix(active, weight, mixed)
            for h in range(H):
                out[batch, h] = x[batch, h] + mixed[h] / (1.0 + math.exp(-mixed[H + h]))

    return step
