"""One position at a time: O(N) per feature."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torchs4.ops.reference.gating import gated_residual

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from torchs4.ops.reference.discretization import DiscreteDPLR


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


class BlockWeights(NamedTuple):
    """A block with LayerNorm before the layer, GELU, gated mixing and residual, ready to step."""

    norm_weight: Float[Tensor, " H"]
    norm_bias: Float[Tensor, " H"]
    epsilon: float
    system: DiscreteDPLR
    C: Float[Tensor, "M H N"]
    D: Float[Tensor, "M H"]
    mixing_weight: Float[Tensor, "2*H M*H"]
    mixing_bias: Float[Tensor, " 2*H"]


class PreparedBlocks:
    """Equal blocks one after the other, ready to step without gradients."""

    def __init__(self, blocks: Sequence[BlockWeights]) -> None:
        self._blocks = blocks

    def step(
        self, x: Float[Tensor, "B H"], states: Sequence[Float[Tensor, "B H N"]]
    ) -> tuple[Float[Tensor, "B H"], list[Float[Tensor, "B H N"]]]:
        """The last block's output and every block's next state."""
        new_states = []
        for block, state in zip(self._blocks, states, strict=True):
            u = F.layer_norm(x, x.shape[1:], block.norm_weight, block.norm_bias, block.epsilon)
            y, new_state = modal_step(*block.system, block.C, block.D, u, state)
            mixed = F.linear(F.gelu(y.flatten(1)), block.mixing_weight)
            x = gated_residual(mixed, block.mixing_bias, x)
            new_states.append(new_state)
        return x, new_states
