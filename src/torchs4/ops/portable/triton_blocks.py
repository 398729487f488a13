"""One step of usual blocks in two launches each, in Triton: for streams on a GPU, where launches cost most.

Norm and mixing each need all features of what comes before them, so two are the least. The first kernel
normalises, moves the state and reads it; the second one mixes, gates and adds the residual.

Imported on request only: Triton comes with PyTorch for CUDA and ROCm, and with no other.
Axes: B sequences, H features, n modes, N = 2n, R rank, M output channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from torchs4.ops.plain_blocks import normalised

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float
    from torch import Tensor

    from torchs4.ops.forms import BlockWeights, NormWeights

# Features of a program: few, so that a small model has a program for every multiprocessor.
_FEATURES = 4
_COLUMNS = 128


@triton.jit
def advance(
    x,
    weight,
    bias,
    mean,
    variance,
    a,
    p,
    q,
    b,
    C,
    D,
    state,
    new_state,
    y,
    epsilon,
    H,
    N,
    BATCH_NORM: tl.constexpr,
    RANK: tl.constexpr,
    CHANNELS: tl.constexpr,
    ROW: tl.constexpr,
    MODES: tl.constexpr,
    FEATURES: tl.constexpr,
):
    """Norm, step and GELU of some features of one sequence: y is what is mixed."""
    feature = tl.program_id(0) * FEATURES + tl.arange(0, FEATURES)
    sequence = tl.program_id(1)
    here = feature < H
    value = tl.load(x + sequence * H + feature, mask=here, other=0.0)
    if BATCH_NORM:
        centre = tl.load(mean + feature, mask=here, other=0.0)
        spread = tl.load(variance + feature, mask=here, other=1.0)
    else:
        place = tl.arange(0, ROW)
        row = tl.load(x + sequence * H + place, mask=place < H, other=0.0)
        centre = tl.sum(row) / H
        rest = tl.where(place < H, row - centre, 0.0)
        spread = tl.sum(rest * rest) / H
    u = (value - centre) / tl.sqrt(spread + epsilon)
    u = u * tl.load(weight + feature, mask=here, other=0.0) + tl.load(bias + feature, mask=here, other=0.0)
    mode = tl.arange(0, MODES)
    inside = here[:, None] & (2 * mode < N)[None, :]
    # Real and imaginary parts lie side by side.
    real = feature[:, None] * N + 2 * mode[None, :]
    mine = sequence * H * N + real
    re = tl.load(state + mine, mask=inside, other=0.0)
    im = tl.load(state + mine + 1, mask=inside, other=0.0)
    a_re = tl.load(a + real, mask=inside, other=0.0)
    a_im = tl.load(a + real + 1, mask=inside, other=0.0)
    new_re = a_re * re - a_im * im + tl.load(b + real, mask=inside, other=0.0) * u[:, None]
    new_im = a_re * im + a_im * re + tl.load(b + real + 1, mask=inside, other=0.0) * u[:, None]
    for rank in tl.static_range(RANK):
        shift = rank * H * N + real
        q_re = tl.load(q + shift, mask=inside, other=0.0)
        q_im = tl.load(q + shift + 1, mask=inside, other=0.0)
        read = tl.sum(q_re * re + q_im * im, axis=1)[:, None]
        new_re -= tl.load(p + shift, mask=inside, other=0.0) * read
        new_im -= tl.load(p + shift + 1, mask=inside, other=0.0) * read
    tl.store(new_state + mine, new_re, mask=inside)
    tl.store(new_state + mine + 1, new_im, mask=inside)
    for channel in tl.static_range(CHANNELS):
        shift = channel * H * N + real
        c_re = tl.load(C + shift, mask=inside, other=0.0)
        c_im = tl.load(C + shift + 1, mask=inside, other=0.0)
        skip = tl.load(D + channel * H + feature, mask=here, other=0.0)
        out = tl.sum(c_re * new_re + c_im * new_im, axis=1) + skip * u
        gelu = 0.5 * out * (1.0 + tl.erf(out * 0.7071067811865476))
        tl.store(y + (sequence * CHANNELS + channel) * H + feature, gelu, mask=here)


@triton.jit
def mix(
    y,
    weight,
    bias,
    residual,
    x,
    H,
    K,
    FEATURES: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    """Mixing, gates and residual of some features of one sequence."""
    feature = tl.program_id(0) * FEATURES + tl.arange(0, FEATURES)
    sequence = tl.program_id(1)
    here = feature < H
    values = tl.zeros((FEATURES,), tl.float32)
    gates = tl.zeros((FEATURES,), tl.float32)
    for start in range(0, K, COLUMNS):
        column = start + tl.arange(0, COLUMNS)
        inside = here[:, None] & (column < K)[None, :]
        part = tl.load(y + sequence * K + column, mask=column < K, other=0.0)[None, :]
        place = feature[:, None] * K + column[None, :]
        values += tl.sum(tl.load(weight + place, mask=inside, other=0.0) * part, axis=1)
        gates += tl.sum(tl.load(weight + H * K + place, mask=inside, other=0.0) * part, axis=1)
    values += tl.load(bias + feature, mask=here, other=0.0)
    gates += tl.load(bias + H + feature, mask=here, other=0.0)
    own = sequence * H + feature
    tl.store(x + own, tl.load(residual + own, mask=here, other=0.0) + values * tl.sigmoid(gates), mask=here)


class TritonBlocks:
    """Equal blocks one after the other, and a norm after them, ready to step without gradients; float32."""

    def __init__(self, blocks: Sequence[BlockWeights], final_norm: NormWeights | None = None) -> None:
        self._blocks, self._final_norm = blocks, final_norm

    def step(
        self, x: Float[Tensor, "B H"], states: Sequence[Float[Tensor, "B H N"]]
    ) -> tuple[Float[Tensor, "B H"], list[Float[Tensor, "B H N"]]]:
        """What comes out after the last block, and every block's next state."""
        new_states = []
        x = x.contiguous()
        for block, state in zip(self._blocks, states, strict=True):
            x, new_state = _step(block, x, state.contiguous())
            new_states.append(new_state)
        return x if self._final_norm is None else normalised(x, self._final_norm), new_states


def _step(block: BlockWeights, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    (B, H, N), M, norm = state.shape, len(block.C), block.norm
    a, p, q, b = (part.contiguous() for part in block.system)
    new_state, y, out = torch.empty_like(state), x.new_empty(B, M, H), torch.empty_like(x)
    grid = triton.cdiv(H, _FEATURES), B
    by_batch = norm.mean is not None and norm.variance is not None
    # Without them these are not read.
    mean, variance = (norm.mean, norm.variance) if by_batch else (norm.weight, norm.weight)
    tensors = (x, norm.weight, norm.bias, mean, variance, a, p, q, b, block.C.contiguous(), block.D)
    advance[grid](
        *tensors,
        state,
        new_state,
        y,
        norm.epsilon,
        H,
        N,
        BATCH_NORM=by_batch,
        RANK=len(p),
        CHANNELS=M,
        ROW=triton.next_power_of_2(H),
        MODES=triton.next_power_of_2(N // 2),
        FEATURES=_FEATURES,
    )
    mix[grid](
        y, block.mixing_weight, block.mixing_bias, x, out, H, M * H, FEATURES=_FEATURES, COLUMNS=_COLUMNS
    )
    return out, new_state
