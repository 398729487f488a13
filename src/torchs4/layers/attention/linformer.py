"""Linformer (Wang et al. 2020): keys and values are projected along the sequence to a few.

Axes: B sequences, L positions, k projections, D columns of a head.
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
    longest_or_usual,
    require_within,
    zero_after,
)
from torchs4.layers.registry import register_layer

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor


@register_layer("linformer")
@dataclass(frozen=True)
class LinformerConfig(HeadsConfig):
    """Options of Linformer's attention.

    projections: how many keys and values are left, whatever the length.
    max_length: of the longest sequence, since each position has weights; None is as long as the data are, and
        4,096 where nobody knows that.
    """

    projections: int = 128
    max_length: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("projections", self.projections, 1)
        if self.max_length is not None:
            require_whole("max_length", self.max_length, 1)

    def build(self, features: int) -> Linformer:
        """The layer that this describes."""
        return Linformer(features, self)


class Linformer(AttentionLayer):
    """Attention to `projections` mixtures of all positions; the heads share the two projections."""

    config_class = LinformerConfig
    config: LinformerConfig

    def _build(self, features: int) -> None:
        super()._build(features)
        self.max_length = longest_or_usual(self.config.max_length)
        shape = (self.max_length, self.config.projections)
        self.key_projection, self.value_projection = (
            nn.Parameter(torch.randn(shape) / self.max_length**0.5) for _ in range(2)
        )

    def _mix(self, x: Float[Tensor, "B L H"], counts: Int[Tensor, " B"] | None) -> Float[Tensor, "B L H"]:
        length = x.shape[1]
        require_within("Linformer", length, self.max_length)
        query, key, value = self._project(x)
        # Zeros add nothing to a projection.
        keys = self.key_projection[:length].T @ zero_after(key, counts)
        values = self.value_projection[:length].T @ zero_after(value, counts)
        return self._joined(F.scaled_dot_product_attention(query, keys, values))
