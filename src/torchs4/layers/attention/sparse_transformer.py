"""Sparse Transformer (Child et al. 2019), fixed pattern: own block, and the last positions of every block.

Axes: B sequences, n blocks of w positions, c summaries in each, D columns of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from torchs4.configuration import require_whole
from torchs4.layers.attention.attention_layer import AttentionLayer, HeadsConfig
from torchs4.layers.attention.blocks import (
    blocks_of_batch,
    cut,
    each_block_alone,
    joined,
    never_empty,
    real_in_blocks,
)
from torchs4.layers.registry import register_layer

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


@register_layer("sparse-transformer")
@dataclass(frozen=True)
class SparseTransformerConfig(HeadsConfig):
    """Options of a Sparse Transformer's attention.

    window: positions of a block; about the square root of the length is best.
    summaries: how many positions at the end of each block all others see.
    """

    window: int = 64
    summaries: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("window", self.window, 1)
        require_whole("summaries", self.summaries, 1)
        if self.summaries > self.window:
            raise ValueError(
                f"summaries is {self.summaries}, but a block has only {self.window} positions (window)."
            )

    def build(self, features: int) -> SparseTransformer:
        """The layer that this describes."""
        return SparseTransformer(features, self)


class SparseTransformer(AttentionLayer):
    """Attention in which a position sees its block and the last `summaries` positions of every block.

    The publication's pattern without its order in time: blocks that come later are seen too.
    """

    config_class = SparseTransformerConfig
    config: SparseTransformerConfig

    def _mix(self, x: Float[Tensor, "B L H"], counts: Int[Tensor, " B"] | None) -> Float[Tensor, "B L H"]:
        length = x.shape[1]
        window = min(self.config.window, length)
        query, key, value = (cut(part, window) for part in self._project(x))
        blocks = query.shape[2]
        visible = self._visible(length, window, counts, x.device).expand(x.shape[0], -1, -1)
        y = F.scaled_dot_product_attention(
            each_block_alone(query),
            self._with_summaries(key),
            self._with_summaries(value),
            visible.flatten(0, 1)[:, None, None],
        )
        return self._joined(joined(blocks_of_batch(y, blocks), length))

    def _with_summaries(self, x: Float[Tensor, "B heads n w D"]) -> Float[Tensor, "B*n heads w+n*c D"]:
        """For each block, its own positions and then the summaries of all blocks."""
        summaries = x[..., -self.config.summaries :, :].flatten(2, 3)
        everywhere = summaries[:, :, None].expand(-1, -1, x.shape[2], -1, -1)
        return each_block_alone(torch.cat([x, everywhere], dim=3))

    def _visible(
        self, length: int, window: int, counts: Int[Tensor, " B"] | None, device: torch.device
    ) -> Bool[Tensor, "B n w+n*c"]:
        real = real_in_blocks(length, window, counts, device)
        blocks = real.shape[1]
        summaries = real[:, None, :, -self.config.summaries :]
        # Nothing counts twice: its own summaries are in the block already.
        elsewhere = ~torch.eye(blocks, dtype=torch.bool, device=device)[None, :, :, None]
        return never_empty(torch.cat([real, (summaries & elsewhere).flatten(2)], dim=2))
