"""Sequences without what their padding holds, or without their padding."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor


def zero_padding(x: Float[Tensor, "B L H"], mask: Bool[Tensor, "B L"] | None) -> Float[Tensor, "B L H"]:
    """Zeros where a position is not real: NaN times a gradient of zero would be NaN."""
    return x if mask is None else x.masked_fill(~mask[..., None], 0)


def move_to_front(
    x: Float[Tensor, "B L H"], mask: Bool[Tensor, "B L"]
) -> tuple[Float[Tensor, "B L H"], Int[Tensor, "B L"]]:
    """Each sequence's real positions in their order, then zeros; and where each position went."""
    order = (~mask).int().argsort(dim=1, stable=True)
    return take(zero_padding(x, mask), order), order.argsort(dim=1)


def take(x: Float[Tensor, "B L H"], places: Int[Tensor, "B L"]) -> Float[Tensor, "B L H"]:
    """What stands in these places of each sequence."""
    return x.gather(1, places[..., None].expand(-1, -1, x.shape[2]))
