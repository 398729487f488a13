"""From (B, L, H) to what the head reads, for whole sequences and as a running value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor, nn

from torchs4.layers.padding import zero_padding
from torchs4.layers.precision import widest_dtype

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

PoolingKind = Literal["mean", "last", "shares", "none"]
POOLING_KINDS: tuple[str, ...] = get_args(PoolingKind)

# Positions that are looked at together.
_STRETCH = 256


class NoPooling(nn.Module):
    """Every position is read by itself.

    state_size: how many tensors it carries from chunk to chunk.
    """

    state_size = 0

    def width(self, features: int) -> int:
        """How many numbers the head reads."""
        return features

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


class SharePooling(MeanPooling):
    """Of each feature, the share of the real positions that lie above each of some thresholds.

    Where a pattern is anywhere in a sequence, a mean hardly notices, a share of positions does. A position
    near a threshold counts in part, in proportion to `slopes`, so that shares change smoothly. `offsets` are
    those of the ramps: a value x counts (x · slope + offset) between 0 and 1.
    """

    levels = 8

    def __init__(self, features: int) -> None:
        super().__init__()
        # Of values that were normalised, each level has the same share.
        evenly = (torch.arange(self.levels) + 0.5) / self.levels
        self.slopes = nn.Parameter(torch.ones(self.levels, features))
        self.offsets = nn.Parameter(0.5 - torch.special.ndtri(evenly)[:, None].repeat(1, features))

    def width(self, features: int) -> int:
        return self.levels * features

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        count = x.shape[1] if mask is None else mask.sum(dim=1, keepdim=True).clamp(min=1)
        return (self._sums(x, mask) / count).to(x.dtype)

    def initial_state(self, x: Tensor) -> tuple[Tensor, ...]:
        return super().initial_state(x.new_zeros(x.shape[0], self.width(x.shape[-1])))

    def prefill(
        self, x: Tensor, state: tuple[Tensor, ...], mask: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        mean, count = state
        if x.shape[1] == 0:
            return mean.to(x.dtype), state
        new = x.shape[1] if mask is None else mask.sum(dim=1, keepdim=True)
        mean = mean + (self._sums(x, mask) - new * mean) / (count + new).clamp(min=1)
        return mean.to(x.dtype), (mean, count + new)

    def _sums(self, x: Tensor, mask: Tensor | None) -> Float[Tensor, "B K*H"]:
        """How many positions are above, level by level; a stretch at a time, which stays in a cache."""
        # Half precision counts no farther than a few hundred.
        exact = torch.promote_types(x.dtype, torch.float32)
        total = x.new_zeros((), dtype=exact)
        stretches = x.split(_STRETCH, dim=1)
        masks = [None] * len(stretches) if mask is None else mask.split(_STRETCH, dim=1)
        for stretch, real in zip(stretches, masks, strict=True):
            ramps = zip(self.slopes, self.offsets, strict=True)
            levels = (zero_padding((stretch * slope + offset).clamp(0, 1), real) for slope, offset in ramps)
            total = total + torch.cat([above.sum(dim=1, dtype=exact) for above in levels], dim=-1)
        return total


def build_pooling(kind: PoolingKind, features: int) -> NoPooling:
    """The pooling of that name."""
    match kind:
        case "mean":
            return MeanPooling()
        case "last":
            return LastPooling()
        case "shares":
            return SharePooling(features)
    return NoPooling()
