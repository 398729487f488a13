"""Normalisation of sequences (B, L, H) that knows about padding and about single steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchs4 import ops

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
        return self._without_padding(x, mask)

    def step(self, x: Tensor) -> Tensor:
        norm = self.norm
        return F.batch_norm(
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, training=False, eps=norm.eps
        )

    def _without_padding(self, x: Tensor, mask: Tensor) -> Tensor:
        norm, count = self.norm, mask.sum()
        # Reading the count would split a compiled graph or wait for a GPU.
        if mask.device.type == "cpu" and not torch.compiler.is_compiling() and count < 2:
            raise ValueError(
                f"{int(count)} positions of the batch are not padding: their variance is not defined. "
                f"Batch norm needs at least two to train on; check lengths or mask, or use norm='layer'."
            )
        y, mean, variance = ops.masked_batch_norm(x, mask, norm.weight, norm.bias, norm.eps)
        running = cast("tuple[Tensor, Tensor, Tensor]", tuple(norm.buffers()))
        momentum = cast("float", norm.momentum)
        with torch.no_grad():
            running[0].lerp_(mean, momentum)
            running[1].lerp_(variance * count / (count - 1), momentum)
            running[2].add_(1)
        return y


def build_norm(kind: NormKind, features: int) -> SequenceNorm:
    """The normalisation of that name."""
    match kind:
        case "layer":
            return SequenceLayerNorm(features)
        case "batch":
            return SequenceBatchNorm(features)
        case "none":
            return SequenceNorm()
