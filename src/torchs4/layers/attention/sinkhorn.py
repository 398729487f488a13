"""Sinkhorn Transformer (Tay et al. 2020): a block sees itself and one that a learned sorting puts beside it.

Axes: B sequences, n blocks of w positions, D columns of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from torchs4.configuration import require_at_least, require_whole
from torchs4.layers.attention.attention_layer import AttentionLayer, HeadsConfig
from torchs4.layers.attention.blocks import blocks_of_batch, cut, each_block_alone, joined, real_in_blocks
from torchs4.layers.precision import full_precision
from torchs4.layers.registry import register_layer

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

# The logarithm of nothing, and an amount that makes no difference.
_NOTHING, _LITTLE = -1e9, 1e-30


@register_layer("sinkhorn")
@dataclass(frozen=True)
class SinkhornConfig(HeadsConfig):
    """Options of a Sinkhorn Transformer's attention.

    window: positions of a block.
    sorting_rounds: how often rows and columns of the sorting are made to add up to one.
    temperature: the lower, the more a block gets of a single other one instead of a mixture.
    """

    window: int = 64
    sorting_rounds: int = 8
    temperature: float = 0.75

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("window", self.window, 1)
        require_whole("sorting_rounds", self.sorting_rounds, 1)
        require_at_least("temperature", self.temperature, 1e-6)

    def build(self, features: int) -> Sinkhorn:
        """The layer that this describes."""
        return Sinkhorn(features, self)


class Sinkhorn(AttentionLayer):
    """Attention within a block and to the block that is sorted to its place, in one softmax.

    Blocks are compared by the means of their queries and keys, so there is no longest sequence; the sorting
    has no noise.
    """

    config_class = SinkhornConfig
    config: SinkhornConfig

    def _mix(self, x: Float[Tensor, "B L H"], counts: Int[Tensor, " B"] | None) -> Float[Tensor, "B L H"]:
        length = x.shape[1]
        window = min(self.config.window, length)
        query, key, value = (cut(part, window) for part in self._project(x))
        # (B, 1, n, w), the same for all heads.
        real = real_in_blocks(length, window, counts, x.device)[:, None].expand(len(x), -1, -1, -1)
        with full_precision(x):
            wide = torch.promote_types(query.dtype, torch.float32)
            sorting = self._sorting(query.to(wide), key.to(wide), real)
            # A place of a sorted block counts as much as there is of it.
            there = sorting @ real.to(wide)
            sorted_key, sorted_value = (
                (_sorted(part.to(wide), real, sorting) / there.clamp(min=_LITTLE)[..., None]).to(part.dtype)
                for part in (key, value)
            )
            own = real.expand_as(there).to(wide)
            amount = torch.cat([there, own], dim=3)
            bias = amount.clamp(min=_LITTLE).log().masked_fill(amount == 0, _NOTHING)
        y = F.scaled_dot_product_attention(
            each_block_alone(query),
            each_block_alone(torch.cat([sorted_key, key], dim=3)),
            each_block_alone(torch.cat([sorted_value, value], dim=3)),
            each_block_alone(bias[..., None, :]).to(query.dtype),
        )
        return self._joined(joined(blocks_of_batch(y, query.shape[2]), length))

    def _sorting(
        self, query: Float[Tensor, "B heads n w D"], key: Tensor, real: Bool[Tensor, "B 1 n w"]
    ) -> Float[Tensor, "B heads n n"]:
        """How much of each block is put beside each block; rows and columns add up to one."""
        filled = real.any(3)
        counted = real.sum(3).clamp(min=1)[..., None]
        of_queries, of_keys = (
            part.masked_fill(~real[..., None], 0).sum(3) / counted for part in (query, key)
        )
        scores = of_queries @ of_keys.transpose(2, 3) / (query.shape[4] ** 0.5 * self.config.temperature)
        # Blocks of padding are sorted among themselves.
        mixed = filled[..., :, None] != filled[..., None, :]
        scores = scores.masked_fill(mixed, _NOTHING)
        for _ in range(self.config.sorting_rounds):
            scores = scores - scores.logsumexp(2, keepdim=True)
            scores = scores - scores.logsumexp(3, keepdim=True)
        return scores.exp()


def _sorted(
    blocks: Float[Tensor, "B heads n w D"],
    real: Bool[Tensor, "B 1 n w"],
    sorting: Float[Tensor, "B heads n n"],
) -> Float[Tensor, "B heads n w D"]:
    """What is put in each block's place."""
    blocks = blocks.masked_fill(~real[..., None], 0)
    return (sorting @ blocks.flatten(3)).unflatten(3, blocks.shape[3:])
