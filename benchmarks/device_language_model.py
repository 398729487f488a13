"""The publication's language model as tensors without data, to count its memory: torchs4 has none like it.

16 groups of two S4 blocks (1,024 features, 64 states, gated mixing) and a feed-forward layer four times as
wide, under an adaptive softmax over WikiText-103's 267,735 words whose weights are the embedding's too. How
many of a text's words fall into which band of the softmax depends on the text: the shares here are assumed.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchs4 import S4Block, S4Config

FEATURES, STATE_SIZE, GROUPS, WIDER = 1024, 64, 16, 4


class Band(NamedTuple):
    """Words of similar frequency: how many, how wide their vectors are, which share of a text they are."""

    words: int
    width: int
    share: float


BANDS = (Band(20_000, 1024, 1.0), Band(40_000, 256, 0.15), Band(140_000, 64, 0.05), Band(67_735, 16, 0.02))


class FeedForward(nn.Module):
    """Norm, a wider layer, GELU and back, beside a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(FEATURES)
        self.wide, self.narrow = nn.Linear(FEATURES, WIDER * FEATURES), nn.Linear(WIDER * FEATURES, FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, H) to the same."""
        y: Tensor = x + self.narrow(F.gelu(self.wide(self.norm(x))))
        return y


class AdaptiveEnds(nn.Module):
    """Embedding and softmax with the same weights, band by band."""

    def __init__(self) -> None:
        super().__init__()
        self.vectors = nn.ParameterList(torch.empty(band.words, band.width) for band in BANDS)
        self.maps = nn.ModuleList(nn.Linear(band.width, FEATURES, bias=False) for band in BANDS)
        # In the first band each of the others counts as one more word.
        self.bands = nn.Linear(FEATURES, len(BANDS) - 1)

    def embed(self, tokens: Tensor) -> Tensor:
        """Every band looks up its share, and the sum is as large as the text."""
        parts = []
        for band, vectors, widen in zip(BANDS, self.vectors, self.maps, strict=True):
            looked_up = F.embedding(tokens[:, : int(band.share * tokens.shape[1])], vectors)
            parts.append(F.pad(widen(looked_up), (0, 0, 0, tokens.shape[1] - looked_up.shape[1])))
        return torch.stack(parts).sum(0)

    def loss(self, x: Tensor) -> Tensor:
        """Log probabilities of every band for the positions whose words are in it."""
        total = x.new_zeros(())
        for number, (band, vectors, widen) in enumerate(zip(BANDS, self.vectors, self.maps, strict=True)):
            rows = x[:, : int(band.share * x.shape[1])].flatten(0, 1)
            logits = rows @ widen.weight @ vectors.T
            if number == 0:
                logits = torch.cat([logits, self.bands(rows)], dim=-1)
            words = torch.zeros(len(rows), dtype=torch.long, device=x.device)
            total = total + F.cross_entropy(logits, words, reduction="sum")
        return total


class LanguageModel(nn.Module):
    """What the publication trained on WikiText-103, with 16 groups."""

    def __init__(self, groups: int) -> None:
        super().__init__()
        layer = S4Config(state_size=STATE_SIZE)
        self.ends = AdaptiveEnds()
        self.layers = nn.ModuleList(
            module
            for _ in range(groups)
            for module in (
                S4Block(FEATURES, layer=layer),
                S4Block(FEATURES, layer=layer),
                FeedForward(),
            )
        )
        self.norm = nn.LayerNorm(FEATURES)

    def forward(self, tokens: Tensor) -> Tensor:
        """The loss of (B, L) tokens."""
        x = self.ends.embed(tokens)
        for module in self.layers:
            x = module(x)
        loss: Tensor = self.ends.loss(self.norm(x))
        return loss
