"""What operators take and give beside tensors; every implementation speaks of these.

Axes as in `torchs4.ops`; T samples of a block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float
    from torch import Tensor


class DiscreteDPLR(NamedTuple):
    """x_k = a·x_{k-1} - p (q x_{k-1}) + b u_k per feature: one step costs O(N). Rank 0 is diagonal."""

    a: Float[Tensor, "H n 2"]
    p: Float[Tensor, "R H N"]
    q: Float[Tensor, "R H N"]
    b: Float[Tensor, "H N"]


class ChunkOperators(NamedTuple):
    """What a system does to a block of T samples.

    reach: Ā^i b, what a sample leaves in the state i samples later.
    sight: C Ā^(i+1), what the i-th output sees of the state before the block.
    response: C Ā^i b, the kernel's first T samples.
    change: (Ā^T - 1)ᵀ, what a block adds to a state: without the 1 a slow system keeps its digits.
    """

    reach: Float[Tensor, "H T N"]
    sight: Float[Tensor, "M H T N"]
    response: Float[Tensor, "M H T"]
    change: Float[Tensor, "H N N"]


class NormWeights(NamedTuple):
    """LayerNorm; with a mean and a variance of every feature, BatchNorm by these."""

    weight: Float[Tensor, " H"]
    bias: Float[Tensor, " H"]
    epsilon: float
    mean: Float[Tensor, " H"] | None = None
    variance: Float[Tensor, " H"] | None = None


class BlockWeights(NamedTuple):
    """A block with a norm before the layer, GELU, gated mixing and residual, ready to step."""

    norm: NormWeights
    system: DiscreteDPLR
    C: Float[Tensor, "M H N"]
    D: Float[Tensor, "M H"]
    mixing_weight: Float[Tensor, "2*H M*H"]
    mixing_bias: Float[Tensor, " 2*H"]


class PreparedBlocks(Protocol):
    """Equal blocks one after the other, and a norm after them, ready to step without gradients."""

    def step(
        self, x: Float[Tensor, "B H"], states: Sequence[Float[Tensor, "B H N"]]
    ) -> tuple[Float[Tensor, "B H"], list[Float[Tensor, "B H N"]]]:
        """What comes out after the last block, and every block's next state."""
