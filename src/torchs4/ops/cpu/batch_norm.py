"""BatchNorm that leaves padding out, in two passes over the data each way.

Rows are positions. Each task keeps to a run of rows and its own sums, block by block: a block is read once
from memory, and twice from the cache. Tasks are joined in double precision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from torchs4.ops.cpu.arrays import as_array, as_rows
from torchs4.ops.cpu.sharing import shared
from torchs4.ops.cpu.workspaces import empty

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Rows per block: at 256 features in single precision it fills half of a small first-level cache.
_ROWS = 16


def masked_batch_norm(
    x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The twin of reference.masked_batch_norm."""
    rows, real = as_rows(x), as_array(mask.reshape(-1))
    out = torch.empty(x.shape, dtype=x.dtype)
    tasks = _tasks(rows)
    counts, means, squares = np.zeros(tasks), *np.zeros((2, tasks, rows.shape[1]))
    _moments(tasks, rows, real, counts, means, squares)
    mean, variance = _joined(counts, means, squares)
    scale = as_array(weight) / np.sqrt(variance + epsilon)
    shift = as_array(bias) - mean * scale
    factors = scale.astype(rows.dtype), shift.astype(rows.dtype)
    _scale_and_shift(_blocks(rows), as_rows(out), rows, real, *factors)
    return out, torch.from_numpy(mean).to(x.dtype), torch.from_numpy(variance).to(x.dtype)


def masked_batch_norm_backward(
    grad: Tensor,
    x: Tensor,
    mask: Tensor,
    weight: Tensor,
    mean: Tensor,
    variance: Tensor,
    epsilon: float,
) -> list[Tensor]:
    """The twin of reference.masked_batch_norm_backward."""
    rows, grads, real = as_rows(x), as_rows(grad), as_array(mask.reshape(-1))
    x_grad = torch.empty(x.shape, dtype=x.dtype)
    tasks = _tasks(rows)
    sums = np.zeros((2, tasks, rows.shape[1]))
    center = as_array(mean)
    _gradient_sums(tasks, grads, rows, real, center, sums)
    total, product = sums.sum(1)
    spread = 1 / np.sqrt(as_array(variance, torch.float64) + epsilon)
    scale = as_array(weight) * spread
    count = real.sum()
    # dx = scale·(g - mean of g - x̂·mean of g x̂), as a combination of g, x - mean and 1.
    slope = -scale * spread * spread * product / count
    offset = -scale * total / count
    factors = np.stack([scale, slope, offset]).astype(rows.dtype)
    _input_gradient(_blocks(rows), as_rows(x_grad), grads, rows, real, center, factors)
    return [x_grad, torch.from_numpy(product * spread).to(x.dtype), torch.from_numpy(total).to(x.dtype)]


def _tasks(rows: NDArray[Any]) -> int:
    return max(1, min(torch.get_num_threads(), len(rows) // _ROWS))


def _blocks(rows: NDArray[Any]) -> int:
    return -(-len(rows) // _ROWS)


def _joined(
    counts: NDArray[Any], means: NDArray[Any], squares: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    count = counts.sum()
    weights = counts[:, None] / count
    mean = (weights * means).sum(0)
    return mean, (squares.sum(0) / count) + (weights * (means - mean) ** 2).sum(0)


@shared
def _moments(task, x, real, counts, means, squares):
    """Per task: how many real rows, their mean, and the sum of squared distances from it."""
    rows, H = x.shape
    tasks = len(counts)
    mean, square = means[task], squares[task]
    block_mean, block_square = empty(H, x.dtype), empty(H, x.dtype)
    count = 0.0
    end = (task + 1) * rows // tasks
    for start in range(task * rows // tasks, end, _ROWS):
        stop = min(end, start + _ROWS)
        block_count = 0
        for column in range(H):
            block_mean[column] = 0
            block_square[column] = 0
        for row in range(start, stop):
            if real[row]:
                block_count += 1
                for column in range(H):
                    block_mean[column] += x[row, column]
        if block_count == 0:
            continue
        share = x.dtype.type(1 / block_count)
        for column in range(H):
            block_mean[column] *= share
        for row in range(start, stop):
            if real[row]:
                for column in range(H):
                    distance = x[row, column] - block_mean[column]
                    block_square[column] += distance * distance
        # Two sets of rows become one: Chan, Golub and LeVeque's rule.
        total = count + block_count
        pull = block_count / total
        between = count * pull
        for column in range(H):
            difference = block_mean[column] - mean[column]
            mean[column] += pull * difference
            square[column] += block_square[column] + between * difference * difference
        count = total
    counts[task] = count


@shared
def _scale_and_shift(block, out, x, real, scale, shift):
    rows, H = x.shape
    for row in range(block * _ROWS, min(rows, (block + 1) * _ROWS)):
        if real[row]:
            for column in range(H):
                out[row, column] = x[row, column] * scale[column] + shift[column]
        else:
            for column in range(H):
                out[row, column] = 0


@shared
def _gradient_sums(task, grad, x, real, center, sums):
    """Per task: the sums over real rows of grad and of grad·(x - center)."""
    rows, H = x.shape
    tasks = sums.shape[1]
    block_total, block_product = empty(H, x.dtype), empty(H, x.dtype)
    end = (task + 1) * rows // tasks
    for start in range(task * rows // tasks, end, _ROWS):
        for column in range(H):
            block_total[column] = 0
            block_product[column] = 0
        for row in range(start, min(end, start + _ROWS)):
            if real[row]:
                for column in range(H):
                    block_total[column] += grad[row, column]
                    block_product[column] += grad[row, column] * (x[row, column] - center[column])
        for column in range(H):
            sums[0, task, column] += block_total[column]
            sums[1, task, column] += block_product[column]


@shared
def _input_gradient(block, x_grad, grad, x, real, center, factors):
    rows, H = x.shape
    for row in range(block * _ROWS, min(rows, (block + 1) * _ROWS)):
        if real[row]:
            for column in range(H):
                distance = x[row, column] - center[column]
                x_grad[row, column] = (
                    grad[row, column] * factors[0, column] + distance * factors[1, column]
                ) + factors[2, column]
        else:
            for column in range(H):
                x_grad[row, column] = 0
