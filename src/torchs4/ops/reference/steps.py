"""One position at a time: O(N) per feature."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from torchs4.ops.reference.gating import gated_residual

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from torchs4.ops.forms import BlockWeights, NormWeights


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


class PreparedBlocks:
    """Equal blocks one after the other, and a norm after them, ready to step without gradients."""

    def __init__(self, blocks: Sequence[BlockWeights], final_norm: NormWeights | None = None) -> None:
        self._blocks, self._final_norm = blocks, final_norm

    def step(
        self, x: Float[Tensor, "B H"], states: Sequence[Float[Tensor, "B H N"]]
    ) -> tuple[Float[Tensor, "B H"], list[Float[Tensor, "B H N"]]]:
        """What comes out after the last block, and every block's next state."""
        new_states = []
        for block, state in zip(self._blocks, states, strict=True):
            u = _normalised(x, block.norm)
            y, new_state = modal_step(*block.system, block.C, block.D, u, state)
            mixed = F.linear(F.gelu(y.flatten(1)), block.mixing_weight)
            x = gated_residual(mixed, block.mixing_bias, x)
            new_states.append(new_state)
        return x if self._final_norm is None else _normalised(x, self._final_norm), new_states


def _normalised(x: Float[Tensor, "B H"], norm: NormWeights) -> Float[Tensor, "B H"]:
    if norm.mean is None or norm.variance is None:
        return F.layer_norm(x, x.shape[1:], norm.weight, norm.bias, norm.epsilon)
    return F.batch_norm(x, norm.mean, norm.variance, norm.weight, norm.bias, eps=norm.epsilon)
