"""BigBird (Zaheer et al. 2020): blocks that see their neighbours, a few that all see, and a few at random.

Axes: B sequences, n blocks of w positions, k blocks that each of them sees, D columns of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from torchs4.configuration import require_whole
from torchs4.layers.attention.attention_layer import AttentionLayer, HeadsConfig, visible_keys
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

# Odd numbers that scatter whole numbers over 32 bits.
_SCATTER, _SCATTER_AGAIN, _BITS = 2_654_435_761, 739_982_445, 32


@register_layer("bigbird")
@dataclass(frozen=True)
class BigBirdConfig(HeadsConfig):
    """Options of BigBird's attention.

    window: positions of a block; a block sees itself and the two beside it.
    global_blocks: so many blocks at the start see everything and are seen by everything.
    random_blocks: how many more each block sees, anywhere in the sequence.
    """

    window: int = 32
    global_blocks: int = 1
    random_blocks: int = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("window", self.window, 1)
        require_whole("global_blocks", self.global_blocks, 0)
        require_whole("random_blocks", self.random_blocks, 0)

    def build(self, features: int) -> BigBird:
        """The layer that this describes."""
        return BigBird(features, self)


class BigBird(AttentionLayer):
    """Block-sparse attention. Which blocks are drawn follows from their numbers, the same for every head."""

    config_class = BigBirdConfig
    config: BigBirdConfig

    def _mix(self, x: Float[Tensor, "B L H"], counts: Int[Tensor, " B"] | None) -> Float[Tensor, "B L H"]:
        batch, length = x.shape[:2]
        window = min(self.config.window, length)
        query, key, value = self._project(x)
        real = real_in_blocks(length, window, counts, x.device).expand(batch, -1, -1)
        chosen, is_new = self._chosen_blocks(real.any(2).sum(1), real.shape[1])
        rows = torch.arange(batch, device=x.device)[:, None, None]
        # (B, heads, n, k·w, D): what each block sees, side by side.
        keys, values = (
            cut(part, window).transpose(1, 2)[rows, chosen].transpose(2, 3).flatten(3, 4).transpose(1, 2)
            for part in (key, value)
        )
        visible = never_empty((real[rows, chosen] & is_new[..., None]).flatten(2))
        y = F.scaled_dot_product_attention(
            each_block_alone(cut(query, window)),
            each_block_alone(keys),
            each_block_alone(values),
            visible.flatten(0, 1)[:, None, None],
        )
        y = joined(blocks_of_batch(y, real.shape[1]), length)
        front = min(self.config.global_blocks * window, length)
        if front:
            everything = F.scaled_dot_product_attention(
                query[:, :, :front], key, value, visible_keys(length, counts)
            )
            y = torch.cat([everything, y[:, :, front:]], dim=2)
        return self._joined(y)

    def _chosen_blocks(
        self, blocks: Int[Tensor, " B"], most: int
    ) -> tuple[Int[Tensor, "B n k"], Bool[Tensor, "B n k"]]:
        """The blocks that each block sees, and which of them did not stand before in the same list.

        blocks: how many real ones each sequence has, of `most`. Its choice does not depend on the others'.
        """
        config, device = self.config, blocks.device
        number = torch.arange(most, device=device)[:, None]
        near = number + torch.arange(-1, 2, device=device)
        drawn = torch.arange(config.random_blocks, device=device)
        # As a share of the sequence's own blocks.
        anywhere = _scattered(number * config.random_blocks + drawn)[None] * blocks[:, None, None] >> _BITS
        front = torch.arange(config.global_blocks, device=device).expand(most, -1)
        chosen = torch.cat([torch.cat([near, front], dim=1).expand(len(blocks), -1, -1), anywhere], dim=2)
        exists = (chosen >= 0) & (chosen < blocks[:, None, None])
        chosen = chosen.clamp(0, most - 1)
        same = (chosen[..., :, None] == chosen[..., None, :]) & exists[..., None, :]
        repeated = same.tril(-1).any(-1)
        return chosen, exists & ~repeated


def _scattered(number: Int[Tensor, "*N"]) -> Int[Tensor, "*N"]:
    """Numbers of 32 bits without a visible pattern, always the same for the same number."""
    number = (number + 1) * _SCATTER % 2**_BITS
    return (number ^ (number >> 15)) * _SCATTER_AGAIN % 2**_BITS
