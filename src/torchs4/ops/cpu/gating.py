"""The end of a block in one pass each way: bias, gated linear unit, tied dropout and residual.

Rows are positions; a row of the mixed features holds H values and then H gates. Each sequence has H scales,
which dropout draws; without it there is one row of ones for all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from llvmlite import ir
from torch import Tensor

from torchs4.ops.cpu.arrays import as_array, as_bits, as_rows
from torchs4.ops.cpu.compiling import compiled
from torchs4.ops.cpu.sharing import shared
from torchs4.ops.cpu.vectors import LANES, Value, instruction, load_vector, sigmoid, store_vector
from torchs4.ops.cpu.workspaces import empty

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Rows per task: enough to be worth a task, few enough to share the work evenly.
_ROWS = 64
# In bfloat16.
_NOT_A_NUMBER = 0x7FC0


def _emit_gate(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
    """(out, mixed, bias, residual, scale, starts in out, mixed and scale, column, H): eight outputs."""
    out, mixed, bias, residual, scale = arrays
    place, mixed_place, scale_place, column, features = integers
    gate_column = builder.add(column, features)
    value = load_vector(builder, element, mixed, builder.add(mixed_place, column))
    gate = load_vector(builder, element, mixed, builder.add(mixed_place, gate_column))
    value = value + load_vector(builder, element, bias, column)
    gate = gate + load_vector(builder, element, bias, gate_column)
    value = value * load_vector(builder, element, scale, builder.add(scale_place, column))
    at = builder.add(place, column)
    store_vector(load_vector(builder, element, residual, at) + value * sigmoid(gate), element, out, at)


def _emit_gate_backward(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
    """(mixed grad, bias grad, grad, mixed, bias, scale, starts in grad, mixed and scale, column, H)."""
    mixed_grad, bias_grad, grad, mixed, bias, scale = arrays
    place, mixed_place, scale_place, column, features = integers
    gate_column = builder.add(column, features)
    value = load_vector(builder, element, mixed, builder.add(mixed_place, column))
    gate = load_vector(builder, element, mixed, builder.add(mixed_place, gate_column))
    value = value + load_vector(builder, element, bias, column)
    gate = sigmoid(gate + load_vector(builder, element, bias, gate_column))
    one = Value(builder, ir.Constant(gate.value.type, [1.0] * LANES))
    value_grad = load_vector(builder, element, grad, builder.add(place, column)) * gate
    value_grad = value_grad * load_vector(builder, element, scale, builder.add(scale_place, column))
    gate_grad = value_grad * value * (one - gate)
    for gradient, at in ((value_grad, column), (gate_grad, gate_column)):
        store_vector(gradient, element, mixed_grad, builder.add(mixed_place, at))
        store_vector(load_vector(builder, element, bias_grad, at) + gradient, element, bias_grad, at)


_gate = instruction(5, 5, _emit_gate)
_gate_backward = instruction(6, 5, _emit_gate_backward)


def gated_residual(mixed: Tensor, bias: Tensor, residual: Tensor, scale: Tensor | None = None) -> Tensor:
    """The twin of reference.gated_residual; `mixed` may be in bfloat16 where the others are in float32."""
    out = torch.empty(residual.shape, dtype=residual.dtype)
    rows, scales = as_rows(residual), _scales(scale, residual)
    tasks = -(-len(rows) // _ROWS)
    if mixed.dtype == torch.bfloat16:
        _narrow_forward(tasks, as_rows(out), as_bits(mixed), as_array(bias), rows, scales)
    else:
        _forward(tasks, as_rows(out), as_rows(mixed), as_array(bias), rows, scales)
    return out


def gated_residual_backward(
    grad: Tensor, mixed: Tensor, bias: Tensor, scale: Tensor | None = None
) -> list[Tensor]:
    """The twin of reference.gated_residual_backward."""
    mixed_grad = torch.empty(mixed.shape, dtype=mixed.dtype)
    tasks = max(1, min(torch.get_num_threads(), grad.numel() // (grad.shape[-1] * _ROWS)))
    bias_grads = torch.empty(tasks, len(bias), dtype=bias.dtype)
    rest = as_array(bias), _scales(scale, grad)
    if mixed.dtype == torch.bfloat16:
        gradients = as_bits(mixed_grad), bias_grads.numpy()
        _narrow_backward(tasks, *gradients, as_rows(grad), as_bits(mixed), *rest)
    else:
        gradients = as_rows(mixed_grad), bias_grads.numpy()
        _backward(tasks, *gradients, as_rows(grad), as_rows(mixed), *rest)
    return [mixed_grad, bias_grads.sum(0)]


def _scales(scale: Tensor | None, like: Tensor) -> NDArray[Any]:
    # Instructions read all their arrays as numbers of one type.
    return as_array(torch.ones(1, like.shape[-1]) if scale is None else scale, like.dtype)


@shared
def _forward(task, out, mixed, bias, residual, scale):
    rows = len(residual)
    for row in range(task * _ROWS, min(rows, (task + 1) * _ROWS)):
        _gate_row(out, mixed, bias, residual, scale, row, row, row // (rows // len(scale)))


@shared
def _narrow_forward(task, out, mixed, bias, residual, scale):
    rows = len(residual)
    wide = empty((1, mixed.shape[1]), np.float32)
    for row in range(task * _ROWS, min(rows, (task + 1) * _ROWS)):
        _widen(mixed[row], wide[0])
        _gate_row(out, wide, bias, residual, scale, row, 0, row // (rows // len(scale)))


@compiled()
def _gate_row(out, mixed, bias, residual, scale, row, mixed_row, sequence):
    H = residual.shape[1]
    whole = H // LANES * LANES
    for column in range(0, whole, LANES):
        _gate(out, mixed, bias, residual, scale, row * H, mixed_row * 2 * H, sequence * H, column, H)
    for column in range(whole, H):
        gate = 1.0 / (1.0 + math.exp(-(mixed[mixed_row, H + column] + bias[H + column])))
        value = (mixed[mixed_row, column] + bias[column]) * scale[sequence, column]
        out[row, column] = residual[row, column] + value * gate


@shared
def _backward(task, mixed_grad, bias_grads, grad, mixed, bias, scale):
    rows, tasks = len(grad), len(bias_grads)
    bias_grad = bias_grads[task]
    bias_grad[:] = 0.0
    for row in range(task * rows // tasks, (task + 1) * rows // tasks):
        sequence = row // (rows // len(scale))
        _gate_row_backward(mixed_grad, bias_grad, grad, mixed, bias, scale, row, row, sequence)


@shared
def _narrow_backward(task, mixed_grad, bias_grads, grad, mixed, bias, scale):
    rows, tasks = len(grad), len(bias_grads)
    bias_grad = bias_grads[task]
    bias_grad[:] = 0.0
    wide, wide_grad = empty((1, mixed.shape[1]), np.float32), empty((1, mixed.shape[1]), np.float32)
    for row in range(task * rows // tasks, (task + 1) * rows // tasks):
        sequence = row // (rows // len(scale))
        _widen(mixed[row], wide[0])
        _gate_row_backward(wide_grad, bias_grad, grad, wide, bias, scale, row, 0, sequence)
        _narrow(wide_grad[0], mixed_grad[row])


@compiled()
def _gate_row_backward(mixed_grad, bias_grad, grad, mixed, bias, scale, row, mixed_row, sequence):
    H = grad.shape[1]
    whole = H // LANES * LANES
    at, mixed_at, scale_at = row * H, mixed_row * 2 * H, sequence * H
    for column in range(0, whole, LANES):
        _gate_backward(mixed_grad, bias_grad, grad, mixed, bias, scale, at, mixed_at, scale_at, column, H)
    for column in range(whole, H):
        value = mixed[mixed_row, column] + bias[column]
        gate = 1.0 / (1.0 + math.exp(-(mixed[mixed_row, H + column] + bias[H + column])))
        value_grad = grad[row, column] * scale[sequence, column] * gate
        gate_grad = value_grad * value * (1.0 - gate)
        mixed_grad[mixed_row, column] = value_grad
        mixed_grad[mixed_row, H + column] = gate_grad
        bias_grad[column] += value_grad
        bias_grad[H + column] += gate_grad


@compiled()
def _widen(narrow, wide):
    """Numbers in bfloat16 in single precision."""
    bits = wide.view(np.uint32)
    for i in range(len(wide)):
        bits[i] = np.uint32(narrow[i]) << np.uint32(16)


@compiled()
def _narrow(wide, narrow):
    """Numbers in single precision in bfloat16: the nearest, of two equally near the even one."""
    bits = wide.view(np.uint32)
    for i in range(len(wide)):
        odd = (bits[i] >> np.uint32(16)) & np.uint32(1)
        rounded = np.uint32(bits[i] + np.uint32(0x7FFF) + odd) >> np.uint32(16)
        # Rounded up, what is not a number could become one.
        narrow[i] = np.uint16(rounded) if wide[i] == wide[i] else np.uint16(_NOT_A_NUMBER)
