"""The end of a block in one pass each way: bias, gated linear unit, tied dropout and residual.

Rows are positions; a row of the mixed features holds H values and then H gates. Each sequence has H scales,
which dropout draws; without it there is one row of ones for all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from llvmlite import ir
from torch import Tensor

from torchs4.ops.cpu.arrays import as_array, as_rows
from torchs4.ops.cpu.sharing import shared
from torchs4.ops.cpu.vectors import LANES, Value, instruction, load_vector, sigmoid, store_vector

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Rows per task: enough to be worth a task, few enough to share the work evenly.
_ROWS = 64


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
    """The twin of reference.gated_residual."""
    out = torch.empty(residual.shape, dtype=residual.dtype)
    rows, scales = as_rows(residual), _scales(scale, residual)
    _forward(-(-len(rows) // _ROWS), as_rows(out), as_rows(mixed), as_array(bias), rows, scales)
    return out


def gated_residual_backward(
    grad: Tensor, mixed: Tensor, bias: Tensor, scale: Tensor | None = None
) -> list[Tensor]:
    """The twin of reference.gated_residual_backward."""
    mixed_grad = torch.empty(mixed.shape, dtype=mixed.dtype)
    tasks = max(1, min(torch.get_num_threads(), grad.numel() // (grad.shape[-1] * _ROWS)))
    bias_grads = torch.empty(tasks, len(bias), dtype=bias.dtype)
    scales = _scales(scale, grad)
    arrays = as_rows(mixed_grad), bias_grads.numpy(), as_rows(grad), as_rows(mixed), as_array(bias)
    _backward(tasks, *arrays, scales)
    return [mixed_grad, bias_grads.sum(0)]


def _scales(scale: Tensor | None, like: Tensor) -> NDArray[Any]:
    # Instructions read all their arrays as numbers of one type.
    return as_array(torch.ones(1, like.shape[-1]) if scale is None else scale, like.dtype)


@shared
def _forward(task, out, mixed, bias, residual, scale):
    rows, H = residual.shape
    rows_per_scale = rows // len(scale)
    whole = H // LANES * LANES
    for row in range(task * _ROWS, min(rows, (task + 1) * _ROWS)):
        sequence = row // rows_per_scale
        for column in range(0, whole, LANES):
            _gate(out, mixed, bias, residual, scale, row * H, row * 2 * H, sequence * H, column, H)
        for column in range(whole, H):
            gate = 1.0 / (1.0 + math.exp(-(mixed[row, H + column] + bias[H + column])))
            value = (mixed[row, column] + bias[column]) * scale[sequence, column]
            out[row, column] = residual[row, column] + value * gate


@shared
def _backward(task, mixed_grad, bias_grads, grad, mixed, bias, scale):
    rows, H = grad.shape
    rows_per_scale = rows // len(scale)
    tasks = bias_grads.shape[0]
    whole = H // LANES * LANES
    bias_grad = bias_grads[task]
    bias_grad[:] = 0.0
    for row in range(task * rows // tasks, (task + 1) * rows // tasks):
        sequence = row // rows_per_scale
        at, mixed_at, scale_at = row * H, row * 2 * H, sequence * H
        for column in range(0, whole, LANES):
            _gate_backward(mixed_grad, bias_grad, grad, mixed, bias, scale, at, mixed_at, scale_at, column, H)
        for column in range(whole, H):
            value = mixed[row, column] + bias[column]
            gate = 1.0 / (1.0 + math.exp(-(mixed[row, H + column] + bias[H + column])))
            value_grad = grad[row, column] * scale[sequence, column] * gate
            gate_grad = value_grad * value * (1.0 - gate)
            mixed_grad[row, column] = value_grad
            mixed_grad[row, H + column] = gate_grad
            bias_grad[column] += value_grad
            bias_grad[H + column] += gate_grad
