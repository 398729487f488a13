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
from torchs4.ops.cpu.sharing import shared
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

# Features whose parameters are kept near while all sequences take their step.
_FEATURES = 64
# Sequences whose sums grow side by side: each would wait for its own last addition.
_TOGETHER = 4
# Numbers of a state that are worth waking a thread for.
_WORTH_A_THREAD = 2**17


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
    sizes = number, B, H, N, R, M
    # A step of a usual layer takes microseconds, less than waking a second thread.
    tasks = min(torch.get_num_threads(), B * H * N // _WORTH_A_THREAD, H)
    if tasks > 1:
        _step_together(tasks, *addresses, *sizes, tasks)
    else:
        _step_some(*addresses, *sizes, 0, H)
    return y, new_state


def _feature_of_rank_one(sequences: int) -> Any:
    """One feature of a rank-1 system with one output, for some sequences; eight numbers of a state at a time.

    Arrays: y, state, new state, a, p, q, b, C, drive, D. Integers: the places of y and drive, of the state,
    of the parameters and of D, how many vectors a state has, and how many features there are.
    """

    def emit(builder: Any, element: Any, arrays: list[Any], integers: list[Any]) -> None:
        y, state, new_state, a, p, q, b, C, drive, D = arrays
        y_place, state_place, place, feature, vectors, features = integers
        kind = ir.VectorType(element, LANES)
        zero = ir.Constant(kind, [0.0] * LANES)
        lanes = ir.Constant(place.type, LANES)
        state_gap = builder.mul(builder.mul(features, vectors), lanes)

        def of_each(first: Any, gap: Any) -> list[Any]:
            steps = (builder.mul(gap, ir.Constant(place.type, s)) for s in range(sequences))
            return [builder.add(first, step) for step in steps]

        def accumulate(pointer: Any, value: Value) -> None:
            total = Value(builder, builder.load(pointer, typ=kind)) + value
            builder.store(total.value, pointer)

        def sums() -> list[Any]:
            pointers = [cgutils.alloca_once(builder, kind) for _ in range(sequences)]
            for pointer in pointers:
                builder.store(zero, pointer)
            return pointers

        def summed(pointer: Any) -> Any:
            return horizontal_sum(Value(builder, builder.load(pointer, typ=kind)))

        y_places, state_places = of_each(y_place, features), of_each(state_place, state_gap)
        feedbacks, outputs = sums(), sums()
        with cgutils.for_range(builder, vectors) as loop:
            offset = builder.mul(loop.index, lanes)
            weight = load_vector(builder, element, q, builder.add(place, offset))
            for start, feedback in zip(state_places, feedbacks, strict=True):
                x = load_vector(builder, element, state, builder.add(start, offset))
                accumulate(feedback, weight * x)
        pulls = [splat(builder, summed(feedback)) for feedback in feedbacks]
        drives = [load_scalar(builder, element, drive, at) for at in y_places]
        pushes = [splat(builder, scalar) for scalar in drives]
        signs = Value(builder, ir.Constant(kind, [-1.0, 1.0] * (LANES // 2)))
        with cgutils.for_range(builder, vectors) as loop:
            offset = builder.mul(loop.index, lanes)
            at = builder.add(place, offset)
            turn, gain, feed, seen = (load_vector(builder, element, array, at) for array in (a, b, p, C))
            real = shuffled(turn, [i - i % 2 for i in range(LANES)])
            imaginary = shuffled(turn, [i - i % 2 + 1 for i in range(LANES)]) * signs
            for start, pull, push, output in zip(state_places, pulls, pushes, outputs, strict=True):
                x_at = builder.add(start, offset)
                x = load_vector(builder, element, state, x_at)
                swapped = shuffled(x, [i + 1 - 2 * (i % 2) for i in range(LANES)])
                x = real * x + imaginary * swapped + push * gain - pull * feed
                store_vector(x, element, new_state, x_at)
                accumulate(output, seen * x)
        skip = load_scalar(builder, element, D, feature)
        for at, scalar, output in zip(y_places, drives, outputs, strict=True):
            result = builder.fadd(summed(output), builder.fmul(skip, scalar))
            store_scalar(builder, result, element, y, at)

    return instruction(10, 6, emit)


_feature_of_one, _feature_of_four = _feature_of_rank_one(1), _feature_of_rank_one(_TOGETHER)


@compiled_entry()
def _step_some(a, p, q, b, C, D, u, state, y, new_state, number, B, H, N, R, M, first, last):
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
        first,
        last,
    )


@shared
def _step_together(task, a, p, q, b, C, D, u, state, y, new_state, number, B, H, N, R, M, tasks):
    first, last = task * H // tasks, (task + 1) * H // tasks
    _step_some(a, p, q, b, C, D, u, state, y, new_state, number, B, H, N, R, M, first, last)


@compiled()
def step_system(a, p, q, b, C, D, u, state, y, new_state, first, last):
    """The features from first to last of every sequence, one step on; y is (B, M, H)."""
    B, H, N = state.shape
    M, R = C.shape[0], p.shape[0]
    # Parameters of some features are read once for all sequences, and states in runs as long as those.
    for start in range(first, last, _FEATURES):
        stop = min(start + _FEATURES, last)
        if R == 1 and M == 1 and N % LANES == 0:
            vectors, together = N // LANES, B // _TOGETHER * _TOGETHER
            for batch in range(0, together, _TOGETHER):
                for h in range(start, stop):
                    at = batch * H + h
                    _feature_of_four(
                        y, state, new_state, a, p, q, b, C, u, D, at, at * N, h * N, h, vectors, H
                    )
            for batch in range(together, B):
                for h in range(start, stop):
                    at = batch * H + h
                    _feature_of_one(
                        y, state, new_state, a, p, q, b, C, u, D, at, at * N, h * N, h, vectors, H
                    )
            continue
        for batch in range(B):
            for h in range(start, stop):
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
