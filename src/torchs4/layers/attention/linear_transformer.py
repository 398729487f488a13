"""Linear Transformer (Katharopoulos et al. 2020): attention with the feature map elu(x) + 1."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch.nn.functional as F

from torchs4.layers.attention.kernel_attention import KernelAttention, KernelAttentionConfig, KeyFeatures
from torchs4.layers.registry import register_layer

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor


@register_layer("linear-transformer")
@dataclass(frozen=True)
class LinearTransformerConfig(KernelAttentionConfig):
    """Options of a Linear Transformer's attention."""

    def build(self, features: int) -> LinearTransformer:
        """The layer that this describes."""
        return LinearTransformer(features, self)


class LinearTransformer(KernelAttention):
    """Attention with weights (elu(q) + 1)·(elu(k) + 1); it streams with a constant state."""

    config_class = LinearTransformerConfig
    config: LinearTransformerConfig
    # Its features need no scale.
    _empty_scale = 0.0

    @property
    def _num_features(self) -> int:
        return self.projection // self.heads

    def _query_features(self, query: Float[Tensor, "B heads L D"]) -> Float[Tensor, "B heads L M"]:
        return F.elu(query) + 1

    def _key_features(self, key: Float[Tensor, "B heads L D"]) -> KeyFeatures:
        return KeyFeatures(F.elu(key) + 1, key.new_zeros(key.shape[:3]))
