"""Long convolution of features-last signals: pad, transform, filter, transform back and crop, in one pass.

Eight features go through a transform together, one per vector lane, and two sequences of the batch share it
as real and imaginary part (see `paired_signals`): the kernel is real, so they stay apart. Transforms leave
their frequencies in scrambled order, in which the filter is as well, so nothing is ever reordered.

Axes: B batch, L length, H features. A workspace has `size` rows of eight numbers, for each part.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchs4.ops.cpu.arrays import as_array
from torchs4.ops.cpu.butterflies import (
    adjoint_butterfly,
    filter_butterfly,
    forward_butterfly,
    inverse_butterfly,
    opening_butterfly,
)
from torchs4.ops.cpu.compiling import compiled
from torchs4.ops.cpu.paired_signals import load_pair, load_same, store_pair
from torchs4.ops.cpu.sharing import shared
from torchs4.ops.cpu.vectors import LANES, transpose_tile

if TYPE_CHECKING:
    from numpy.typing import NDArray

_forward_3, _forward_4 = forward_butterfly(3, True), forward_butterfly(4, True)
_forward_5, _forward_8 = forward_butterfly(5, True), forward_butterfly(8, True)
# The first stage of a padded signal: the second half of its rows is zero.
_open_4, _open_8 = opening_butterfly(4), opening_butterfly(8)
_last_4, _last_8 = forward_butterfly(4, False), forward_butterfly(8, False)
_inverse_3, _inverse_4 = inverse_butterfly(3, 3, True), inverse_butterfly(4, 4, True)
_inverse_5, _inverse_8 = inverse_butterfly(5, 5, True), inverse_butterfly(8, 8, True)
# The last stage before cropping: only the first half of the rows is wanted.
_close_4, _close_8 = inverse_butterfly(4, 2, True), inverse_butterfly(8, 4, True)
_first_4, _first_8 = inverse_butterfly(4, 4, False), inverse_butterfly(8, 8, False)
_filter_4, _filter_8 = filter_butterfly(4), filter_butterfly(8)
_adjoint_4, _adjoint_8 = adjoint_butterfly(4), adjoint_butterfly(8)

# Instructions per row of a stage, memory traffic included: what decides between transform sizes.
_STAGE_COST = {8: 15.0, 5: 17.0, 4: 11.0, 3: 13.0}


class _Plan(NamedTuple):
    """The stages of a transform: first and last are of radix 4 or 8."""

    size: int
    radices: NDArray[np.int64]
    twiddles: NDArray[Any]
    starts: NDArray[np.int64]


@lru_cache(maxsize=32)
def _plan(length: int, dtype: torch.dtype) -> _Plan:
    radices = _choose_radices(max(16, 2 * length))
    size = math.prod(radices)
    tables, starts, block = [], [0], size
    for radix in radices[:-1]:
        angles = np.outer(np.arange(block // radix), np.arange(1, radix)) * (-2 * np.pi / block)
        tables.append(np.stack([np.cos(angles), np.sin(angles)], axis=-1).ravel())
        starts.append(starts[-1] + tables[-1].size)
        block //= radix
    number = np.float64 if dtype == torch.float64 else np.float32
    return _Plan(size, np.array(radices), np.concatenate(tables).astype(number), np.array(starts))


def _choose_radices(minimum: int) -> tuple[int, ...]:
    """The cheapest stages whose product is at least `minimum`."""
    best: tuple[float, tuple[int, ...]] = (math.inf, ())
    limit = 1 << (minimum - 1).bit_length()
    for fives in range(4):
        for threes in range(4):
            odd = 5**fives * 3**threes
            twos = max(4, (-(-minimum // odd) - 1).bit_length())
            size = odd << twos
            if not minimum <= size <= max(limit, 16):
                continue
            eights = twos // 3 if twos % 3 != 1 else twos // 3 - 1
            fours = (twos - 3 * eights) // 2
            even = [8] * eights + [4] * fours
            radices = (even[0], *[5] * fives, *[3] * threes, *even[2:], even[1])
            cost = size * sum(_STAGE_COST[radix] for radix in radices)
            best = min(best, (cost, radices))
    return best[1]


@compiled()
def _forward_stage(re, im, table, begin, first, block, radix):
    rows = block // radix
    for j in range(rows):
        offset = (first + j) * LANES
        place = begin + 2 * (radix - 1) * j
        if radix == 8:
            _forward_8(re, im, table, offset, rows * LANES, place)
        elif radix == 4:
            _forward_4(re, im, table, offset, rows * LANES, place)
        elif radix == 5:
            _forward_5(re, im, table, offset, rows * LANES, place)
        else:
            _forward_3(re, im, table, offset, rows * LANES, place)


@compiled()
def _inverse_stage(re, im, table, begin, first, block, radix):
    rows = block // radix
    for j in range(rows):
        offset = (first + j) * LANES
        place = begin + 2 * (radix - 1) * j
        if radix == 8:
            _inverse_8(re, im, table, offset, rows * LANES, place)
        elif radix == 4:
            _inverse_4(re, im, table, offset, rows * LANES, place)
        elif radix == 5:
            _inverse_5(re, im, table, offset, rows * LANES, place)
        else:
            _inverse_3(re, im, table, offset, rows * LANES, place)


@compiled()
def _open(re, im, table, scale, size, radix):
    """The first stage of a signal that fills at most half the rows, times the factors of its parts."""
    rows = size // radix
    for j in range(rows):
        if radix == 8:
            _open_8(re, im, table, scale, j * LANES, rows * LANES, 14 * j)
        else:
            _open_4(re, im, table, scale, j * LANES, rows * LANES, 6 * j)


@compiled()
def _close(re, im, table, size, radix):
    rows = size // radix
    for j in range(rows):
        if radix == 8:
            _close_8(re, im, table, j * LANES, rows * LANES, 14 * j)
        else:
            _close_4(re, im, table, j * LANES, rows * LANES, 6 * j)


@compiled()
def _inner_size(radices, block):
    """The rows that are left to a sub-block after the second stage, if there is one before the last."""
    return block // radices[1] if radices.shape[0] > 2 else block


@compiled()
def _outer_forward(re, im, radices, table, starts, first, block):
    """The second stage, which spans a block."""
    if radices.shape[0] > 2:
        _forward_stage(re, im, table, starts[1], first, block, radices[1])


@compiled()
def _outer_inverse(re, im, radices, table, starts, first, block):
    if radices.shape[0] > 2:
        _inverse_stage(re, im, table, starts[1], first, block, radices[1])


@compiled()
def _inner_forward(re, im, radices, table, starts, first, block):
    """Stages from the third up to the one before the last, on one sub-block, which fits a fast cache."""
    size = block
    for stage in range(2, radices.shape[0] - 1):
        for start in range(first, first + block, size):
            _forward_stage(re, im, table, starts[stage], start, size, radices[stage])
        size //= radices[stage]


@compiled()
def _inner_inverse(re, im, radices, table, starts, first, block):
    last = radices.shape[0] - 1
    size = radices[last]
    for stage in range(last - 1, 1, -1):
        size *= radices[stage]
        for start in range(first, first + block, size):
            _inverse_stage(re, im, table, starts[stage], start, size, radices[stage])


@compiled()
def _apply_filter(re, im, fre, fim, first, block, radix):
    for row in range(first, first + block, radix):
        if radix == 8:
            _filter_8(re, im, fre, fim, row * LANES)
        else:
            _filter_4(re, im, fre, fim, row * LANES)


@compiled()
def _transform_kernel(re, im, size, radices, table, starts, both_ends):
    """The whole forward transform of a kernel; one with a backward part fills both ends."""
    if both_ends:
        _forward_stage(re, im, table, 0, 0, size, radices[0])
    else:
        _open(re, im, table, np.ones(2 * LANES, re.dtype), size, radices[0])
    block = size // radices[0]
    radix = radices[radices.shape[0] - 1]
    inner = _inner_size(radices, block)
    for first in range(0, size, block):
        _outer_forward(re, im, radices, table, starts, first, block)
        for sub in range(first, first + block, inner):
            _inner_forward(re, im, radices, table, starts, sub, inner)
    for row in range(0, size, radix):
        if radix == 8:
            _last_8(re, im, table, row * LANES, LANES, 0)
        else:
            _last_4(re, im, table, row * LANES, LANES, 0)


@compiled()
def _load_kernel(re, im, kernel, backward, both_ends, skip, feature, size):
    length = kernel.shape[1]
    lanes = min(LANES, kernel.shape[0] - feature)
    scale = re.dtype.type(1.0 / size)
    re[:] = 0.0
    im[:] = 0.0
    by_eights = length // LANES * LANES if lanes == LANES else 0
    for t in range(0, by_eights, LANES):
        transpose_tile(re, kernel, t * LANES, LANES, feature * length + t, length)
    for lane in range(lanes):
        for t in range(by_eights, length):
            re[t * LANES + lane] = kernel[feature + lane, t]
        re[lane] += skip[feature + lane]
        if both_ends:
            for t in range(length - 1):
                re[(size - 1 - t) * LANES + lane] = backward[feature + lane, t]
    for place in range(size * LANES):
        re[place] *= scale


@compiled()
def _store_kernel_grad(kernel_grad, backward_grad, both_ends, re, feature, size):
    """The adjoint of `_load_kernel`; the first sample's gradient is the skip's too."""
    length = kernel_grad.shape[1]
    lanes = min(LANES, kernel_grad.shape[0] - feature)
    scale = re.dtype.type(1.0 / size)
    for place in range(size * LANES):
        re[place] *= scale
    by_eights = length // LANES * LANES if lanes == LANES else 0
    for t in range(0, by_eights, LANES):
        transpose_tile(kernel_grad, re, feature * length + t, length, t * LANES, LANES)
    for lane in range(lanes):
        for t in range(by_eights, length):
            kernel_grad[feature + lane, t] = re[t * LANES + lane]
        if both_ends:
            backward_grad[feature + lane, length - 1] = 0.0
            for t in range(length - 1):
                backward_grad[feature + lane, t] = re[(size - 1 - t) * LANES + lane]


@shared
def _forward(task, u, kernel, backward, both_ends, skip, y, size, radices, table, starts, tasks):
    B, _, H = u.shape
    groups = (H + LANES - 1) // LANES
    block = size // radices[0]
    inner = _inner_size(radices, block)
    radix = radices[radices.shape[0] - 1]
    re, im = np.empty(size * LANES, table.dtype), np.empty(size * LANES, table.dtype)
    fre, fim = np.empty(size * LANES, table.dtype), np.empty(size * LANES, table.dtype)
    scale, back = np.empty(2 * LANES, table.dtype), np.empty(2 * LANES, table.dtype)
    for group in range(task, groups, tasks):
        feature = group * LANES
        _load_kernel(fre, fim, kernel, backward, both_ends, skip, feature, size)
        _transform_kernel(fre, fim, size, radices, table, starts, both_ends)
        b = 0
        while b < B:
            count = load_pair(re, im, u, b, feature, size // 2, scale, back)
            _open(re, im, table, scale, size, radices[0])
            for first in range(0, size, block):
                _outer_forward(re, im, radices, table, starts, first, block)
                for sub in range(first, first + block, inner):
                    _inner_forward(re, im, radices, table, starts, sub, inner)
                    _apply_filter(re, im, fre, fim, sub, inner, radix)
                    _inner_inverse(re, im, radices, table, starts, sub, inner)
                _outer_inverse(re, im, radices, table, starts, first, block)
            _close(re, im, table, size, radices[0])
            store_pair(re, im, y, b, count, feature, back)
            b += count


@shared
def _backward(
    task,
    grad,
    u,
    kernel,
    backward,
    both_ends,
    skip,
    u_grad,
    kernel_grad,
    backward_grad,
    size,
    radices,
    table,
    starts,
    tasks,
):
    B, _, H = u.shape
    groups = (H + LANES - 1) // LANES
    block = size // radices[0]
    inner = _inner_size(radices, block)
    radix = radices[radices.shape[0] - 1]
    re, im = np.empty(size * LANES, table.dtype), np.empty(size * LANES, table.dtype)
    gre, gim = np.empty(size * LANES, table.dtype), np.empty(size * LANES, table.dtype)
    fre, fim = np.empty(size * LANES, table.dtype), np.empty(size * LANES, table.dtype)
    sre, sim = np.empty(size * LANES, table.dtype), np.empty(size * LANES, table.dtype)
    scale, back = np.empty(2 * LANES, table.dtype), np.empty(2 * LANES, table.dtype)
    peaks = np.empty(2 * LANES, table.dtype)
    for group in range(task, groups, tasks):
        feature = group * LANES
        _load_kernel(fre, fim, kernel, backward, both_ends, skip, feature, size)
        _transform_kernel(fre, fim, size, radices, table, starts, both_ends)
        sre[:] = 0.0
        sim[:] = 0.0
        b = 0
        while b < B:
            count = load_pair(gre, gim, grad, b, feature, size // 2, scale, back)
            load_same(re, im, u, b, count, feature, size // 2, peaks)
            _open(gre, gim, table, scale, size, radices[0])
            # The signal takes what the gradient gave away: their products, which are summed, keep
            # their size.
            _open(re, im, table, back, size, radices[0])
            for first in range(0, size, block):
                _outer_forward(re, im, radices, table, starts, first, block)
                _outer_forward(gre, gim, radices, table, starts, first, block)
                for sub in range(first, first + block, inner):
                    _inner_forward(re, im, radices, table, starts, sub, inner)
                    _inner_forward(gre, gim, radices, table, starts, sub, inner)
                    for row in range(sub, sub + inner, radix):
                        if radix == 8:
                            _adjoint_8(re, im, gre, gim, fre, fim, sre, sim, row * LANES)
                        else:
                            _adjoint_4(re, im, gre, gim, fre, fim, sre, sim, row * LANES)
                    _inner_inverse(gre, gim, radices, table, starts, sub, inner)
                _outer_inverse(gre, gim, radices, table, starts, first, block)
            _close(gre, gim, table, size, radices[0])
            store_pair(gre, gim, u_grad, b, count, feature, back)
            b += count
        # The sums' inverse transform has the kernel's gradient as its real part.
        for row in range(0, size, radix):
            if radix == 8:
                _first_8(sre, sim, table, row * LANES, LANES, 0)
            else:
                _first_4(sre, sim, table, row * LANES, LANES, 0)
        for first in range(0, size, block):
            for sub in range(first, first + block, inner):
                _inner_inverse(sre, sim, radices, table, starts, sub, inner)
            _outer_inverse(sre, sim, radices, table, starts, first, block)
        _inverse_stage(sre, sim, table, 0, 0, size, radices[0])
        _store_kernel_grad(kernel_grad, backward_grad, both_ends, sre, feature, size)


def long_convolution(
    u: Tensor, kernel: Tensor, backward_kernel: Tensor | None, skip: Tensor | None
) -> Tensor:
    """The twin of reference.long_convolution."""
    y = torch.empty(kernel.shape[0], *u.shape, dtype=kernel.dtype)
    plan = _plan(u.shape[1], kernel.dtype)
    signal, kernels = as_array(u, kernel.dtype), as_array(kernel, kernel.dtype)
    # numba wants an array in either case; without a backward kernel it is not read.
    backward = kernels if backward_kernel is None else as_array(backward_kernel, kernel.dtype)
    both_ends = backward_kernel is not None
    skips = _skips(skip, kernel)
    tasks = _tasks(u)
    for channel, out in enumerate(y):
        kernel_and_skip = kernels[channel], backward[channel], both_ends, skips[channel]
        _forward(tasks, signal, *kernel_and_skip, out.numpy(), *plan, tasks)
    return y


def long_convolution_backward(
    grad: Tensor, u: Tensor, kernel: Tensor, backward_kernel: Tensor | None, skip: Tensor | None
) -> list[Tensor]:
    """The twin of reference.long_convolution_backward."""
    plan = _plan(u.shape[1], kernel.dtype)
    signal, kernels = as_array(u, kernel.dtype), as_array(kernel, kernel.dtype)
    backward = kernels if backward_kernel is None else as_array(backward_kernel, kernel.dtype)
    both_ends = backward_kernel is not None
    skips = _skips(skip, kernel)
    kernel_grad = torch.empty(kernel.shape, dtype=kernel.dtype)
    backward_grad = torch.empty(kernel.shape, dtype=kernel.dtype) if both_ends else kernel_grad
    u_grads, tasks = [], _tasks(u)
    for channel, grad_channel in enumerate(grad):
        u_grads.append(torch.empty(u.shape, dtype=kernel.dtype))
        _backward(
            tasks,
            as_array(grad_channel, kernel.dtype),
            signal,
            kernels[channel],
            backward[channel],
            both_ends,
            skips[channel],
            u_grads[-1].numpy(),
            kernel_grad[channel].numpy(),
            backward_grad[channel].numpy(),
            *plan,
            tasks,
        )
    u_grad = u_grads[0] if len(u_grads) == 1 else torch.stack(u_grads).sum(0)
    return [u_grad.to(u.dtype), kernel_grad, *([backward_grad] if both_ends else [])]


def _skips(skip: Tensor | None, kernel: Tensor) -> NDArray[Any]:
    return as_array(kernel.new_zeros(kernel.shape[:2]) if skip is None else skip, kernel.dtype)


def _tasks(u: Tensor) -> int:
    groups = -(-u.shape[2] // LANES)
    return max(1, min(torch.get_num_threads(), groups))
