"""Longformer (Beltagy et al. 2020): a sliding window, and a few positions that see all and are seen by all.

Axes: B sequences, n blocks of w positions, g global positions, D columns of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchs4.configuration import require_whole
from torchs4.layers.attention.attention_layer import AttentionLayer, HeadsConfig, split_heads, visible_keys
from torchs4.layers.attention.blocks import blocks_of_batch, cut, each_block_alone, joined, never_empty
from torchs4.layers.registry import register_layer

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int


@register_layer("longformer")
@dataclass(frozen=True)
class LongformerConfig(HeadsConfig):
    """Options of Longformer's attention.

    reach: how many positions to each side are seen.
    global_positions: so many at the start see everything and are seen by everything.
    """

    reach: int = 32
    global_positions: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("reach", self.reach, 1)
        require_whole("global_positions", self.global_positions, 0)

    def build(self, features: int) -> Longformer:
        """The layer that this describes."""
        return Longformer(features, self)


class Longformer(AttentionLayer):
    """Sliding-window attention; the first `global_positions` look around with weights of their own."""

    config_class = LongformerConfig
    config: LongformerConfig

    def _build(self, features: int) -> None:
        super()._build(features)
        if self.config.global_positions:
            self.global_query = nn.Linear(features, features)
            self.global_key_value = nn.Linear(features, 2 * features)

    def _mix(self, x: Float[Tensor, "B L H"], counts: Int[Tensor, " B"] | None) -> Float[Tensor, "B L H"]:
        length, seen_by_all = x.shape[1], min(self.config.global_positions, x.shape[1])
        y = self._windows(x, counts, seen_by_all)
        if seen_by_all:
            query = split_heads(self.global_query(x[:, :seen_by_all]), self.heads)
            key, value = split_heads(self.global_key_value(x), 2 * self.heads).chunk(2, dim=1)
            everything = F.scaled_dot_product_attention(query, key, value, visible_keys(length, counts))
            y = torch.cat([everything, y[:, :, seen_by_all:]], dim=2)
        return self._joined(y)

    def _windows(
        self, x: Float[Tensor, "B L H"], counts: Int[Tensor, " B"] | None, seen_by_all: int
    ) -> Float[Tensor, "B heads L D"]:
        """What each position finds in its window and at the global positions."""
        length = x.shape[1]
        # A block sees itself and its neighbours: all windows that begin or end in it lie there.
        size = min(self.config.reach, length)
        query, key, value = self._project(x)
        blocks = -(-length // size)
        key, value = (
            torch.cat(
                [
                    part[:, :, None, :seen_by_all].expand(-1, -1, blocks, -1, -1),
                    _with_neighbours(cut(part, size)),
                ],
                dim=3,
            )
            for part in (key, value)
        )
        visible = self._visible(length, size, counts, seen_by_all, x.device)
        y = F.scaled_dot_product_attention(
            each_block_alone(cut(query, size)),
            each_block_alone(key),
            each_block_alone(value),
            visible.expand(x.shape[0], -1, -1, -1).flatten(0, 1)[:, None],
        )
        return joined(blocks_of_batch(y, blocks), length)

    def _visible(
        self, length: int, size: int, counts: Int[Tensor, " B"] | None, seen_by_all: int, device: torch.device
    ) -> Bool[Tensor, "B n w g+3*w"]:
        blocks = -(-length // size)
        queries = torch.arange(blocks * size, device=device).view(1, blocks, size, 1)
        starts = torch.arange(blocks, device=device)[:, None] * size
        neighbours = (starts + torch.arange(-size, 2 * size, device=device)).view(1, blocks, 1, 3 * size)
        ends = (torch.tensor([length], device=device) if counts is None else counts).view(-1, 1, 1, 1)
        # Global positions stand in front and must not count twice.
        near = ((queries - neighbours).abs() <= self.config.reach) & (neighbours >= seen_by_all)
        near = near & (neighbours < ends)
        front = (torch.arange(seen_by_all, device=device) < ends).expand(-1, blocks, size, -1)
        return never_empty(torch.cat([front.expand(len(near), -1, -1, -1), near], dim=3))


def _with_neighbours(blocks: Float[Tensor, "B heads n w D"]) -> Float[Tensor, "B heads n 3*w D"]:
    """The block before, the block itself and the block behind; zeros beyond the ends."""
    padded = F.pad(blocks, (0, 0, 0, 0, 1, 1))
    return torch.cat([padded[:, :, :-2], blocks, padded[:, :, 2:]], dim=3)
