"""One position at a time: O(N) per feature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchs4.ops.plain_blocks import PlainBlocks
from torchs4.ops.reference.gating import gated_residual

if TYPE_CHECKING:
    from jaxtyping import Float


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
    a_real, a_imaginary = a.unbind(-1)
    x_real, x_imaginary = state.unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack(
        [a_real * x_real - a_imaginary * x_imaginary, a_imaginary * x_real + a_real * x_imaginary],
        dim=-1,
    ).flatten(-2)
    new_state = turned + b * u[..., None]
    if p.shape[0]:
        feedback = torch.einsum("rhn,bhn->rbh", q, state)
        new_state = new_state - torch.einsum("rhn,rbh->bhn", p, feedback)
    return torch.einsum("mhn,bhn->bmh", C, new_state) + D * u[:, None], new_state


class PreparedBlocks(PlainBlocks):
    """Equal blocks one after the other, and a norm after them, ready to step without gradients."""

    modal_step = staticmethod(modal_step)
    gated_residual = staticmethod(gated_residual)
