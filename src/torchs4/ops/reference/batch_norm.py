"""BatchNorm that leaves padding out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


def masked_batch_norm(
    x: Float[Tensor, "*rows H"],
    mask: Bool[Tensor, " *rows"],
    weight: Float[Tensor, " H"],
    bias: Float[Tensor, " H"],
    epsilon: float,
) -> tuple[Float[Tensor, "*rows H"], Float[Tensor, " H"], Float[Tensor, " H"]]:
    """Normalise over the rows that the mask marks, the others are zero; also their mean and variance."""
    rows = x[mask]
    variance, mean = torch.var_mean(rows, dim=0, correction=0)
    scale = weight * torch.rsqrt(variance + epsilon)
    y = torch.zeros_like(x)
    y[mask] = (rows - mean) * scale + bias
    return y, mean, variance


def masked_batch_norm_backward(
    grad: Float[Tensor, "*rows H"],
    x: Float[Tensor, "*rows H"],
    mask: Bool[Tensor, " *rows"],
    weight: Float[Tensor, " H"],
    mean: Float[Tensor, " H"],
    variance: Float[Tensor, " H"],
    epsilon: float,
) -> list[Tensor]:
    """The gradients of `masked_batch_norm` for x, weight and bias."""
    spread = torch.rsqrt(variance + epsilon)
    normal, real_grad = (x[mask] - mean) * spread, grad[mask]
    weight_grad, bias_grad = (real_grad * normal).sum(0), real_grad.sum(0)
    x_grad = torch.zeros_like(x)
    x_grad[mask] = weight * spread * (real_grad - (bias_grad + normal * weight_grad) / len(normal))
    return [x_grad, weight_grad, bias_grad]
