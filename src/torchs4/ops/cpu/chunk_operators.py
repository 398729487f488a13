"""What a DPLR system does to a block of T samples, ready for `chunk_pass`; one feature per task.

    reach[i] = Ā^i b      sight[i] = C Ā^(i+1)      response[i] = C Ā^i b      change = (Ā^T - 1)ᵀ

Axes: M output channels, H features, n modes, N = 2n, R rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchs4.ops.cpu.arrays import as_array, as_complex_array
from torchs4.ops.cpu.modal_powers import (
    GAP,
    DiscreteSystem,
    add_transposed_turn,
    clear,
    fill_correction,
    fill_jump,
    fill_power,
    fill_powers,
    fill_powers_backward,
    jump_backward,
    new_correction,
    new_transition,
    new_workspace,
    power_backward,
    prepare_feature,
    reader_grad,
    row_width,
    set_reader,
    store_feature_grad,
    transposed_grad,
    transposed_transition,
)
from torchs4.ops.cpu.products import copy_matrix, copy_transposed
from torchs4.ops.cpu.sharing import shared
from torchs4.ops.cpu.workspaces import empty
from torchs4.ops.dtypes import kernel_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray


def modal_chunk_operators(
    decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, block: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The twin of reference.modal_chunk_operators."""
    M, H, n, _ = C.shape
    shapes = (H, block, 2 * n), (M, H, block, 2 * n), (M, H, block), (H, 2 * n, 2 * n)
    reach, sight, response, change = (torch.empty(shape, dtype=kernel_dtype(C)) for shape in shapes)
    tasks = min(torch.get_num_threads(), H)
    system = DiscreteSystem(*map(as_complex_array, (decay, p, q, b, C)))
    _forward(tasks, system, _Operators(*map(as_array, (reach, sight, response, change))), tasks)
    return reach, sight, response, change


def modal_chunk_operators_backward(
    grads: list[Tensor], decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor
) -> list[Tensor]:
    """The gradients of `modal_chunk_operators` for its tensors."""
    given = (decay, p, q, b, C)
    results = [torch.empty(x.shape, dtype=torch.float64) for x in given]
    system, system_grad = (DiscreteSystem(*map(as_complex_array, tensors)) for tensors in (given, results))
    tasks = min(torch.get_num_threads(), C.shape[1])
    _backward(tasks, _Operators(*map(as_array, grads)), system, system_grad, tasks)
    return [result.to(x.dtype) for result, x in zip(results, given, strict=True)]


class _Operators(NamedTuple):
    """What becomes of a block, of all features; or gradients of it."""

    reach: NDArray[Any]
    sight: NDArray[Any]
    response: NDArray[Any]
    change: NDArray[Any]


@shared
def _forward(task, system, operators, tasks):
    H, n = system.decay.shape
    M, R, block, N = system.C.shape[0], system.p.shape[0], operators.reach.shape[1], 2 * n
    width = row_width(n)
    transition, jump = new_transition(R, width), empty((2, width), np.float64)
    reached, seen = np.zeros((block, width + GAP)), np.zeros((block + 1, width + GAP))
    correction = new_correction(R, block, width)
    G, transposed = empty((width, width + GAP), np.float64), empty((width, width + GAP), np.float64)
    for h in range(task, H, tasks):
        prepare_feature(system, h, transition, reached[0])
        backwards = transposed_transition(transition)
        fill_powers(reached, block, transition)
        fill_jump(jump, transition.turn, block)
        fill_correction(correction, block, transition)
        fill_power(G, block, jump, correction)
        for k in range(width):
            G[k, k] -= 1.0
        copy_transposed(transposed, G, width, width)
        copy_matrix(operators.change[h], transposed, N, N)
        copy_matrix(operators.reach[h], reached, block, N)
        for m in range(M):
            set_reader(seen[0], system.C[m, h])
            fill_powers(seen, block + 1, backwards)
            copy_matrix(operators.sight[m, h], seen[1:], block, N)
            for i in range(block):
                total = 0.0
                for k in range(N):
                    total += seen[0, k] * reached[i, k]
                operators.response[m, h, i] = total


@shared
def _backward(task, grads, system, system_grad, tasks):
    """The adjoint of `_forward`. The response C Ā^i b gives to both of its factors,

        C grad = sight's[0] + Σ_i response grad[i] (Ā^i b)ᵀ        reach grad[i] += response grad[i] Cᵀ

    and what reach, sight and change are, powers of the transition, is walked back in turn.
    """
    H, n = system.decay.shape
    M, R, block, N = system.C.shape[0], system.p.shape[0], grads.reach.shape[1], 2 * n
    width = row_width(n)
    transition, transition_grad = new_transition(R, width), new_transition(R, width)
    jump_grad = np.zeros((2, width))
    reached, reached_grad = np.zeros((block, width + GAP)), np.zeros((block, width + GAP))
    seen, seen_grad = np.zeros((block + 1, width + GAP)), np.zeros((block + 1, width + GAP))
    correction, workspace = new_correction(R, block, width), new_workspace(block, width)
    G_grad, transposed = np.zeros((width, width + GAP)), np.zeros((width, width + GAP))
    for h in range(task, H, tasks):
        clear(transition_grad)
        jump_grad[:] = 0.0
        prepare_feature(system, h, transition, reached[0])
        fill_powers(reached, block, transition)
        fill_correction(correction, block, transition)
        backwards, backwards_grad = transposed_transition(transition), transposed_grad(transition_grad)
        copy_matrix(reached_grad, grads.reach[h], block, N)
        for m in range(M):
            set_reader(seen[0], system.C[m, h])
            fill_powers(seen, block + 1, backwards)
            seen_grad[0] = 0.0
            copy_matrix(seen_grad[1:], grads.sight[m, h], block, N)
            for i in range(block):
                slope = grads.response[m, h, i]
                for k in range(N):
                    seen_grad[0, k] += slope * reached[i, k]
                for k in range(N):
                    reached_grad[i, k] += slope * seen[0, k]
            fill_powers_backward(seen_grad, seen, block + 1, backwards, backwards_grad)
            reader_grad(system_grad.C[m, h], seen_grad[0])
        add_transposed_turn(transition_grad, backwards_grad)
        copy_matrix(transposed, grads.change[h], N, N)
        copy_transposed(G_grad, transposed, width, width)
        power_backward(G_grad, block, transition, correction, workspace, transition_grad, jump_grad)
        jump_backward(jump_grad, transition.turn, block, transition_grad.turn)
        fill_powers_backward(reached_grad, reached, block, transition, transition_grad)
        store_feature_grad(system_grad, h, transition_grad, reached_grad[0])
