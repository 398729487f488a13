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
from torchs4.ops.cpu.workspaces import empty

if TYPE_CHECKING:
    from collections.abc import Iterator

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


class _Filter(NamedTuple):
    """A channel's kernels; the backward one is read only if the filter has both ends. Or gradients."""

    kernel: NDArray[Any]
    backward: NDArray[Any]
    both_ends: bool
    skip: NDArray[Any]


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
def _open(re, im, plan, scale):
    """The first stage of a signal that fills at most half the rows, times the factors of its parts."""
    table, radix = plan.twiddles, plan.radices[0]
    rows = plan.size // radix
    for j in range(rows):
        if radix == 8:
            _open_8(re, im, table, scale, j * LANES, rows * LANES, 14 * j)
        else:
            _open_4(re, im, table, scale, j * LANES, rows * LANES, 6 * j)


@compiled()
def _close(re, im, plan):
    table, radix = plan.twiddles, plan.radices[0]
    rows = plan.size // radix
    for j in range(rows):
        if radix == 8:
            _close_8(re, im, table, j * LANES, rows * LANES, 14 * j)
        else:
            _close_4(re, im, table, j * LANES, rows * LANES, 6 * j)


@compiled()
def _nested_sizes(plan):
    """The rows of a block after the first stage; of a sub-block, after the second, if it is not the last; and
    the radix of the last.
    """
    block = plan.size // plan.radices[0]
    inner = block // plan.radices[1] if plan.radices.shape[0] > 2 else block
    return block, inner, plan.radices[plan.radices.shape[0] - 1]


@compiled()
def _outer_forward(re, im, plan, first, block):
    """The second stage, which spans a block."""
    if plan.radices.shape[0] > 2:
        _forward_stage(re, im, plan.twiddles, plan.starts[1], first, block, plan.radices[1])


@compiled()
def _outer_inverse(re, im, plan, first, block):
    if plan.radices.shape[0] > 2:
        _inverse_stage(re, im, plan.twiddles, plan.starts[1], first, block, plan.radices[1])


@compiled()
def _inner_forward(re, im, plan, first, block):
    """Stages from the third up to the one before the last, on one sub-block, which fits a fast cache."""
    size = block
    for stage in range(2, plan.radices.shape[0] - 1):
        for start in range(first, first + block, size):
            _forward_stage(re, im, plan.twiddles, plan.starts[stage], start, size, plan.radices[stage])
        size //= plan.radices[stage]


@compiled()
def _inner_inverse(re, im, plan, first, block):
    last = plan.radices.shape[0] - 1
    size = plan.radices[last]
    for stage in range(last - 1, 1, -1):
        size *= plan.radices[stage]
        for start in range(first, first + block, size):
            _inverse_stage(re, im, plan.twiddles, plan.starts[stage], start, size, plan.radices[stage])


@compiled()
def _apply_filter(re, im, fre, fim, first, block, radix):
    for row in range(first, first + block, radix):
        if radix == 8:
            _filter_8(re, im, fre, fim, row * LANES)
        else:
            _filter_4(re, im, fre, fim, row * LANES)


@compiled()
def _transform_kernel(re, im, plan, both_ends):
    """The whole forward transform of a kernel; one with a backward part fills both ends."""
    size, radices, table, _ = plan
    if both_ends:
        _forward_stage(re, im, table, 0, 0, size, radices[0])
    else:
        _open(re, im, plan, np.ones(2 * LANES, re.dtype))
    block, inner, radix = _nested_sizes(plan)
    for first in range(0, size, block):
        _outer_forward(re, im, plan, first, block)
        for sub in range(first, first + block, inner):
            _inner_forward(re, im, plan, sub, inner)
    for row in range(0, size, radix):
        if radix == 8:
            _last_8(re, im, table, row * LANES, LANES, 0)
        else:
            _last_4(re, im, table, row * LANES, LANES, 0)


@compiled()
def _load_kernel(re, im, response, feature, size):
    kernel, backward, both_ends, skip = response
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
def _store_kernel_grad(response_grad, re, feature, size):
    """The adjoint of `_load_kernel`; the first sample's gradient is the skip's too."""
    kernel_grad, backward_grad, both_ends, _ = response_grad
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


@compiled()
def _new_signal(plan):
    """Real and imaginary parts of eight signals."""
    return empty(plan.size * LANES, plan.twiddles.dtype), empty(plan.size * LANES, plan.twiddles.dtype)


@compiled()
def _new_factors(plan):
    return empty(2 * LANES, plan.twiddles.dtype)


