"""Normalisation of sequences (B, L, H) that knows about padding and about single steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

NormKind = Literal["layer", "batch", "none"]
NORM_KINDS: tuple[str, ...] = get_args(NormKind)


class SequenceNorm(nn.Module):
    """The base: nothing is normalised."""

    def forward(
        self, x: Float[Tensor, "B L H"], mask: Bool[Tensor, "B L"] | None = None
    ) -> Float[Tensor, "B L H"]:
        """Normalise whole sequences or chunks."""
        return x

    def step(self, x: Float[Tensor, "B H"]) -> Float[Tensor, "B H"]:
        """Normalise one position."""
        return x


class SequenceLayerNorm(SequenceNorm):
    """LayerNorm over the features of each position."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.norm(x)

    def step(self, x: Tensor) -> Tensor:
        return self.norm(x)


class SequenceBatchNorm(SequenceNorm):
    """BatchNorm over batch and length; padding does not enter its statistics.

    A single step always uses the running statistics: one position has none of its own worth using.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None or not self.training:
            return self.norm(x.flatten(0, 1)).view_as(x)
        normalized = self.norm(x[mask])
        return normalized.new_zeros(x.shape).masked_scatter(mask[..., None], normalized)

    def step(self, x: Tensor) -> Tensor:
        norm = self.norm
        return F.batch_norm(
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, training=False, eps=norm.eps
        )


def build_norm(kind: NormKind, features: int) -> SequenceNorm:
    """The normalisation of that name."""
    match kind:
        case "layer":
            return SequenceLayerNorm(features)
        case "batch":
            return SequenceBatchNorm(features)
        case "none":
            return SequenceNorm()
