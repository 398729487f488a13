"""One position at a time: O(N) per feature, as operations that a compiler fuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchs4.ops.plain_blocks import PlainBlocks
from torchs4.ops.portable.gating import gated_residual
from torchs4.ops.portable.pairs import Pair

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor


def modal_step(
    a: Float[Tensor, "H n 2"],
    p: Float[Tensor, "R H N"],
    q: Float[Tensor, "R H N"],
    b: Float[Tensor, "H N"],
    C: Float[Tensor, "M H N"],
    D: Float[Tensor, "M H"],
    u: Float[Tensor, "B H"],
    state: Float[Tensor, "B H N"],
) -> tuple[Float[Tensor, "B M H"], Float[Tensor, "B H N"]]:
    """One step at O(N) per feature: the output and the next state."""
    modes = Pair(*state.unflatten(-1, (-1, 2)).unbind(-1))
    new_state = modes.times(Pair(*a.unbind(-1))).stacked().flatten(-2) + b * u[..., None]
    # Sums over products, not einsum: for a few sequences a batched product would be one launch per axis.
    for column, reader in zip(p, q, strict=True):
        new_state = new_state - column * (reader * state).sum(-1, keepdim=True)
    return (C * new_state[:, None]).sum(-1) + D * u[:, None], new_state


class PreparedBlocks(PlainBlocks):
    """Equal blocks one after the other, and a norm after them, ready to step without gradients."""

    modal_step = staticmethod(modal_step)
    gated_residual = staticmethod(gated_residual)
