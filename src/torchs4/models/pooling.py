"""From (B, L, H) to what the head reads, for whole sequences and as a running value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn

from torchs4.layers.padding import zero_padding
from torchs4.layers.precision import widest_dtype

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

PoolingKind = Literal["mean", "last", "none"]
POOLING_KINDS: tuple[str, ...] = get_args(PoolingKind)


class NoPooling(nn.Module):
    """Every position is read by itself.

    state_size: how many tensors it carries from chunk to chunk.
    """

    state_size = 0

    def forward(self, x: Float[Tensor, "B L H"], mask: Bool[Tensor, "B L"] | None) -> Tensor:
        """What the head reads of a whole sequence."""
        return x

    def initial_state(self, x: Float[Tensor, "B ... H"]) -> tuple[Tensor, ...]:
        """What is known before the first position."""
        return ()

    def prefill(
        self, x: Float[Tensor, "B L H"], state: tuple[Tensor, ...], mask: Bool[Tensor, "B L"] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """What the head reads after a chunk, and what is known by then; an empty chunk changes nothing."""
        return x, ()


class LastPooling(NoPooling):
    """The last real position of each sequence; streaming, the last one so far."""

    state_size = 1

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return x[:, -1]
        positions = torch.arange(x.shape[1], device=x.device)
        last = torch.where(mask, positions, 0).amax(dim=1)
        return x[torch.arange(x.shape[0], device=x.device), last]

    def initial_state(self, x: Tensor) -> tuple[Tensor, ...]:
        return (x.new_zeros(x.shape[0], x.shape[-1]),)

    def prefill(
        self, x: Tensor, state: tuple[Tensor, ...], mask: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        if x.shape[1] == 0:
            return state[0].to(x.dtype), state
        # A copy: a view would keep the whole chunk in memory.
        last = self(x, mask).clone()
        return last, (last,)


class MeanPooling(NoPooling):
    """The mean over the real positions; streaming, the mean of what has been seen so far."""

    state_size = 2

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        if mask is None:
            return x.mean(dim=1)
        kept = x.masked_fill(~mask[..., None], 0)
        return kept.sum(dim=1) / mask.sum(dim=1, keepdim=True).clamp(min=1)

    def initial_state(self, x: Tensor) -> tuple[Tensor, ...]:
        # After millions of positions each of them moves the mean by less than single precision can express,
        # and single precision counts no farther than 2²⁴.
        mean = x.new_zeros(x.shape[0], x.shape[-1], dtype=widest_dtype(x.device))
        return mean, x.new_zeros(x.shape[0], 1, dtype=torch.int64)

    def prefill(
        self, x: Tensor, state: tuple[Tensor, ...], mask: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        mean, count = state
        if x.shape[1] == 0:
            return mean.to(x.dtype), state
        new_count = count + (x.shape[1] if mask is None else mask.sum(dim=1, keepdim=True))
        # A running mean, not a running sum: a sum would lose digits over a long stream.
        mean = mean + zero_padding(x - mean[:, None], mask).sum(dim=1) / new_count
        return mean.to(x.dtype), (mean, new_count)


def build_pooling(kind: PoolingKind) -> NoPooling:
    """The pooling of that name."""
    return {"mean": MeanPooling, "last": LastPooling, "none": NoPooling}[kind]()
