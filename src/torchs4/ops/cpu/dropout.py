"""Dropout in one pass: whether a number stays is a hash of its place, so no mask is drawn, kept or read."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from llvmlite import ir
from torch import Tensor

from torchs4.ops.cpu.arrays import as_array
from torchs4.ops.cpu.sharing import shared
from torchs4.ops.cpu.vectors import LANES, Value, instruction, load_scalar, load_vector, splat, store_vector
from torchs4.ops.cpu.workspaces import empty

# Numbers per task: enough to be worth a task, few enough to share the work evenly.
_CHUNK = 2**14


def dropout(x: Tensor, seed: Tensor, probability: float) -> Tensor:
    """The twin of reference.dropout."""
    out = torch.empty(x.shape, dtype=x.dtype)
    scale = torch.tensor([1 / (1 - probability)], dtype=x.dtype)
    key = int(seed)
    keys = key & 0xFFFFFFFF, key >> 32
    numbers = out.view(-1).numpy(), as_array(x.reshape(-1)), scale.numpy()
    _drop(-(-x.numel() // _CHUNK), *numbers, *keys, round(probability * 2**32))
    return out


def _emit_drop(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
    """(out, x, scale; place in both, number of the first, two keys, threshold): eight numbers."""
    out, x, scale = arrays
    place, number, first_key, second_key, threshold = integers
    kind = ir.VectorType(ir.IntType(32), LANES)

    def all_lanes(whole: Any) -> Any:
        return splat(builder, builder.trunc(whole, ir.IntType(32))).value

    def constant(whole: int) -> Any:
        return ir.Constant(kind, [whole] * LANES)

    def mixed(bits: Any) -> Any:
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
            bits = builder.xor(bits, builder.lshr(bits, constant(shift)))
            bits = builder.mul(bits, constant(factor))
        return builder.xor(bits, builder.lshr(bits, constant(16)))

    bits = builder.add(all_lanes(number), ir.Constant(kind, list(range(LANES))))
    bits = mixed(builder.add(bits, all_lanes(first_key)))
    bits = mixed(builder.xor(bits, all_lanes(second_key)))
    stays = builder.icmp_unsigned(">=", bits, all_lanes(threshold))
    factor = splat(builder, load_scalar(builder, element, scale, ir.Constant(place.type, 0)))
    value = load_vector(builder, element, x, place) * factor
    nothing = ir.Constant(value.value.type, [0.0] * LANES)
    store_vector(Value(builder, builder.select(stays, value.value, nothing)), element, out, place)


_drop_eight = instruction(3, 5, _emit_drop)


@shared
def _drop(task, out, x, scale, first_key, second_key, threshold):
    count = len(x)
    start, end = task * _CHUNK, min(count, (task + 1) * _CHUNK)
    whole = start + (end - start) // LANES * LANES
    # Numbers beyond the first 2³² would repeat.
    key = second_key + (start >> 32)
    for place in range(start, whole, LANES):
        _drop_eight(out, x, scale, place, place, first_key, key, threshold)
    if whole < end:
        some, kept = np.zeros(LANES, x.dtype), empty(LANES, x.dtype)
        for place in range(whole, end):
            some[place - whole] = x[place]
        _drop_eight(kept, some, scale, 0, whole, first_key, key, threshold)
        for place in range(whole, end):
            out[place] = kept[place - whole]
