"""BatchNorm that leaves padding out, without asking a device how much of it there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from torch import Tensor


def masked_batch_norm(
    x: Float[Tensor, "*rows H"],
    mask: Bool[Tensor, " *rows"],
    weight: Float[Tensor, " H"],
    bias: Float[Tensor, " H"],
    epsilon: float,
) -> tuple[Float[Tensor, "*rows H"], Float[Tensor, " H"], Float[Tensor, " H"]]:
    """Normalise over the rows that the mask marks, the others are zero; also their mean and variance."""
    real, rows = mask[..., None], tuple(range(x.ndim - 1))
    count = mask.sum().to(x.dtype)
    # Zeros, not a product with the mask: padding may hold anything.
    mean = x.where(real, 0).sum(rows) / count
    centred = (x - mean).where(real, 0)
    variance = centred.square().sum(rows) / count
    y = (centred * (weight * torch.rsqrt(variance + epsilon)) + bias).where(real, 0)
    return y, mean, variance
