"""Performer (Choromanski et al. 2021): softmax attention estimated by positive orthogonal random features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchs4.configuration import require_whole
from torchs4.layers.attention.kernel_attention import KernelAttention, KernelAttentionConfig, KeyFeatures
from torchs4.layers.registry import register_layer

if TYPE_CHECKING:
    from jaxtyping import Float


@register_layer("performer")
@dataclass(frozen=True)
class PerformerConfig(KernelAttentionConfig):
    """Options of Performer's attention.

    random_features: how many; the estimate's error falls with their square root.
    """

    random_features: int = 128

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("random_features", self.random_features, 1)

    def build(self, features: int) -> Performer:
        """The layer that this describes."""
        return Performer(features, self)


class Performer(KernelAttention):
    """FAVOR+: exp(q·k) is the mean of exp(w·q - |q|²/2) exp(w·k - |k|²/2) over normal w.

    The w are drawn once, for all heads, and saved with the weights; the publication draws anew now and then.
    """

    config_class = PerformerConfig
    config: PerformerConfig
    directions: Float[Tensor, "M D"]

    def _build(self, features: int) -> None:
        super()._build(features)
        self.register_buffer(
            "directions", orthogonal_directions(self.config.random_features, self.projection // self.heads)
        )

    @property
    def _num_features(self) -> int:
        return self.config.random_features

    def _query_features(self, query: Float[Tensor, "B heads L D"]) -> Float[Tensor, "B heads L M"]:
        logarithms = self._log_features(query)
        return (logarithms - logarithms.detach().amax(-1, keepdim=True)).exp()

    def _key_features(self, key: Float[Tensor, "B heads L D"]) -> KeyFeatures:
        logarithms = self._log_features(key)
        # The scale divides out: its gradient is zero.
        scale = logarithms.detach().amax(-1)
        return KeyFeatures((logarithms - scale[..., None]).exp(), scale)

    def _log_features(self, x: Float[Tensor, "B heads L D"]) -> Float[Tensor, "B heads L M"]:
        # Queries and keys get half of the usual division by √D each.
        x = x / x.shape[3] ** 0.25
        return x @ self.directions.to(x.dtype).T - x.square().sum(-1, keepdim=True) / 2


def orthogonal_directions(count: int, columns: int) -> Float[Tensor, "M D"]:
    """Normal vectors, at right angles to one another as far as there is room."""
    frames = torch.randn(math.ceil(count / columns), columns, columns, dtype=torch.float64)
    frames, upper = torch.linalg.qr(frames)
    # The factorisation's own choice of signs would prefer some directions to their opposites.
    frames = frames * upper.diagonal(dim1=1, dim2=2).sign()[:, None]
    directions = frames.flatten(0, 1)[:count]
    lengths = torch.randn(count, columns, dtype=torch.float64).norm(dim=1, keepdim=True)
    return (directions * lengths).to(torch.get_default_dtype())
