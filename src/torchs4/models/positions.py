"""Where a position is, told to layers that do not know by themselves: sines and cosines of its number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from torchs4.layers.precision import widest_dtype

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

# The slowest wave has a period of 2π times this many positions, as is usual.
_LONGEST = 10_000


class Positions(nn.Module):
    """Adds waves of many lengths to a sequence, as the first Transformer did; there is no longest sequence.

    What counts is how many real positions came before, so padding changes nothing. Nothing is learned.
    """

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features

    def forward(
        self, x: Float[Tensor, "B L H"], mask: Bool[Tensor, "B L"] | None = None
    ) -> Float[Tensor, "B L H"]:
        """Whole sequences with their positions."""
        if mask is None:
            return x + self._waves(torch.arange(x.shape[1], device=x.device)).to(x.dtype)
        return x + self._waves(mask.cumsum(1) - 1).to(x.dtype)

    def go_on(
        self, x: Float[Tensor, "B L H"], seen: Int[Tensor, " B"], counts: Int[Tensor, " B"] | None = None
    ) -> tuple[Float[Tensor, "B L H"], Int[Tensor, " B"]]:
        """A chunk after so many positions, and how many there are after it. counts: its real positions."""
        if not isinstance(seen, Tensor) or seen.shape != x.shape[:1] or seen.is_floating_point():
            received = (
                f"{seen.dtype} {tuple(seen.shape)}" if isinstance(seen, Tensor) else type(seen).__name__
            )
            raise ValueError(
                f"state ends with {received}; expected how many positions each of the {len(x)} sequences has "
                f"seen. Start with initial_state(batch_size={len(x)}) and pass on what step or prefill gave."
            )
        numbers = seen[:, None] + torch.arange(x.shape[1], device=x.device)
        return x + self._waves(numbers).to(x.dtype), seen + (x.shape[1] if counts is None else counts)

    def none_yet(self, batch_size: int, device: torch.device) -> Int[Tensor, " B"]:
        """What `go_on` starts from."""
        return torch.zeros(batch_size, dtype=torch.int64, device=device)

    def _waves(self, numbers: Int[Tensor, "*B L"]) -> Float[Tensor, "*B L H"]:
        # float64, because float32 could not tell far positions apart.
        columns = torch.arange(0, self.features, 2, dtype=widest_dtype(numbers.device), device=numbers.device)
        angles = numbers[..., None] * _LONGEST ** (-columns / self.features)
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(-2)[..., : self.features]
