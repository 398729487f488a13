"""FNet (Lee-Thorp et al. 2021): a Fourier transform along the sequence and the features, nothing to learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from torchs4.layers.attention.attention_layer import AttentionLayer, WholeSequenceConfig, mix_by_length
from torchs4.layers.precision import full_precision
from torchs4.layers.registry import register_layer

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor


@register_layer("fnet")
@dataclass(frozen=True)
class FNetConfig(WholeSequenceConfig):
    """FNet has no options."""

    def build(self, features: int) -> FNet:
        """The layer that this describes."""
        return FNet(features, self)


class FNet(AttentionLayer):
    """The real part of the two-dimensional transform of a sequence, divided by √(L·H) to keep its size.

    Without that, as published, sizes grow with the length, and only a norm behind the layer would help.
    """

    config_class = FNetConfig
    config: FNetConfig

    def _build(self, features: int) -> None:
        """Nothing: it has no weights."""

    def _mix(self, x: Float[Tensor, "B L H"], counts: Int[Tensor, " B"] | None) -> Float[Tensor, "B L H"]:
        return mix_by_length(_transform, x, counts)


def _transform(x: Float[Tensor, "B L H"]) -> Float[Tensor, "B L H"]:
    # Transforms of half precision exist on some devices and for some lengths only.
    with full_precision(x):
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        return torch.fft.fft2(wide, norm="ortho").real.to(x.dtype)