@shared
def _forward(task, u, response, y, plan, tasks):
    B, _, H = u.shape
    groups, size = (H + LANES - 1) // LANES, plan.size
    block, inner, radix = _nested_sizes(plan)
    (re, im), (fre, fim) = _new_signal(plan), _new_signal(plan)
    scale, back = _new_factors(plan), _new_factors(plan)
    for group in range(task, groups, tasks):
        feature = group * LANES
        _load_kernel(fre, fim, response, feature, size)
        _transform_kernel(fre, fim, plan, response.both_ends)
        b = 0
        while b < B:
            count = load_pair(re, im, u, b, feature, size // 2, scale, back)
            _open(re, im, plan, scale)
            for first in range(0, size, block):
                _outer_forward(re, im, plan, first, block)
                for sub in range(first, first + block, inner):
                    _inner_forward(re, im, plan, sub, inner)
                    _apply_filter(re, im, fre, fim, sub, inner, radix)
                    _inner_inverse(re, im, plan, sub, inner)
                _outer_inverse(re, im, plan, first, block)
            _close(re, im, plan)
            store_pair(re, im, y, b, count, feature, back)
            b += count


@shared
def _backward(task, grad, u, response, u_grad, response_grad, plan, tasks):
    """The adjoint of `_forward`. With transforms û, ĝ and f̂ of signal, gradient and filter:

        u grad = the inverse transform of ĝ·f̂*        filter grad = that of Σ_b û*·ĝ

    each cropped to what was padded. Two sequences share û and ĝ as real and imaginary parts; the filter is
    real, so of the inverse transform the real part counts, where their products with themselves add up.
    """
    B, _, H = u.shape
    groups, size = (H + LANES - 1) // LANES, plan.size
    block, inner, radix = _nested_sizes(plan)
    (re, im), (gre, gim) = _new_signal(plan), _new_signal(plan)
    (fre, fim), (sre, sim) = _new_signal(plan), _new_signal(plan)
    scale, back, peaks = _new_factors(plan), _new_factors(plan), _new_factors(plan)
    for group in range(task, groups, tasks):
        feature = group * LANES
        _load_kernel(fre, fim, response, feature, size)
        _transform_kernel(fre, fim, plan, response.both_ends)
        sre[:] = 0.0
        sim[:] = 0.0
        b = 0
        while b < B:
            count = load_pair(gre, gim, grad, b, feature, size // 2, scale, back)
            load_same(re, im, u, b, count, feature, size // 2, peaks)
            _open(gre, gim, plan, scale)
            # The signal takes what the gradient gave away: their products, which are summed, keep
            # their size.
            _open(re, im, plan, back)
            for first in range(0, size, block):
                _outer_forward(re, im, plan, first, block)
                _outer_forward(gre, gim, plan, first, block)
                for sub in range(first, first + block, inner):
                    _inner_forward(re, im, plan, sub, inner)
                    _inner_forward(gre, gim, plan, sub, inner)
                    for row in range(sub, sub + inner, radix):
                        if radix == 8:
                            _adjoint_8(re, im, gre, gim, fre, fim, sre, sim, row * LANES)
                        else:
                            _adjoint_4(re, im, gre, gim, fre, fim, sre, sim, row * LANES)
                    _inner_inverse(gre, gim, plan, sub, inner)
                _outer_inverse(gre, gim, plan, first, block)
            _close(gre, gim, plan)
            store_pair(gre, gim, u_grad, b, count, feature, back)
            b += count
        # The sums' inverse transform has the kernel's gradient as its real part.
        for row in range(0, size, radix):
            if radix == 8:
                _first_8(sre, sim, plan.twiddles, row * LANES, LANES, 0)
            else:
                _first_4(sre, sim, plan.twiddles, row * LANES, LANES, 0)
        for first in range(0, size, block):
            for sub in range(first, first + block, inner):
                _inner_inverse(sre, sim, plan, sub, inner)
            _outer_inverse(sre, sim, plan, first, block)
        _inverse_stage(sre, sim, plan.twiddles, 0, 0, size, plan.radices[0])
        _store_kernel_grad(response_grad, sre, feature, size)


def long_convolution(
    u: Tensor, kernel: Tensor, backward_kernel: Tensor | None, skip: Tensor | None
) -> Tensor:
    """The twin of reference.long_convolution."""
    y = torch.empty(kernel.shape[0], *u.shape, dtype=kernel.dtype)
    plan, tasks = _plan(u.shape[1], kernel.dtype), _tasks(u)
    signal = as_array(u, kernel.dtype)
    for response, out in zip(_filters(kernel, backward_kernel, skip), y, strict=True):
        _forward(tasks, signal, response, out.numpy(), plan, tasks)
    return y


def long_convolution_backward(
    grad: Tensor, u: Tensor, kernel: Tensor, backward_kernel: Tensor | None, skip: Tensor | None
) -> list[Tensor]:
    """The twin of reference.long_convolution_backward."""
    plan, tasks = _plan(u.shape[1], kernel.dtype), _tasks(u)
    signal, grads = as_array(u, kernel.dtype), as_array(grad, kernel.dtype)
    kernel_grads = [
        torch.empty(kernel.shape, dtype=kernel.dtype) for x in (kernel, backward_kernel) if x is not None
    ]
    responses = zip(
        _filters(kernel, backward_kernel, skip),
        _filters(kernel_grads[0], kernel_grads[1] if len(kernel_grads) > 1 else None, None),
        strict=True,
    )
    u_grads = []
    for grad_channel, (response, response_grad) in zip(grads, responses, strict=True):
        u_grads.append(torch.empty(u.shape, dtype=kernel.dtype))
        _backward(tasks, grad_channel, signal, response, u_grads[-1].numpy(), response_grad, plan, tasks)
    u_grad = u_grads[0] if len(u_grads) == 1 else torch.stack(u_grads).sum(0)
    return [u_grad.to(u.dtype), *kernel_grads]


def _filters(kernel: Tensor, backward_kernel: Tensor | None, skip: Tensor | None) -> Iterator[_Filter]:
    """Every channel's filter."""
    both_ends = backward_kernel is not None
    kernels = as_array(kernel)
    # numba wants an array in either case; without a backward kernel it is not read.
    backward = as_array(backward_kernel, kernel.dtype) if backward_kernel is not None else kernels
    skips = as_array(kernel.new_zeros(kernel.shape[:2]) if skip is None else skip, kernel.dtype)
    for channel in zip(kernels, backward, skips, strict=True):
        yield _Filter(channel[0], channel[1], both_ends, channel[2])


def _tasks(u: Tensor) -> int:
    groups = -(-u.shape[2] // LANES)
    return max(1, min(torch.get_num_threads(), groups))
