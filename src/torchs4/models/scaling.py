"""Between a person's units and a network's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from jaxtyping import Float

    from torchs4.description import Scaling


class ColumnScaling(nn.Module):
    """Shifts and scales the last axis. Its numbers are part of the configuration, not of the weights."""

    shift: Tensor
    scale: Tensor

    def __init__(self, scaling: Scaling) -> None:
        super().__init__()
        self.register_buffer("shift", torch.tensor(scaling.shift), persistent=False)
        self.register_buffer("scale", torch.tensor(scaling.scale), persistent=False)

    def to_network(self, x: Float[Tensor, "... k"]) -> Float[Tensor, "... k"]:
        """From the data's units."""
        return (x - self.shift) / self.scale

    def to_data(self, x: Float[Tensor, "... k"]) -> Float[Tensor, "... k"]:
        """To the data's units."""
        return x * self.scale + self.shift
