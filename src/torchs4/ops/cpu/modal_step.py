"""One step of a discrete DPLR system: every state is read once and written once.

A step takes microseconds, so tensors are passed by their addresses: turning ten of them into arrays would
take longer than the arithmetic.

Axes: B batch, H features, N state size (real and imaginary parts interleaved), R rank, M output channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from llvmlite import ir
from numba import carray
from numba.core import cgutils

from torchs4.ops.cpu.arrays import as_addressable, number_type
from torchs4.ops.cpu.compiling import compiled, compiled_entry
from torchs4.ops.cpu.vectors import (
    LANES,
    Value,
    as_pointer,
    horizontal_sum,
    instruction,
    load_scalar,
    load_vector,
    shuffled,
    splat,
    store_scalar,
    store_vector,
)

if TYPE_CHECKING:
    from torch import Tensor


def modal_step(
    a: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, D: Tensor, u: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """The twin of reference.modal_step."""
    B, H, N = state.shape
    M, R = C.shape[0], p.shape[0]
    number = number_type("state", state)
    y = torch.empty((B, M, H), dtype=state.dtype)
    new_state = torch.empty((B, H, N), dtype=state.dtype)
    row, rows, outputs = (H, N), (R, H, N), (M, H, N)
    # Held until the call is over: what was converted would otherwise be freed under its address.
    tensors = [
        as_addressable(name, x, shape, state.dtype)
        for name, x, shape in (
            ("a", a, (H, N // 2, 2)),
            ("p", p, rows),
            ("q", q, rows),
            ("b", b, row),
            ("C", C, outputs),
            ("D", D, (M, H)),
            ("u", u, (B, H)),
            ("state", state, (B, H, N)),
        )
    ]
    addresses = [x.data_ptr() for x in (*tensors, y, new_state)]
    _step(*addresses, number, B, H, N, R, M)
    return y, new_state


def _emit_feature(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
    """One feature of a system of rank 1 with one output; eight numbers of its state at a time.

    Arrays: y, state, new state, a, p, q, b, C, drive, D. Integers: the places of y and drive, of the state,
    of the parameters and of D, and how many vectors a state has.
    """
    y, state, new_state, a, p, q, b, C, drive, D = arrays
    y_place, state_place, place, feature, vectors = integers
    kind = ir.VectorType(element, LANES)
    zero = ir.Constant(kind, [0.0] * LANES)

    def at(start: Any, index: Any) -> Any:
        return builder.add(start, builder.mul(index, ir.Constant(index.type, LANES)))

    def accumulate(pointer: Any, value: Value) -> None:
        total = Value(builder, builder.load(pointer, typ=kind)) + value
        builder.store(total.value, pointer)

    feedback, output = cgutils.alloca_once(builder, kind), cgutils.alloca_once(builder, kind)
    builder.store(zero, feedback)
    builder.store(zero, output)
    with cgutils.for_range(builder, vectors) as loop:
        x = load_vector(builder, element, state, at(state_place, loop.index))
        accumulate(feedback, load_vector(builder, element, q, at(place, loop.index)) * x)
    pull = splat(builder, horizontal_sum(Value(builder, builder.load(feedback, typ=kind))))
    scalar_drive = load_scalar(builder, element, drive, y_place)
    push = splat(builder, scalar_drive)
    signs = Value(builder, ir.Constant(kind, [-1.0, 1.0] * (LANES // 2)))
    with cgutils.for_range(builder, vectors) as loop:
        x_at, at_parameter = at(state_place, loop.index), at(place, loop.index)
        x = load_vector(builder, element, state, x_at)
        turn = load_vector(builder, element, a, at_parameter)
        real = shuffled(turn, [i - i % 2 for i in range(LANES)])
        imaginary = shuffled(turn, [i - i % 2 + 1 for i in range(LANES)]) * signs
        swapped = shuffled(x, [i + 1 - 2 * (i % 2) for i in range(LANES)])
        x = real * x + imaginary * swapped
        x = x + push * load_vector(builder, element, b, at_parameter)
        x = x - pull * load_vector(builder, element, p, at_parameter)
        store_vector(x, element, new_state, x_at)
        accumulate(output, load_vector(builder, element, C, at_parameter) * x)
    skip = builder.fmul(load_scalar(builder, element, D, feature), scalar_drive)
    result = builder.fadd(horizontal_sum(Value(builder, builder.load(output, typ=kind))), skip)
    store_scalar(builder, result, element, y, y_place)


_feature_of_rank_one = instruction(10, 5, _emit_feature)


# One thread: a step of a usual layer takes microseconds, less than waking a second thread.
@compiled_entry()
def _step(a, p, q, b, C, D, u, state, y, new_state, number, B, H, N, R, M):
    step_system(
        carray(as_pointer(a), (H, N), number),
        carray(as_pointer(p), (R, H, N), number),
        carray(as_pointer(q), (R, H, N), number),
        carray(as_pointer(b), (H, N), number),
        carray(as_pointer(C), (M, H, N), number),
        carray(as_pointer(D), (M, H), number),
        carray(as_pointer(u), (B, H), number),
        carray(as_pointer(state), (B, H, N), number),
        carray(as_pointer(y), (B, M, H), number),
        carray(as_pointer(new_state), (B, H, N), number),
    )


@compiled()
def step_system(a, p, q, b, C, D, u, state, y, new_state):
    """Every feature of every sequence, one step on; y is (B, M, H)."""
    B, H, N = state.shape
    M, R = C.shape[0], p.shape[0]
    # A feature's parameters are read once for all sequences.
    for h in range(H):
        for batch in range(B):
            if R == 1 and M == 1 and N % LANES == 0:
                place = batch * H + h
                _feature_of_rank_one(
                    y, state, new_state, a, p, q, b, C, u, D, place, place * N, h * N, h, N // LANES
                )
            else:
                _advance(a[h], p[:, h], q[:, h], b[h], state[batch, h], new_state[batch, h], u[batch, h])
                for m in range(M):
                    total = D[m, h] * u[batch, h]
                    for i in range(N):
                        total += C[m, h, i] * new_state[batch, h, i]
                    y[batch, m, h] = total


@compiled()
def _advance(a, p, q, b, x, out, drive):
    """The next state a·x - p (q x) + b·drive, for any rank."""
    N = x.shape[0]
    for real in range(0, N, 2):
        imaginary = real + 1
        out[real] = a[real] * x[real] - a[imaginary] * x[imaginary] + b[real] * drive
        out[imaginary] = a[imaginary] * x[real] + a[real] * x[imaginary] + b[imaginary] * drive
    for r in range(p.shape[0]):
        feedback = x.dtype.type(0)
        for i in range(N):
            feedback += q[r, i] * x[i]
        for i in range(N):
            out[i] -= p[r, i] * feedback
