"""What a DPLR system does to a block of T samples, ready for `chunk_pass`; one feature per task.

    reach[i] = Ā^i b      sight[i] = C Ā^(i+1)      response[i] = C Ā^i b      change = (Ā^T - 1)ᵀ

Axes: M output channels, H features, n modes, N = 2n, R rank.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from torchs4.ops.cpu.arrays import as_array, as_complex_array
from torchs4.ops.cpu.modal_powers import (
    GAP,
    column_grad,
    fill_correction,
    fill_jump,
    fill_powers,
    fill_powers_backward,
    fill_transition,
    jump_backward,
    mode_grad,
    prepare_system,
    reader_grad,
    reversed_turn,
    row_width,
    set_reader,
    transition_backward,
)
from torchs4.ops.cpu.products import copy_matrix, copy_transposed
from torchs4.ops.cpu.sharing import shared
from torchs4.ops.dtypes import kernel_dtype


def modal_chunk_operators(
    decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, block: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The twin of reference.modal_chunk_operators."""
    M, H, n, _ = C.shape
    shapes = (H, block, 2 * n), (M, H, block, 2 * n), (M, H, block), (H, 2 * n, 2 * n)
    reach, sight, response, change = (torch.empty(shape, dtype=kernel_dtype(C)) for shape in shapes)
    tasks = min(torch.get_num_threads(), H)
    results = map(as_array, (reach, sight, response, change))
    _forward(tasks, *map(as_complex_array, (decay, p, q, b, C)), *results, tasks)
    return reach, sight, response, change


def modal_chunk_operators_backward(
    grads: list[Tensor], decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor
) -> list[Tensor]:
    """The gradients of `modal_chunk_operators` for its tensors."""
    system = (decay, p, q, b, C)
    results = [torch.empty(x.shape, dtype=torch.float64) for x in system]
    tasks = min(torch.get_num_threads(), C.shape[1])
    _backward(
        tasks,
        *map(as_array, grads),
        *map(as_complex_array, system),
        *map(as_complex_array, results),
        tasks,
    )
    return [result.to(x.dtype) for result, x in zip(results, system, strict=True)]


@shared
def _forward(task, decay, p, q, b, C, reach, sight, response, change, tasks):
    H, n = decay.shape
    M, R, block, N = C.shape[0], p.shape[0], reach.shape[1], 2 * n
    width = row_width(n)
    turn, jump = np.zeros((2, width)), np.empty((2, width))
    columns, readers = np.zeros((R, width)), np.zeros((R, width))
    reached, seen = np.zeros((block, width + GAP)), np.zeros((block + 1, width + GAP))
    turned, read = np.empty((R, block, width + GAP)), np.empty((R, block, width + GAP))
    G, transposed = np.empty((width, width + GAP)), np.empty((width, width + GAP))
    for h in range(task, H, tasks):
        prepare_system(decay, p, q, b, h, turn, columns, readers, reached[0])
        fill_powers(reached, block, turn, columns, readers)
        fill_jump(jump, turn, block)
        fill_correction(block, turn, columns, readers, turned, read)
        fill_transition(G, block, jump, turned, read)
        for k in range(width):
            G[k, k] -= 1.0
        copy_transposed(transposed, G, width, width)
        copy_matrix(change[h], transposed, N, N)
        copy_matrix(reach[h], reached, block, N)
        for m in range(M):
            set_reader(seen[0], C[m, h])
            fill_powers(seen, block + 1, reversed_turn(turn), readers, columns)
            copy_matrix(sight[m, h], seen[1:], block, N)
            for i in range(block):
                total = 0.0
                for k in range(N):
                    total += seen[0, k] * reached[i, k]
                response[m, h, i] = total


@shared
def _backward(
    task,
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
    M, R, block, N = C.shape[0], p.shape[0], reach_grad.shape[1], 2 * n
    width = row_width(n)
    turn, turn_grad = np.zeros((2, width)), np.empty((2, width))
    backwards_grad, jump_grad = np.empty((2, width)), np.empty((2, width))
    columns, readers = np.zeros((R, width)), np.zeros((R, width))
    columns_grad, readers_grad = np.empty((R, width)), np.empty((R, width))
    reached, reached_grad = np.zeros((block, width + GAP)), np.zeros((block, width + GAP))
    seen, seen_grad = np.zeros((block + 1, width + GAP)), np.zeros((block + 1, width + GAP))
    turned, read = np.empty((R, block, width + GAP)), np.empty((R, block, width + GAP))
    G_grad, transposed = np.zeros((width, width + GAP)), np.zeros((width, width + GAP))
    row_grads = np.empty((block, width + GAP))
    for h in range(task, H, tasks):
        turn_grad[:] = 0.0
        backwards_grad[:] = 0.0
        jump_grad[:] = 0.0
        columns_grad[:] = 0.0
        readers_grad[:] = 0.0
        prepare_system(decay, p, q, b, h, turn, columns, readers, reached[0])
        fill_powers(reached, block, turn, columns, readers)
        fill_correction(block, turn, columns, readers, turned, read)
        backwards = reversed_turn(turn)
        copy_matrix(reached_grad, reach_grad[h], block, N)
        for m in range(M):
            set_reader(seen[0], C[m, h])
            fill_powers(seen, block + 1, backwards, readers, columns)
            seen_grad[0] = 0.0
            copy_matrix(seen_grad[1:], sight_grad[m, h], block, N)
            for i in range(block):
                slope = response_grad[m, h, i]
                for k in range(N):
                    seen_grad[0, k] += slope * reached[i, k]
                for k in range(N):
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
            reader_grad(C_grad[m, h], seen_grad[0])
        copy_matrix(transposed, change_grad[h], N, N)
        copy_transposed(G_grad, transposed, width, width)
        transition_backward(
            G_grad,
            block,
            turn,
            columns,
            readers,
            turned,
            read,
            transposed,
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
            # Rows turn the other way.
            decay_grad[h, k] = -mode_grad(turn_grad, k) - mode_grad(backwards_grad, k).conjugate()
        column_grad(b_grad[h], reached_grad[0])
        for r in range(R):
            column_grad(p_grad[r, h], columns_grad[r])
            reader_grad(q_grad[r, h], readers_grad[r])
