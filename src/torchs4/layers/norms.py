"""Normalisation of sequences (B, L, H), or of one position (B, H), that knows about padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchs4 import ops
from torchs4.layers.hooks import are_untouched, is_plain

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

NormKind = Literal["layer", "batch", "scalar", "none"]
NORM_KINDS: tuple[str, ...] = get_args(NormKind)


# Somebody may have put one of these in the place of ours: they treat every position by itself.
_POSITIONWISE = (nn.LayerNorm, nn.RMSNorm, nn.Identity)


class SequenceNorm(nn.Module):
    """The base: nothing is normalised."""

    def forward(
        self, x: Float[Tensor, "B *L H"], mask: Bool[Tensor, "B L"] | None = None
    ) -> Float[Tensor, "B *L H"]:
        """Normalise whole sequences or chunks, or one position."""
        return x


class SequenceLayerNorm(SequenceNorm):
    """LayerNorm over the features of each position."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.norm(x)


class SequenceBatchNorm(SequenceNorm):
    """BatchNorm over batch and length; padding does not enter its statistics.

    A single step always uses the running statistics: one position has none of its own worth using.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        norm = self.norm
        if norm.training and x.ndim == 2:
            return F.batch_norm(
                x, norm.running_mean, norm.running_var, norm.weight, norm.bias, training=False, eps=norm.eps
            )
        if mask is None or not norm.training:
            return norm(x.flatten(0, -2)).view_as(x)
        return self._without_padding(x, mask)

    def _without_padding(self, x: Tensor, mask: Tensor) -> Tensor:
        norm, count = self.norm, mask.sum()
        # Reading the count would split a compiled graph or wait for a GPU.
        if mask.device.type == "cpu" and not torch.compiler.is_compiling() and count < 2:
            raise ValueError(
                f"{int(count)} positions of the batch are not padding: their variance is not defined. "
                f"Batch norm needs at least two to train on; check lengths or mask, or use norm='layer'."
            )
        if not (
            is_plain(norm, nn.BatchNorm1d) and norm.affine and norm.momentum and norm.running_mean is not None
        ):
            y = torch.zeros_like(x)
            y[mask] = norm(x[mask]).to(y.dtype)
            return y
        # Statistics in half precision would be too coarse.
        dtype = torch.promote_types(norm.weight.dtype, torch.float32)
        y, mean, variance = ops.masked_batch_norm(
            x, mask, norm.weight.to(dtype), norm.bias.to(dtype), norm.eps
        )
        running = cast("tuple[Tensor, Tensor, Tensor]", tuple(norm.buffers()))
        with torch.no_grad():
            running[0].lerp_(mean.to(running[0].dtype), norm.momentum)
            running[1].lerp_((variance * count / (count - 1)).to(running[1].dtype), norm.momentum)
            running[2].add_(1)
        return y


class ScalarLayerNorm(SequenceNorm):
    """(s / σ)·(x - mean + m) over the features of each position, with s and m one number each.

    What the authors' code has where features come first. Unlike in LayerNorm, nothing is added to σ²; where
    all features are equal (padding, or what half precision can no longer tell apart) it divides by 1 instead
    of 0.
    """

    def __init__(self) -> None:
        super().__init__()
        self.m = nn.Parameter(torch.zeros(1))
        self.s = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        deviation, mean = torch.std_mean(x, dim=-1, correction=0, keepdim=True)
        return self.s / deviation.where(deviation > 0, 1) * (x - mean + self.m)


def normalise(
    norm: nn.Module, x: Float[Tensor, "B *L H"], mask: Bool[Tensor, "B L"] | None = None
) -> Float[Tensor, "B *L H"]:
    """What a norm makes of x; those of PyTorch that need no mask are not given one."""
    y: Tensor = norm(x) if mask is None or isinstance(norm, _POSITIONWISE) else norm(x, mask)
    return y


def usual_norm(norm: nn.Module) -> nn.LayerNorm | nn.BatchNorm1d | None:
    """What one of ours normalises a single position with, by weights alone; None where that is not all."""
    if type(norm) not in (SequenceLayerNorm, SequenceBatchNorm):
        return None
    # Every step asks, and attributes of modules are slow.
    inner: Any = norm._modules["norm"]
    if type(inner) is nn.BatchNorm1d:
        if inner._buffers.get("running_mean") is None or inner._buffers.get("running_var") is None:
            return None
    elif type(inner) is not nn.LayerNorm:
        return None
    if inner._parameters.get("weight") is None or inner._parameters.get("bias") is None:
        return None
    return inner if are_untouched(norm, inner) else None


def build_norm(kind: NormKind, features: int) -> SequenceNorm:
    """The normalisation of that name."""
    match kind:
        case "layer":
            return SequenceLayerNorm(features)
        case "batch":
            return SequenceBatchNorm(features)
        case "scalar":
            return ScalarLayerNorm()
        case "none":
            return SequenceNorm()
