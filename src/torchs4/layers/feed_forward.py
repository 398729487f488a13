"""A position-wise feed-forward block, as in a Transformer: it mixes features, never positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from torchs4.layers.block import ACTIVATIONS, S4BlockConfig, SequenceDropout, mixed
from torchs4.layers.norms import build_norm, normalise

if TYPE_CHECKING:
    from jaxtyping import Bool, Float


class FeedForward(nn.Module):
    """norm → wider → activation → dropout → back → residual, for (B, L, H) or one position (B, H).

    config: of the blocks that it stands between; norm, activation and dropout are theirs.
    widening: how many times as wide it is inside.
    """

    def __init__(self, features: int, widening: int, config: S4BlockConfig) -> None:
        super().__init__()
        self.norm = build_norm(config.norm, features)
        self.expand = nn.Linear(features, widening * features)
        self.contract = nn.Linear(widening * features, features)
        self.dropout = SequenceDropout(config.dropout, config.tied_dropout)
        self._activation = ACTIVATIONS[config.activation]

    def forward(
        self, x: Float[Tensor, "B *L H"], mask: Bool[Tensor, "B L"] | None = None
    ) -> Float[Tensor, "B *L H"]:
        """Whole sequences, chunks or one position: it is all the same to it."""
        y = self._activation(mixed(self.expand, normalise(self.norm, x, mask)))
        return x + mixed(self.contract, self.dropout(y))
