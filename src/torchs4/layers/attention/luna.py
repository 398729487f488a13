"""Luna (Ma et al. 2021): a few vectors attend to the sequence, then the sequence attends to what they found.

Axes: B sequences, L positions, p packed vectors, D columns of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import nn

from torchs4.configuration import require_whole
from torchs4.layers.attention.attention_layer import (
    AttentionLayer,
    HeadsConfig,
    join_heads,
    require_dividing_heads,
    split_heads,
    visible_keys,
)
from torchs4.layers.registry import register_layer

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor


@register_layer("luna")
@dataclass(frozen=True)
class LunaConfig(HeadsConfig):
    """Options of Luna's attention.

    packed: how many vectors a sequence is packed into; 256 is Luna-256.
    """

    packed: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("packed", self.packed, 1)

    def build(self, features: int) -> Luna:
        """The layer that this describes."""
        return Luna(features, self)


class Luna(AttentionLayer):
    """Linear unified nested attention: pack, then unpack.

    Each layer begins with learned vectors of its own; the publication hands what they found to the next one.
    """

    config_class = LunaConfig
    config: LunaConfig

    def _build(self, features: int) -> None:
        self.heads = self.config.heads
        require_dividing_heads("features", features, self.heads)
        self.queries = nn.Parameter(torch.randn(self.config.packed, features))
        self.pack_query = nn.Linear(features, features)
        # Of a position: the key and the value that are packed, and the query that unpacks.
        self.query_key_value = nn.Linear(features, 3 * features)
        self.unpack_key_value = nn.Linear(features, 2 * features)
        self.output = nn.Linear(features, features)

    def _mix(self, x: Float[Tensor, "B L H"], counts: Int[Tensor, " B"] | None) -> Float[Tensor, "B L H"]:
        query, key, value = self._project(x)
        seeking = split_heads(self.pack_query(self.queries)[None], self.heads).expand(len(x), -1, -1, -1)
        packed = F.scaled_dot_product_attention(seeking, key, value, visible_keys(x.shape[1], counts))
        keys, values = split_heads(self.unpack_key_value(join_heads(packed)), 2 * self.heads).chunk(2, dim=1)
        return self._joined(F.scaled_dot_product_attention(query, keys, values))
