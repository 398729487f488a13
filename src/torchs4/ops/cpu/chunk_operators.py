"""What a DPLR system does to a block of T samples, ready for `chunk_pass`; one feature per task.

    reach[i] = Ā^i b      sight[i] = C Ā^(i+1)      response[i] = C Ā^i b      change = (Ā^T - 1)ᵀ

Axes: M output channels, H features, n modes, N = 2n, R rank.
"""

from __future__ import annotations

import numpy as np
import torch
from numba import prange
from torch import Tensor

from torchs4.ops.cpu.arrays import as_array, as_complex_array
from torchs4.ops.cpu.compiling import compiled, torch_threads
from torchs4.ops.cpu.modal_powers import (
    GAP,
    fill_jump,
    fill_powers,
    fill_powers_backward,
    fill_transition,
    jump_backward,
    prepare_system,
    reversed_turn,
    transition_backward,
)
from torchs4.ops.registered import kernel_dtype


def modal_chunk_operators(
    decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, block: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The twin of reference.modal_chunk_operators."""
    M, H, n, _ = C.shape
    shapes = (H, block, 2 * n), (M, H, block, 2 * n), (M, H, block), (H, 2 * n, 2 * n)
    reach, sight, response, change = (torch.empty(shape, dtype=kernel_dtype(C)) for shape in shapes)
    with torch_threads():
        _forward(
            *map(as_complex_array, (decay, p, q, b, C)),
            *map(as_array, (reach, sight, response, change)),
            min(torch.get_num_threads(), H),
        )
    return reach, sight, response, change


def modal_chunk_operators_backward(
    grads: list[Tensor], decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor
) -> list[Tensor]:
    """The gradients of `modal_chunk_operators` for its tensors."""
    system = (decay, p, q, b, C)
    results = [torch.empty(x.shape, dtype=torch.float64) for x in system]
    with torch_threads():
        _backward(
            *map(as_array, grads),
            *map(as_complex_array, system),
            *map(as_complex_array, results),
            min(torch.get_num_threads(), C.shape[1]),
        )
    return [result.to(x.dtype) for result, x in zip(results, system, strict=True)]


@compiled()
def _apart(row, interleaved, half):
    """Real parts first, from pairs."""
    for k in range(interleaved.shape[0] // 2):
        row[k] = interleaved[2 * k]
        row[half + k] = interleaved[2 * k + 1]


@compiled()
def _together(interleaved, row, half):
    for k in range(interleaved.shape[0] // 2):
        interleaved[2 * k] = row[k]
        interleaved[2 * k + 1] = row[half + k]


@compiled()
def _set_output_row(row, C, half):
    for k in range(C.shape[0]):
        row[k] = 2.0 * C[k].real
        row[half + k] = -2.0 * C[k].imag


@compiled()
def _inner(x, y, width):
    total = 0.0
    for k in range(width):
        total += x[k] * y[k]
    return total


@compiled(parallel=True)
def _forward(decay, p, q, b, C, reach, sight, response, change, tasks):
    H, n = decay.shape
    M, R, block = C.shape[0], p.shape[0], reach.shape[1]
    half = (n + 3) // 4 * 4
    width = 2 * half
    for task in prange(tasks):
        turn, jump = np.zeros((2, half)), np.empty((2, half))
        columns, readers = np.zeros((R, width)), np.zeros((R, width))
        reached, seen = np.zeros((block, width + GAP)), np.zeros((block + 1, width + GAP))
        turned, read = np.empty((R, block, width + GAP)), np.empty((R, block, width + GAP))
        G, row = np.empty((width, width + GAP)), np.empty(width)
        for h in range(task, H, tasks):
            prepare_system(decay, p, q, b, h, turn, columns, readers, reached)
            fill_powers(reached, block, turn, columns, readers)
            fill_jump(jump, turn, block)
            fill_transition(G, block, turn, jump, columns, readers, turned, read)
            for i in range(block):
                _together(reach[h, i], reached[i], half)
            for k in range(width):
                G[k, k] -= 1.0
            for k in range(2 * n):
                place = k // 2 + k % 2 * half
                for j in range(width):
                    row[j] = G[j, place]
                _together(change[h, k], row, half)
            for m in range(M):
                _set_output_row(seen[0], C[m, h], half)
                fill_powers(seen, block + 1, reversed_turn(turn), readers, columns)
                for i in range(block):
                    _together(sight[m, h, i], seen[i + 1], half)
                    response[m, h, i] = _inner(seen[0], reached[i], width)


@compiled(parallel=True)
def _backward(
    reach_grad,
    sight_grad,
    response_grad,
    change_grad,
    decay,
    p,
    q,
    b,
    C,
    decay_grad,
    p_grad,
    q_grad,
    b_grad,
    C_grad,
    tasks,
):
    H, n = decay.shape
    M, R, block = C.shape[0], p.shape[0], reach_grad.shape[1]
    half = (n + 3) // 4 * 4
    width = 2 * half
    for task in prange(tasks):
        turn, turn_grad = np.zeros((2, half)), np.empty((2, half))
        backwards_grad = np.empty((2, half))
        jump, jump_grad = np.empty((2, half)), np.empty((2, half))
        columns, readers = np.zeros((R, width)), np.zeros((R, width))
        columns_grad, readers_grad = np.empty((R, width)), np.empty((R, width))
        reached, reached_grad = np.zeros((block, width + GAP)), np.zeros((block, width + GAP))
        seen, seen_grad = np.zeros((block + 1, width + GAP)), np.zeros((block + 1, width + GAP))
        turned, read = np.empty((R, block, width + GAP)), np.empty((R, block, width + GAP))
        G, G_grad = np.empty((width, width + GAP)), np.zeros((width, width + GAP))
        row, row_grads = np.zeros(width), np.empty((block, width + GAP))
        for h in range(task, H, tasks):
            turn_grad[:] = 0.0
            backwards_grad[:] = 0.0
            jump_grad[:] = 0.0
            columns_grad[:] = 0.0
            readers_grad[:] = 0.0
            prepare_system(decay, p, q, b, h, turn, columns, readers, reached)
            fill_powers(reached, block, turn, columns, readers)
            fill_jump(jump, turn, block)
            fill_transition(G, block, turn, jump, columns, readers, turned, read)
            backwards = reversed_turn(turn)
            for i in range(block):
                _apart(reached_grad[i], reach_grad[h, i], half)
            for m in range(M):
                _set_output_row(seen[0], C[m, h], half)
                fill_powers(seen, block + 1, backwards, readers, columns)
                seen_grad[0] = 0.0
                for i in range(block):
                    _apart(seen_grad[i + 1], sight_grad[m, h, i], half)
                    slope = response_grad[m, h, i]
                    for k in range(width):
                        seen_grad[0, k] += slope * reached[i, k]
                        reached_grad[i, k] += slope * seen[0, k]
                fill_powers_backward(
                    seen_grad,
                    seen,
                    block + 1,
                    backwards,
                    readers,
                    columns,
                    backwards_grad,
                    readers_grad,
                    columns_grad,
                )
                for k in range(n):
                    C_grad[m, h, k] = complex(2.0 * seen_grad[0, k], -2.0 * seen_grad[0, half + k])
            for k in range(2 * n):
                _apart(row, change_grad[h, k], half)
                place = k // 2 + k % 2 * half
                for j in range(width):
                    G_grad[j, place] = row[j]
            transition_backward(
                G_grad,
                block,
                turn,
                columns,
                readers,
                turned,
                read,
                G,
                row_grads,
                turn_grad,
                jump_grad,
                columns_grad,
                readers_grad,
            )
            jump_backward(jump_grad, turn, block, turn_grad)
            fill_powers_backward(
                reached_grad, reached, block, turn, columns, readers, turn_grad, columns_grad, readers_grad
            )
            for k in range(n):
                slope = complex(
                    turn_grad[0, k] + backwards_grad[0, k], turn_grad[1, k] - backwards_grad[1, k]
                )
                decay_grad[h, k] = -slope
                b_grad[h, k] = complex(reached_grad[0, k], reached_grad[0, half + k])
                for r in range(R):
                    p_grad[r, h, k] = complex(columns_grad[r, k], columns_grad[r, half + k])
                    q_grad[r, h, k] = complex(2.0 * readers_grad[r, k], -2.0 * readers_grad[r, half + k])
