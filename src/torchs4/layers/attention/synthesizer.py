"""Synthesizer (Tay et al. 2020): attention whose scores are learned, not products of queries and keys.

Axes: B sequences, L positions, r columns of the scores' factors, D columns of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch
import torch.nn.functional as F
from torch import nn

from torchs4.configuration import require_choice, require_whole
from torchs4.layers.attention.attention_layer import (
    AttentionLayer,
    HeadsConfig,
    longest_or_usual,
    require_dividing_heads,
    require_within,
    split_heads,
    visible_keys,
)
from torchs4.layers.registry import register_layer

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

Scores = Literal["random", "dense"]


@register_layer("synthesizer")
@dataclass(frozen=True)
class SynthesizerConfig(HeadsConfig):
    """Options of a Synthesizer's attention.

    scores: "random", learned numbers for each pair of positions, the same for all inputs; or "dense", which a
        small network makes of each position's input.
    score_rank: of the random scores, which are a product of two thin matrices, or the small network's width.
    max_length: of the longest sequence, since each position has weights; None is as long as the data are, and
        4,096 where nobody knows that.
    """

    scores: Scores = "random"
    score_rank: int = 32
    max_length: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("scores", self.scores, get_args(Scores))
        require_whole("score_rank", self.score_rank, 1)
        if self.max_length is not None:
            require_whole("max_length", self.max_length, 1)

    def build(self, features: int) -> Synthesizer:
        """The layer that this describes."""
        return Synthesizer(features, self)


class Synthesizer(AttentionLayer):
    """Softmax attention with synthetic scores: position i weighs position j by what was learned for j."""

    config_class = SynthesizerConfig
    config: SynthesizerConfig

    def _build(self, features: int) -> None:
        config = self.config
        self.heads = config.heads
        require_dividing_heads("features", features, self.heads)
        self.max_length = longest_or_usual(config.max_length)
        shape = (self.heads, self.max_length, config.score_rank)
        if config.scores == "random":
            self.rows = nn.Parameter(torch.randn(shape) / config.score_rank**0.5)
        else:
            self.hidden = nn.Linear(features, self.heads * config.score_rank)
        self.columns = nn.Parameter(torch.randn(shape) / config.score_rank**0.5)
        self.value = nn.Linear(features, features)
        self.output = nn.Linear(features, features)

    def _mix(self, x: Float[Tensor, "B L H"], counts: Int[Tensor, " B"] | None) -> Float[Tensor, "B L H"]:
        batch, length = x.shape[:2]
        require_within("Synthesizer", length, self.max_length)
        value = split_heads(self.value(x), self.heads)
        # Scores that are a product of two factors are what fused attention computes: it need not hold them.
        if self.config.scores == "random":
            rows = self.rows[:, :length].expand(batch, -1, -1, -1)
        else:
            rows = split_heads(F.relu(self.hidden(x)), self.heads)
        columns = self.columns[:, :length].expand(batch, -1, -1, -1)
        rows, columns = rows.to(value.dtype), columns.to(value.dtype)
        y = F.scaled_dot_product_attention(rows, columns, value, visible_keys(length, counts), scale=1.0)
        return self._joined(y)
