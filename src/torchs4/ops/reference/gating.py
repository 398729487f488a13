"""The end of a block: bias, gated linear unit, tied dropout and residual."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float


def gated_residual(
    mixed: Float[Tensor, "... 2*H"],
    bias: Float[Tensor, " 2*H"],
    residual: Float[Tensor, "... H"],
    scale: Float[Tensor, "B H"] | None = None,
) -> Float[Tensor, "... H"]:
    """The residual plus the gated linear unit of mixed + bias, times the scale of its sequence."""
    unit = torch.nn.functional.glu(mixed + bias, dim=-1)
    return residual + (unit if scale is None else unit * scale[:, None])


def gated_residual_backward(
    grad: Float[Tensor, "... H"],
    mixed: Float[Tensor, "... 2*H"],
    bias: Float[Tensor, " 2*H"],
    scale: Float[Tensor, "B H"] | None = None,
) -> list[Tensor]:
    """The gradients of `gated_residual` for mixed and bias; that of the residual is grad itself."""
    value, gate = (mixed + bias).chunk(2, dim=-1)
    gate = gate.sigmoid()
    value_grad = (grad if scale is None else grad * scale[:, None]) * gate
    mixed_grad = torch.cat([value_grad, value_grad * value * (1 - gate)], dim=-1)
    return [mixed_grad.to(mixed.dtype), mixed_grad.reshape(-1, len(bias)).sum(0)]
