"""Nyströmformer (Xiong et al. 2021): softmax attention by way of a few landmarks.

Axes: B sequences, L positions, m landmarks, D columns of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchs4.configuration import require_whole
from torchs4.layers.attention.attention_layer import AttentionLayer, HeadsConfig, mix_by_length
from torchs4.layers.precision import full_precision
from torchs4.layers.registry import register_layer

if TYPE_CHECKING:
    from jaxtyping import Float, Int


@register_layer("nystromformer")
@dataclass(frozen=True)
class NystromformerConfig(HeadsConfig):
    """Options of Nyströmformer's attention.

    landmarks: how many; each is the mean of a stretch of the sequence. As many as positions is exact.
    skip_kernel: positions, an odd number, of a convolution of the values that is added; 0 adds none.
    """

    landmarks: int = 64
    skip_kernel: int = 33

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("landmarks", self.landmarks, 1)
        require_whole("skip_kernel", self.skip_kernel, 0)
        if self.skip_kernel and self.skip_kernel % 2 == 0:
            raise ValueError(
                f"skip_kernel is {self.skip_kernel}; choose an odd number, so that it has a middle, or 0."
            )

    def build(self, features: int) -> Nystromformer:
        """The layer that this describes."""
        return Nystromformer(features, self)


class Nystromformer(AttentionLayer):
    """The attention matrix as (queries × landmarks) · (landmarks × landmarks)⁺ · (landmarks × keys)."""

    config_class = NystromformerConfig
    config: NystromformerConfig

    def _build(self, features: int) -> None:
        super()._build(features)
        kernel = self.config.skip_kernel
        self.skip = (
            nn.Conv2d(
                self.heads, self.heads, (kernel, 1), padding=(kernel // 2, 0), groups=self.heads, bias=False
            )
            if kernel
            else None
        )

    def _mix(self, x: Float[Tensor, "B L H"], counts: Int[Tensor, " B"] | None) -> Float[Tensor, "B L H"]:
        return mix_by_length(self._mix_whole, x, counts)

    def _mix_whole(self, x: Float[Tensor, "B L H"]) -> Float[Tensor, "B L H"]:
        query, key, value = self._project(x)
        if self.config.landmarks >= x.shape[1]:
            y = F.scaled_dot_product_attention(query, key, value)
        else:
            y = self._by_landmarks(query, key, value)
        if self.skip is not None:
            y = y + self.skip(value)
        return self._joined(y)

    def _by_landmarks(
        self, query: Float[Tensor, "B heads L D"], key: Tensor, value: Tensor
    ) -> Float[Tensor, "B heads L D"]:
        few_queries, few_keys = (landmarks_of(part, self.config.landmarks) for part in (query, key))
        scale = query.shape[3] ** -0.5
        # What is inverted must not be rounded.
        with full_precision(query):
            wide = torch.promote_types(query.dtype, torch.float32)
            between = (few_queries.to(wide) @ few_keys.to(wide).transpose(2, 3) * scale).softmax(-1)
            found = F.scaled_dot_product_attention(few_queries, key, value).to(wide)
            carried = (pseudo_inverse(between) @ found).to(value.dtype)
        return F.scaled_dot_product_attention(query, few_keys, carried)


def landmarks_of(x: Float[Tensor, "B heads L D"], count: int) -> Float[Tensor, "B heads m D"]:
    """Means of as many stretches; where their number does not divide the length, some are one longer."""
    stretch = torch.arange(x.shape[2], device=x.device) * count // x.shape[2]
    belongs = F.one_hot(stretch, count).to(x.dtype)
    return (belongs / belongs.sum(0)).T @ x


def pseudo_inverse(matrix: Float[Tensor, "*B m m"], rounds: int = 6) -> Float[Tensor, "*B m m"]:
    """An approximation of the Moore-Penrose inverse by products alone (Razavi et al. 2014)."""
    # Starting so, the iteration converges: rows of a softmax add up to one, columns to something else.
    inverse = matrix.transpose(-1, -2) / matrix.abs().sum(-2).amax(-1)[..., None, None]
    identity = torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
    for _ in range(rounds):
        product = matrix @ inverse
        inverse = (
            inverse @ (13 * identity - product @ (15 * identity - product @ (7 * identity - product))) / 4
        )
    return inverse
