"""Reformer (Kitaev et al. 2020): positions attend to those whose vectors fall into the same bucket.

Axes: B sequences, R rounds of hashing, n chunks of c positions, D columns of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchs4.configuration import require_whole
from torchs4.layers.attention.attention_layer import (
    AttentionLayer,
    HeadsConfig,
    require_dividing_heads,
    split_heads,
)
from torchs4.layers.attention.blocks import cut, joined
from torchs4.layers.precision import full_precision
from torchs4.layers.registry import register_layer

if TYPE_CHECKING:
    from jaxtyping import Float, Int

# Scores of a position with itself, which it sees only where there is nothing else, and of what is not there.
_ITSELF, _NOTHING = -1e5, -1e9


@register_layer("reformer")
@dataclass(frozen=True)
class ReformerConfig(HeadsConfig):
    """Options of Reformer's attention.

    buckets: into how many a round of hashing sorts positions: 1, or an even number.
    rounds: how many times it is hashed; what one round misses, another may find.
    chunk: positions, in the order of their buckets, that see one another and the chunk before.
    """

    buckets: int = 32
    rounds: int = 2
    chunk: int = 64

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("buckets", "rounds", "chunk"):
            require_whole(name, getattr(self, name), 1)
        if self.buckets > 1 and self.buckets % 2:
            raise ValueError(
                f"buckets is {self.buckets}: each lies opposite to another one. Choose an even number, or 1."
            )

    def build(self, features: int) -> Reformer:
        """The layer that this describes."""
        return Reformer(features, self)


class Reformer(AttentionLayer):
    """Attention by locality-sensitive hashing, with one vector as a position's query and its key.

    Hash functions are drawn anew at each training step; where nothing is trained they stay the same.
    """

    config_class = ReformerConfig
    config: ReformerConfig
    directions: Float[Tensor, "heads R D b/2"]

    def _build(self, features: int) -> None:
        self.heads = self.config.heads
        require_dividing_heads("features", features, self.heads)
        self.query_key = nn.Linear(features, features)
        self.value = nn.Linear(features, features)
        self.output = nn.Linear(features, features)
        shape = (self.heads, self.config.rounds, features // self.heads, self.config.buckets // 2)
        self.register_buffer("directions", torch.randn(shape))

    def _mix(self, x: Float[Tensor, "B L H"], counts: Int[Tensor, " B"] | None) -> Float[Tensor, "B L H"]:
        value = split_heads(self.value(x), self.heads)
        # Rounding would put positions into other buckets.
        with full_precision(x):
            wide = torch.promote_types(x.dtype, torch.float32)
            weight, bias = (part.to(wide) for part in (self.query_key.weight, self.query_key.bias))
            query = split_heads(F.linear(x.to(wide), weight, bias), self.heads)
            ends = torch.full(x.shape[:1], x.shape[1], device=x.device) if counts is None else counts
            order = self._buckets(query, ends).argsort(dim=-1, stable=True)
            y, log_weight = self._attend_sorted(query, value.to(wide), order, ends)
            y = (log_weight.softmax(dim=2)[..., None] * y).sum(2)
        return self._joined(y.to(value.dtype))

    @torch.no_grad()
    def _buckets(
        self, query: Float[Tensor, "B heads L D"], ends: Int[Tensor, " B"]
    ) -> Int[Tensor, "B heads R L"]:
        """The bucket of each position in each round; padding has one of its own, the last."""
        directions = self.directions.to(query.dtype)
        if self.training:
            directions = torch.randn_like(directions)
        turned = torch.einsum("bhld,hrdk->bhrlk", query, directions)
        if self.config.buckets == 1:
            bucket = torch.zeros(turned.shape[:4], dtype=torch.long, device=query.device)
        else:
            bucket = torch.cat([turned, -turned], dim=-1).argmax(-1)
        padding = torch.arange(query.shape[2], device=query.device) >= ends[:, None, None, None]
        return bucket.masked_fill(padding, self.config.buckets)

    def _attend_sorted(
        self, query: Tensor, value: Tensor, order: Int[Tensor, "B heads R L"], ends: Int[Tensor, " B"]
    ) -> tuple[Float[Tensor, "B heads R L D"], Float[Tensor, "B heads R L"]]:
        """What each round finds for each position, and the logarithm of how much it has seen."""
        length, columns = query.shape[2:]
        size = min(self.config.chunk, length)
        places = order[..., None].expand(-1, -1, -1, -1, columns)
        rounds = order.shape[2]
        query, value = (
            cut(part[:, :, None].expand(-1, -1, rounds, -1, -1).gather(3, places), size)
            for part in (query, value)
        )
        # Zeros fill the last chunk; they become positions behind the end.
        position = cut(order[..., None] - length, size)[..., 0] + length
        real = position < ends[:, None, None, None, None]
        keys = _with_previous(F.normalize(query, dim=-1))
        scores = query @ keys.transpose(-1, -2)
        position_before, real_before = (_with_previous(part[..., None])[..., 0] for part in (position, real))
        itself = position[..., :, None] == position_before[..., None, :]
        scores = scores.masked_fill(itself, _ITSELF).masked_fill(~real_before[..., None, :], _NOTHING)
        log_weight = scores.logsumexp(-1)
        y = (scores - log_weight[..., None]).exp() @ _with_previous(value)
        back = order.argsort(dim=-1)
        y, log_weight = joined(y, length), joined(log_weight[..., None], length)
        back = back[..., None]
        return y.gather(3, back.expand_as(y)), log_weight.gather(3, back)[..., 0]


def _with_previous(chunks: Float[Tensor, "*B n c D"]) -> Float[Tensor, "*B n 2*c D"]:
    """The chunk before, if there is one, and the chunk itself."""
    before = F.pad(chunks, (0, 0, 0, 0, 1, 0))[..., :-1, :, :]
    return torch.cat([before, chunks], dim=-2)
