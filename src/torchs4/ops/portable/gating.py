"""The end of a block, as operations that a compiler fuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch.nn.functional as F

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor


def gated_residual(
    mixed: Float[Tensor, "... 2*H"],
    bias: Float[Tensor, " 2*H"],
    residual: Float[Tensor, "... H"],
    scale: Float[Tensor, "B H"] | None = None,
) -> Float[Tensor, "... H"]:
    """The residual plus the gated linear unit of mixed + bias, times the scale of its sequence."""
    unit = F.glu(mixed + bias, dim=-1)
    return residual + (unit if scale is None else unit * scale[:, None].to(unit.dtype))
