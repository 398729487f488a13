"""Whole blocks that step in plain PyTorch, with an implementation's own step and gates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.nn.functional as F

from torchs4.ops.mixing import linear

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxtyping import Float
    from torch import Tensor

    from torchs4.ops.forms import BlockWeights, NormWeights


class PlainBlocks:
    """Equal blocks one after the other, and a norm after them, ready to step without gradients."""

    modal_step: Callable[..., Any]
    gated_residual: Callable[..., Any]

    def __init__(self, blocks: Sequence[BlockWeights], final_norm: NormWeights | None = None) -> None:
        self._blocks, self._final_norm = blocks, final_norm

    def step(
        self, x: Float[Tensor, "B H"], states: Sequence[Float[Tensor, "B H N"]]
    ) -> tuple[Float[Tensor, "B H"], list[Float[Tensor, "B H N"]]]:
        """What comes out after the last block, and every block's next state."""
        new_states = []
        for block, state in zip(self._blocks, states, strict=True):
            u = normalised(x, block.norm)
            y, new_state = self.modal_step(*block.system, block.C, block.D, u, state)
            mixed = linear(F.gelu(y.flatten(1)), block.mixing_weight)
            x = self.gated_residual(mixed, block.mixing_bias, x)
            new_states.append(new_state)
        return x if self._final_norm is None else normalised(x, self._final_norm), new_states


def normalised(x: Float[Tensor, "B H"], norm: NormWeights) -> Float[Tensor, "B H"]:
    """The norm of vectors, by a mean and a variance if it has them."""
    if norm.mean is None or norm.variance is None:
        return F.layer_norm(x, x.shape[1:], norm.weight, norm.bias, norm.epsilon)
    return F.batch_norm(x, norm.mean, norm.variance, norm.weight, norm.bias, eps=norm.epsilon)
