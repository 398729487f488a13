"""The kernel of a DPLR system, C Ā^l b, as a product of two thin matrices; one feature per task.

Axes: M output channels, H features, n modes, R rank, L = J·T samples in J coarse steps of T fine ones.

    K[jT + i] = (C Ā^(jT)) (Ā^i b)

The fine vectors Ā^i b are steps of the recurrence, O(N) each; a coarse step multiplies a row by G = Ā^T. The
backward pass walks the same road back. Products cost L·N + (J + T)·N² multiplications; sums over modes at
L/2 frequencies would cost some 12·L·N.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchs4.ops.cpu.arrays import as_array, as_complex_array
from torchs4.ops.cpu.compiling import compiled
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
    row_width,
    set_reader,
    transition_backward,
    without_tiny,
)
from torchs4.ops.cpu.products import (
    add_product,
    add_transposed_product,
    copy_transposed,
)
from torchs4.ops.cpu.sharing import shared
from torchs4.ops.dtypes import kernel_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Lengths that are reached by fine steps alone.
_SHORT = 64


def modal_kernel(decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, length: int) -> Tensor:
    """The twin of reference.modal_kernel."""
    kernel = torch.empty(*C.shape[:2], length, dtype=kernel_dtype(C))
    tasks, system = _tasks(C), map(as_complex_array, (decay, p, q, b, C))
    _forward(tasks, *system, *_split(length), tasks, kernel.numpy())
    return kernel


def modal_kernel_backward(
    grad: Tensor, decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor
) -> list[Tensor]:
    """The twin of reference.modal_kernel_backward."""
    system = (decay, p, q, b, C)
    grads = [torch.empty(x.shape, dtype=torch.float64) for x in system]
    tasks = _tasks(C)
    _backward(
        tasks,
        as_array(grad),
        *map(as_complex_array, system),
        *_split(grad.shape[-1]),
        tasks,
        *map(as_complex_array, grads),
    )
    return [g.to(x.dtype) for g, x in zip(grads, system, strict=True)]


def power_kernel(a: Tensor, weights: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """The twin of reference.power_kernel: a DPLR system of rank 0 whose b is 1."""
    kernel = torch.empty(*weights.shape[:2], length, dtype=dtype)
    tasks = _tasks(weights)
    _forward(tasks, *_diagonal_system(a, weights), *_split(length), tasks, kernel.numpy())
    return kernel


def power_kernel_backward(grad: Tensor, a: Tensor, weights: Tensor) -> list[Tensor]:
    """The twin of reference.power_kernel_backward."""
    system = _diagonal_system(a, weights)
    grads = [np.empty_like(x) for x in system]
    tasks = _tasks(weights)
    _backward(tasks, as_array(grad), *system, *_split(grad.shape[-1]), tasks, *grads)
    decay_grad, *_, weights_grad = (torch.view_as_real(torch.from_numpy(g)) for g in grads)
    return [-decay_grad, weights_grad]


def _diagonal_system(a: Tensor, weights: Tensor) -> list[NDArray[Any]]:
    modes, C = as_complex_array(a), as_complex_array(weights)
    nothing = np.empty((0, *modes.shape), dtype=np.complex128)
    return [1 - modes, nothing, nothing, np.ones_like(modes), C]


def _split(length: int) -> tuple[int, int]:
    """Fine and coarse steps, in eights and in fours as the products want them."""
    fine = -(-(length if length <= _SHORT else math.isqrt(length)) // 8) * 8
    return fine, -(-length // (4 * fine)) * 4


def _tasks(C: Tensor) -> int:
    return min(torch.get_num_threads(), C.shape[1])


@compiled()
def _fill_coarse(coarse_rows, count, C, jump, G, diagonal):
    """coarse_rows[j] = C G^j, or C a^(jT) when the system is diagonal."""
    width = jump.shape[1]
    coarse_rows[0] = 0.0
    set_reader(coarse_rows[0], C)
    if diagonal:
        nothing = np.empty((0, width))
        fill_powers(coarse_rows, count, jump, nothing, nothing)
        return
    for j in range(1, count):
        coarse_rows[j] = 0.0
        add_product(coarse_rows[j:], coarse_rows[j - 1 :], G, 1, width, width)
        for k in range(width):
            coarse_rows[j, k] = without_tiny(coarse_rows[j, k])


@shared
def _forward(task, decay, p, q, b, C, fine, coarse, tasks, kernel):
    H, n = decay.shape
    M, R, length = C.shape[0], p.shape[0], kernel.shape[2]
    width = row_width(n)
    used = (length + fine - 1) // fine
    turn, jump = np.zeros((2, width)), np.empty((2, width))
    columns, readers = np.zeros((R, width)), np.zeros((R, width))
    fine_rows, fine_columns = np.zeros((fine, width + GAP)), np.empty((width, fine + GAP))
    turned, read = np.empty((R, fine, width + GAP)), np.empty((R, fine, width + GAP))
    G = np.empty((width, width + GAP))
    coarse_rows, product = np.zeros((coarse, width + GAP)), np.empty((coarse, fine + GAP))
    for h in range(task, H, tasks):
        prepare_system(decay, p, q, b, h, turn, columns, readers, fine_rows[0])
        fill_powers(fine_rows, fine, turn, columns, readers)
        copy_transposed(fine_columns, fine_rows, fine, width)
        if used > 1:
            fill_jump(jump, turn, fine)
        if used > 1 and R > 0:
            fill_correction(fine, turn, columns, readers, turned, read)
            fill_transition(G, fine, jump, turned, read)
        for m in range(M):
            _fill_coarse(coarse_rows, used, C[m, h], jump, G, R == 0)
            product[:] = 0.0
            add_product(product, coarse_rows, fine_columns, coarse, width, fine)
            for j in range(used):
                for i in range(min(fine, length - j * fine)):
                    kernel[m, h, j * fine + i] = product[j, i]


@shared
def _backward(task, grad, decay, p, q, b, C, fine, coarse, tasks, decay_grad, p_grad, q_grad, b_grad, C_grad):
    H, n = decay.shape
    M, R, length = C.shape[0], p.shape[0], grad.shape[2]
    width = row_width(n)
    used = (length + fine - 1) // fine
    turn, turn_grad = np.zeros((2, width)), np.empty((2, width))
    jump, jump_grad = np.empty((2, width)), np.empty((2, width))
    columns, readers = np.zeros((R, width)), np.zeros((R, width))
    columns_grad, readers_grad = np.empty((R, width)), np.empty((R, width))
    fine_rows, fine_grad = np.zeros((fine, width + GAP)), np.empty((fine, width + GAP))
    turned, read = np.empty((R, fine, width + GAP)), np.empty((R, fine, width + GAP))
    G, G_grad = np.empty((width, width + GAP)), np.empty((width, width + GAP))
    transposed = np.empty((width, width + GAP))
    coarse_rows, coarse_grad = np.zeros((coarse, width + GAP)), np.empty((coarse, width + GAP))
    product_grad, row_grads = np.zeros((coarse, fine + GAP)), np.empty((fine, width + GAP))
    for h in range(task, H, tasks):
        turn_grad[:] = 0.0
        jump_grad[:] = 0.0
        columns_grad[:] = 0.0
        readers_grad[:] = 0.0
        fine_grad[:] = 0.0
        G_grad[:] = 0.0
        prepare_system(decay, p, q, b, h, turn, columns, readers, fine_rows[0])
        fill_powers(fine_rows, fine, turn, columns, readers)
        if used > 1:
            fill_jump(jump, turn, fine)
        if used > 1 and R > 0:
            fill_correction(fine, turn, columns, readers, turned, read)
            fill_transition(G, fine, jump, turned, read)
            copy_transposed(transposed, G, width, width)
        for m in range(M):
            _fill_coarse(coarse_rows, used, C[m, h], jump, G, R == 0)
            for j in range(used):
                for i in range(min(fine, length - j * fine)):
                    product_grad[j, i] = grad[m, h, j * fine + i]
            coarse_grad[:] = 0.0
            add_product(coarse_grad, product_grad, fine_rows, coarse, fine, width)
            add_transposed_product(fine_grad, product_grad, coarse_rows, fine, coarse, width)
            if R == 0:
                fill_powers_backward(
                    coarse_grad, coarse_rows, used, jump, columns, columns, jump_grad, columns, columns
                )
            elif used > 1:
                for j in range(used - 1, 0, -1):
                    add_product(coarse_grad[j - 1 :], coarse_grad[j:], transposed, 1, width, width)
                add_transposed_product(G_grad, coarse_rows, coarse_grad[1:], width, used - 1, width)
            reader_grad(C_grad[m, h], coarse_grad[0])
        if used > 1 and R > 0:
            transition_backward(
                G_grad,
                fine,
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
        if used > 1:
            jump_backward(jump_grad, turn, fine, turn_grad)
        fill_powers_backward(
            fine_grad, fine_rows, fine, turn, columns, readers, turn_grad, columns_grad, readers_grad
        )
        for k in range(n):
            decay_grad[h, k] = -mode_grad(turn_grad, k)
        column_grad(b_grad[h], fine_grad[0])
        for r in range(R):
            column_grad(p_grad[r, h], columns_grad[r])
            reader_grad(q_grad[r, h], readers_grad[r])
