"""The recurrence over a chunk, block by block, as small matrix products; some features per task.

A feature's signal is a matrix with one row per block and sequence, blocks first. With U the rows of the
signal, X the states at their beginnings and Y the outputs, all as rows:

    X[next block] = X + X·change + U·reach        Y = X·sight + U·toeplitz(response)

Axes: B batch, L length, H features, M output channels, T samples of a block, N state size. Workspaces are
wider than T and N: products want their columns in eights.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchs4.ops.cpu.arrays import as_array
from torchs4.ops.cpu.compiling import compiled
from torchs4.ops.cpu.products import (
    add_product,
    add_toeplitz_product,
    add_transposed_product,
    add_transposed_toeplitz_product,
    add_upper_transposed_product,
    copy_matrix,
    copy_transposed,
)
from torchs4.ops.cpu.sharing import shared
from torchs4.ops.cpu.vectors import LANES, transpose_tile
from torchs4.ops.cpu.workspaces import empty

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Features that are read together: more of them would not fit a core's cache with all that belongs to them.
_GROUP = LANES
# Samples of a feature, of all sequences together, that are in work at a time.
_SEGMENT = 8192
# Unused numbers at the end of a row, so that rows do not crowd into few sets of the cache.
_GAP = 2 * LANES


def chunk_pass(
    reach: Tensor,
    sight: Tensor,
    response: Tensor,
    change: Tensor,
    skip: Tensor,
    u: Tensor,
    state: Tensor,
) -> tuple[Tensor, Tensor]:
    """The twin of reference.chunk_pass."""
    y = torch.empty(sight.shape[0], *u.shape, dtype=reach.dtype)
    final = torch.empty(state.shape, dtype=reach.dtype)
    chunk = _chunk(reach.dtype, reach, sight, response, change, skip, u, state)
    sizes = _sizes(u, reach)
    _forward(sizes.tasks, chunk, y.numpy(), final.numpy(), sizes)
    return y, final


def chunk_pass_backward(
    grad: Tensor,
    final_grad: Tensor,
    reach: Tensor,
    sight: Tensor,
    response: Tensor,
    change: Tensor,
    skip: Tensor,
    u: Tensor,
    state: Tensor,
) -> list[Tensor]:
    """The gradients of `chunk_pass` for its tensors."""
    inputs = (reach, sight, response, change, skip, u, state)
    grads = [torch.empty(x.shape, dtype=reach.dtype) for x in inputs]
    chunk, chunk_grad = _chunk(reach.dtype, *inputs), _chunk(reach.dtype, *grads)
    output_grads = as_array(grad, reach.dtype), as_array(final_grad, reach.dtype)
    sizes = _sizes(u, reach)
    _backward(sizes.tasks, *output_grads, chunk, chunk_grad, sizes)
    return [g.to(x.dtype) for g, x in zip(grads, inputs, strict=True)]


class _Chunk(NamedTuple):
    """What systems do to a block, signals, and the states before them; or gradients."""

    reach: NDArray[Any]
    sight: NDArray[Any]
    response: NDArray[Any]
    change: NDArray[Any]
    skip: NDArray[Any]
    u: NDArray[Any]
    state: NDArray[Any]


def _chunk(dtype: torch.dtype, *tensors: Tensor) -> _Chunk:
    return _Chunk(*(as_array(x, dtype) for x in tensors))


class _Sizes(NamedTuple):
    """Blocks of a segment, features of a group, and groups that are in work at a time."""

    blocks: int
    group: int
    tasks: int


def _sizes(u: Tensor, reach: Tensor) -> _Sizes:
    batch, length, features = u.shape
    block, threads = reach.shape[1], torch.get_num_threads()
    blocks = max(1, min(-(-length // block), _SEGMENT // (batch * block)))
    group = min(_GROUP, -(-features // threads))
    return _Sizes(blocks, group, min(threads, -(-features // group)))


@compiled()
def _load(rows, signal, feature, lanes, begin, blocks, block):
    """Rows (block, sequence) of some features; what lies beyond the signal is zero."""
    B, length, H = signal.shape
    _, count, gap = rows.shape
    for j in range(blocks):
        start = (begin + j) * block
        inside = min(block, length - start)
        for b in range(B):
            row = j * B + b
            by_eights = inside // LANES * LANES if lanes % LANES == 0 else 0
            for i in range(0, by_eights, LANES):
                for lane in range(0, lanes, LANES):
                    place = ((b * length) + start + i) * H + feature + lane
                    transpose_tile(rows, signal, (lane * count + row) * gap + i, count * gap, place, H)
            for lane in range(lanes):
                for i in range(by_eights, inside):
                    rows[lane, row, i] = signal[b, start + i, feature + lane]
                for i in range(inside, gap):
                    rows[lane, row, i] = 0.0


@compiled()
def _store(signal, rows, feature, lanes, begin, blocks, block):
    B, length, H = signal.shape
    _, count, gap = rows.shape
    for j in range(blocks):
        start = (begin + j) * block
        inside = min(block, length - start)
        for b in range(B):
            row = j * B + b
            by_eights = inside // LANES * LANES if lanes % LANES == 0 else 0
            for i in range(0, by_eights, LANES):
                for lane in range(0, lanes, LANES):
                    place = ((b * length) + start + i) * H + feature + lane
                    transpose_tile(signal, rows, place, H, (lane * count + row) * gap + i, count * gap)
            for i in range(by_eights, inside):
                for lane in range(lanes):
                    signal[b, start + i, feature + lane] = rows[lane, row, i]


@compiled()
def _copy_upside_down(target, source, rows, columns):
    for i in range(rows):
        for j in range(columns):
            target[rows - 1 - i, j] = source[i, j]


@compiled()
def _advance(X, U, latest_first, change, first, blocks, B, block, width):
    """X of all blocks, and of the one after the last, from that of the block `first`."""
    rows = blocks * B
    begin = first * B
    following = X[begin + B :]
    for i in range(rows):
        for k in range(width):
            following[i, k] = 0.0
    add_product(following, U, latest_first, rows, block, width)
    for j in range(blocks):
        now, after = X[begin + j * B :], X[begin + j * B + B :]
        for b in range(B):
            for k in range(width):
                after[b, k] += now[b, k]
        add_product(after, now, change, B, width, width)


@compiled()
def _up_to_eights(number):
    return (number + LANES - 1) // LANES * LANES


@shared
def _forward(task, chunk, y, final, sizes):
    reach, sight, response, change, skip, u, state = chunk
    blocks, group, tasks = sizes
    M, H, block, N = sight.shape
    B, length, _ = u.shape
    columns, width = _up_to_eights(block), _up_to_eights(N)
    groups, all_blocks = (H + group - 1) // group, (length + block - 1) // block
    kind = reach.dtype
    signal = empty((group, blocks * B, columns + _GAP), kind)
    outputs = empty((M, group, blocks * B, columns + _GAP), kind)
    X = np.zeros(((blocks + 1) * B, width + _GAP), kind)
    states = np.zeros((group, B, width), kind)
    latest_first = np.zeros((group, block, width + _GAP), kind)
    changes = np.zeros((group, width, width + _GAP), kind)
    seen = np.zeros((M, group, width, columns + _GAP), kind)
    responses = np.zeros((M, group, columns + block), kind)
    for index in range(task, groups, tasks):
        feature = index * group
        lanes = min(group, H - feature)
        for lane in range(lanes):
            h = feature + lane
            _copy_upside_down(latest_first[lane], reach[h], block, N)
            copy_matrix(changes[lane], change[h], N, N)
            copy_matrix(states[lane], state[:, h], B, N)
            for m in range(M):
                copy_transposed(seen[m, lane], sight[m, h], block, N)
                for i in range(block):
                    responses[m, lane, block + i] = response[m, h, i]
                responses[m, lane, block] += skip[m, h]
        for begin in range(0, all_blocks, blocks):
            now = min(blocks, all_blocks - begin)
            rows = now * B
            _load(signal, u, feature, lanes, begin, now, block)
            for lane in range(lanes):
                copy_matrix(X, states[lane], B, width)
                _advance(X, signal[lane], latest_first[lane], changes[lane], 0, now, B, block, width)
                copy_matrix(states[lane], X[rows:], B, width)
                for m in range(M):
                    out = outputs[m, lane]
                    for i in range(rows):
                        for k in range(columns):
                            out[i, k] = 0.0
                    add_product(out, X, seen[m, lane], rows, width, columns)
                    add_toeplitz_product(out, signal[lane], responses[m, lane], rows, block, columns)
            for m in range(M):
                _store(y[m], outputs[m], feature, lanes, begin, now, block)
        for lane in range(lanes):
            copy_matrix(final[:, feature + lane], states[lane], B, N)


@shared
def _backward(task, grad, final_grad, chunk, chunk_grad, sizes):
    """The adjoint of `_forward`, from the last block back. With G the gradients of Y, Z those of X as rows:

        Z = Z[next]·(1 + change)ᵀ + G·sightᵀ        U grad = Z[next]·reachᵀ + G·toeplitz(response)ᵀ
        change grad = Σ Xᵀ·Z[next]                  reach grad = Σ Uᵀ·Z[next]
        sight grad = Σ Xᵀ·G                         toeplitz grad = Σ Uᵀ·G, summed along diagonals

    The states X of every block are computed anew before.
    """
    reach, sight, response, change, skip, u, state = chunk
    reach_grad, sight_grad, response_grad, change_grad, skip_grad, u_grad, state_grad = chunk_grad
    blocks, group, tasks = sizes
    M, H, block, N = sight.shape
    B, length, _ = u.shape
    columns, width = _up_to_eights(block), _up_to_eights(N)
    groups, all_blocks = (H + group - 1) // group, (length + block - 1) // block
    kind = reach.dtype
    signal = empty((group, blocks * B, columns + _GAP), kind)
    grads = empty((M, group, blocks * B, columns + _GAP), kind)
    signal_grad = empty((blocks * B, columns + _GAP), kind)
    # The states at the beginning of every block of the whole signal.
    X = np.zeros((group, (all_blocks + 1) * B, width + _GAP), kind)
    X_grad = np.zeros(((blocks + 1) * B, width + _GAP), kind)
    later = np.zeros((group, B, width), kind)
    latest_first = np.zeros((group, block, width + _GAP), kind)
    reached = np.zeros((group, width, columns + _GAP), kind)
    changes, changes_back = (
        np.zeros((group, width, width + _GAP), kind),
        np.zeros((group, width, width + _GAP), kind),
    )
    sights = np.zeros((M, group, block, width + _GAP), kind)
    responses = np.zeros((M, group, columns + block), kind)
    latest_grad = np.zeros((group, columns, width + _GAP), kind)
    changes_grad = np.zeros((group, width, width + _GAP), kind)
    sights_grad = np.zeros((M, group, columns, width + _GAP), kind)
    toeplitz_grad = np.zeros((M, group, columns, columns + _GAP), kind)
    for index in range(task, groups, tasks):
        feature = index * group
        lanes = min(group, H - feature)
        latest_grad[:] = 0.0
        changes_grad[:] = 0.0
        sights_grad[:] = 0.0
        toeplitz_grad[:] = 0.0
        for lane in range(lanes):
            h = feature + lane
            _copy_upside_down(latest_first[lane], reach[h], block, N)
            copy_transposed(reached[lane], latest_first[lane], block, N)
            copy_matrix(changes[lane], change[h], N, N)
            copy_transposed(changes_back[lane], change[h], N, N)
            copy_matrix(X[lane], state[:, h], B, N)
            copy_matrix(later[lane], final_grad[:, h], B, N)
            for m in range(M):
                copy_matrix(sights[m, lane], sight[m, h], block, N)
                # Backwards: from a position's gradient to the samples before it.
                for i in range(block):
                    responses[m, lane, block - i] = response[m, h, i]
                responses[m, lane, block] += skip[m, h]
        last = (all_blocks - 1) // blocks * blocks
        for begin in range(0, all_blocks, blocks):
            now = min(blocks, all_blocks - begin)
            _load(signal, u, feature, lanes, begin, now, block)
            for lane in range(lanes):
                _advance(
                    X[lane], signal[lane], latest_first[lane], changes[lane], begin, now, B, block, width
                )
        for begin in range(last, -1, -blocks):
            now = min(blocks, all_blocks - begin)
            rows = now * B
            if begin != last:
                _load(signal, u, feature, lanes, begin, now, block)
            for m in range(M):
                _load(grads[m], grad[m], feature, lanes, begin, now, block)
            for lane in range(lanes):
                U, starts, turn = signal[lane], X[lane, begin * B :], changes_back[lane]
                for i in range(rows):
                    for k in range(width):
                        X_grad[i, k] = 0.0
                    for k in range(columns):
                        signal_grad[i, k] = 0.0
                copy_matrix(X_grad[rows:], later[lane], B, width)
                for m in range(M):
                    add_product(X_grad, grads[m, lane], sights[m, lane], rows, block, width)
                    add_transposed_toeplitz_product(
                        signal_grad, grads[m, lane], responses[m, lane], rows, block, columns
                    )
                    add_transposed_product(sights_grad[m, lane], grads[m, lane], starts, columns, rows, width)
                    add_upper_transposed_product(toeplitz_grad[m, lane], U, grads[m, lane], rows, columns)
                for j in range(now - 1, -1, -1):
                    here, after = X_grad[j * B :], X_grad[(j + 1) * B :]
                    for b in range(B):
                        for k in range(width):
                            here[b, k] += after[b, k]
                    add_product(here, after, turn, B, width, width)
                copy_matrix(later[lane], X_grad, B, width)
                after = X_grad[B:]
                add_product(signal_grad, after, reached[lane], rows, width, columns)
                add_transposed_product(latest_grad[lane], U, after, columns, rows, width)
                add_transposed_product(changes_grad[lane], starts, after, width, rows, width)
                copy_matrix(U, signal_grad, rows, columns)
            _store(u_grad, signal, feature, lanes, begin, now, block)
        for lane in range(lanes):
            h = feature + lane
            _copy_upside_down(reach_grad[h], latest_grad[lane], block, N)
            copy_matrix(change_grad[h], changes_grad[lane], N, N)
            copy_matrix(state_grad[:, h], later[lane], B, N)
            for m in range(M):
                copy_matrix(sight_grad[m, h], sights_grad[m, lane], block, N)
                for i in range(block):
                    total = 0.0
                    for k in range(block - i):
                        total += toeplitz_grad[m, lane, k, k + i]
                    response_grad[m, h, i] = total
                skip_grad[m, h] = response_grad[m, h, 0]
