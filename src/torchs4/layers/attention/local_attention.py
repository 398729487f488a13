"""Local Attention: each block of positions sees itself and nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.nn.functional as F

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
    from jaxtyping import Float, Int
    from torch import Tensor


@register_layer("local-attention")
@dataclass(frozen=True)
class LocalAttentionConfig(HeadsConfig):
    """Options of local attention.

    window: positions of a block.
    """

    window: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("window", self.window, 1)

    def build(self, features: int) -> LocalAttention:
        """The layer that this describes."""
        return LocalAttention(features, self)


class LocalAttention(AttentionLayer):
    """Softmax attention within blocks of `window` positions, as the Long Range Arena compares it."""

    config_class = LocalAttentionConfig
    config: LocalAttentionConfig

    def _mix(self, x: Float[Tensor, "B L H"], counts: Int[Tensor, " B"] | None) -> Float[Tensor, "B L H"]:
        length = x.shape[1]
        window = min(self.config.window, length)
        query, key, value = (each_block_alone(cut(part, window)) for part in self._project(x))
        real = never_empty(real_in_blocks(length, window, counts, x.device))
        visible = real.expand(x.shape[0], -1, -1).flatten(0, 1)[:, None, None]
        y = F.scaled_dot_product_attention(query, key, value, visible)
        return self._joined(joined(blocks_of_batch(y, real.shape[1]), length))
