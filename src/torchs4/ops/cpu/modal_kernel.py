"""The kernel of a DPLR system, C Ā^l b, as a product of two thin matrices; one feature per task.

Axes: M output channels, H features, n modes, R rank, L = J·T samples in J coarse steps of T fine ones.

    K[jT + i] = (C Ā^(jT)) (Ā^i b)

The fine vectors Ā^i b are steps of the recurrence, O(N) each; a coarse step multiplies a row by G = Ā^T. The
backward pass walks the same road back. Products cost L·N + (J + T)·N² multiplications; sums over modes at
L/2 frequencies would cost some 12·L·N.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchs4.ops.cpu.arrays import as_array, as_complex_array
from torchs4.ops.cpu.compiling import compiled
from torchs4.ops.cpu.modal_powers import (
    GAP,
    DiscreteSystem,
    Transition,
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
    without_tiny,
)
from torchs4.ops.cpu.products import (
    add_product,
    add_transposed_product,
    copy_transposed,
)
from torchs4.ops.cpu.sharing import shared
from torchs4.ops.cpu.workspaces import empty
from torchs4.ops.dtypes import kernel_dtype

# Lengths that are reached by fine steps alone.
_SHORT = 64


def modal_kernel(decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, length: int) -> Tensor:
    """The twin of reference.modal_kernel."""
    kernel = torch.empty(*C.shape[:2], length, dtype=kernel_dtype(C))
    split = _split(length, C)
    _forward(split.tasks, DiscreteSystem(*map(as_complex_array, (decay, p, q, b, C))), split, kernel.numpy())
    return kernel


def modal_kernel_backward(
    grad: Tensor, decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor
) -> list[Tensor]:
    """The twin of reference.modal_kernel_backward."""
    given = (decay, p, q, b, C)
    grads = [torch.empty(x.shape, dtype=torch.float64) for x in given]
    system, system_grad = (DiscreteSystem(*map(as_complex_array, tensors)) for tensors in (given, grads))
    split = _split(grad.shape[-1], C)
    _backward(split.tasks, as_array(grad), system, split, system_grad)
    return [g.to(x.dtype) for g, x in zip(grads, given, strict=True)]


def power_kernel(a: Tensor, weights: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """The twin of reference.power_kernel: a DPLR system of rank 0 whose b is 1."""
    kernel = torch.empty(*weights.shape[:2], length, dtype=dtype)
    split = _split(length, weights)
    _forward(split.tasks, _diagonal_system(a, weights), split, kernel.numpy())
    return kernel


def power_kernel_backward(grad: Tensor, a: Tensor, weights: Tensor) -> list[Tensor]:
    """The twin of reference.power_kernel_backward."""
    system = _diagonal_system(a, weights)
    grads = [torch.empty((*x.shape, 2), dtype=torch.float64) for x in system]
    split = _split(grad.shape[-1], weights)
    _backward(split.tasks, as_array(grad), system, split, DiscreteSystem(*map(as_complex_array, grads)))
    decay_grad, *_, weights_grad = grads
    return [-decay_grad, weights_grad]


def _diagonal_system(a: Tensor, weights: Tensor) -> DiscreteSystem:
    modes, C = as_complex_array(a), as_complex_array(weights)
    nothing = np.zeros((0, *modes.shape), dtype=np.complex128)
    return DiscreteSystem(1 - modes, nothing, nothing, np.ones_like(modes), C)


class _Split(NamedTuple):
    """Fine and coarse steps, in eights and in fours as the products want them; features in work at a time."""

    fine: int
    coarse: int
    tasks: int


def _split(length: int, C: Tensor) -> _Split:
    fine = -(-(length if length <= _SHORT else math.isqrt(length)) // 8) * 8
    return _Split(fine, -(-length // (4 * fine)) * 4, min(torch.get_num_threads(), C.shape[1]))


@compiled()
def _fill_coarse(coarse_rows, count, C, jump, G, diagonal):
    """coarse_rows[j] = C G^j, or C a^(jT) when the system is diagonal."""
    width = jump.shape[1]
    coarse_rows[0] = 0.0
    set_reader(coarse_rows[0], C)
    if diagonal:
        fill_powers(coarse_rows, count, _diagonal(jump))
        return
    for j in range(1, count):
        coarse_rows[j] = 0.0
        add_product(coarse_rows[j:], coarse_rows[j - 1 :], G, 1, width, width)
        for k in range(width):
            coarse_rows[j, k] = without_tiny(coarse_rows[j, k])


@compiled()
def _diagonal(turn):
    nothing = np.zeros((0, turn.shape[1]))
    return Transition(turn, nothing, nothing)


@shared
def _forward(task, system, split, kernel):
    H, n = system.decay.shape
    M, R, length = system.C.shape[0], system.p.shape[0], kernel.shape[2]
    fine, coarse, tasks = split
    width = row_width(n)
    used = (length + fine - 1) // fine
    transition, jump = new_transition(R, width), empty((2, width), np.float64)
    fine_rows = np.zeros((fine, width + GAP))
    fine_columns = empty((width, fine + GAP), np.float64)
    correction, G = new_correction(R, fine, width), empty((width, width + GAP), np.float64)
    coarse_rows = np.zeros((coarse, width + GAP))
    product = empty((coarse, fine + GAP), np.float64)
    for h in range(task, H, tasks):
        prepare_feature(system, h, transition, fine_rows[0])
        fill_powers(fine_rows, fine, transition)
        copy_transposed(fine_columns, fine_rows, fine, width)
        if used > 1:
            fill_jump(jump, transition.turn, fine)
        if used > 1 and R > 0:
            fill_correction(correction, fine, transition)
            fill_power(G, fine, jump, correction)
        for m in range(M):
            _fill_coarse(coarse_rows, used, system.C[m, h], jump, G, R == 0)
            product[:] = 0.0
            add_product(product, coarse_rows, fine_columns, coarse, width, fine)
            for j in range(used):
                for i in range(min(fine, length - j * fine)):
                    kernel[m, h, j * fine + i] = product[j, i]


@shared
def _backward(task, grad, system, split, system_grad):
    """The adjoint of `_forward`. With K = rows · columns, gradients flow into both thin matrices:

        coarse grad[j] = Σ_i grad[jT + i] (Ā^i b)ᵀ        fine grad[i] = Σ_j grad[jT + i] C Ā^(jT)

    From the last coarse row up, coarse grad[j - 1] += coarse grad[j] Gᵀ, and G's gradient is
    Σ_j (C G^(j-1))ᵀ coarse grad[j]; what is left in row 0 is C's. The gradients of G, of the jump and of the
    fine rows meet in that of the transition.
    """
    H, n = system.decay.shape
    M, R, length = system.C.shape[0], system.p.shape[0], grad.shape[2]
    fine, coarse, tasks = split
    width = row_width(n)
    used = (length + fine - 1) // fine
    transition, transition_grad = new_transition(R, width), new_transition(R, width)
    jump, jump_grad = empty((2, width), np.float64), np.zeros((2, width))
    fine_rows, fine_grad = np.zeros((fine, width + GAP)), np.zeros((fine, width + GAP))
    correction, workspace = new_correction(R, fine, width), new_workspace(fine, width)
    G, G_grad = empty((width, width + GAP), np.float64), np.zeros((width, width + GAP))
    transposed = empty((width, width + GAP), np.float64)
    coarse_rows, coarse_grad = np.zeros((coarse, width + GAP)), np.zeros((coarse, width + GAP))
    product_grad = np.zeros((coarse, fine + GAP))
    for h in range(task, H, tasks):
        clear(transition_grad)
        jump_grad[:] = 0.0
        fine_grad[:] = 0.0
        G_grad[:] = 0.0
        prepare_feature(system, h, transition, fine_rows[0])
        fill_powers(fine_rows, fine, transition)
        if used > 1:
            fill_jump(jump, transition.turn, fine)
        if used > 1 and R > 0:
            fill_correction(correction, fine, transition)
            fill_power(G, fine, jump, correction)
            copy_transposed(transposed, G, width, width)
        for m in range(M):
            _fill_coarse(coarse_rows, used, system.C[m, h], jump, G, R == 0)
            for j in range(used):
                for i in range(min(fine, length - j * fine)):
                    product_grad[j, i] = grad[m, h, j * fine + i]
            coarse_grad[:] = 0.0
            add_product(coarse_grad, product_grad, fine_rows, coarse, fine, width)
            add_transposed_product(fine_grad, product_grad, coarse_rows, fine, coarse, width)
            if R == 0:
                fill_powers_backward(coarse_grad, coarse_rows, used, _diagonal(jump), _diagonal(jump_grad))
            elif used > 1:
                for j in range(used - 1, 0, -1):
                    add_product(coarse_grad[j - 1 :], coarse_grad[j:], transposed, 1, width, width)
                add_transposed_product(G_grad, coarse_rows, coarse_grad[1:], width, used - 1, width)
            reader_grad(system_grad.C[m, h], coarse_grad[0])
        if used > 1 and R > 0:
            power_backward(G_grad, fine, transition, correction, workspace, transition_grad, jump_grad)
        if used > 1:
            jump_backward(jump_grad, transition.turn, fine, transition_grad.turn)
        fill_powers_backward(fine_grad, fine_rows, fine, transition, transition_grad)
        store_feature_grad(system_grad, h, transition_grad, fine_grad[0])
