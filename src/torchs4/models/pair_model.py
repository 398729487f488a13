"""Two texts, one answer: both go through one network, and a small one compares what it made of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchs4.layers.block import S4BlockConfig
from torchs4.layers.options import merge_options, require_at_least, require_choice, require_config
from torchs4.models.pooling import POOLING_KINDS, PoolingKind
from torchs4.models.pretrained import PretrainedModel
from torchs4.models.sequence_model import SequenceModel, SequenceModelConfig

if TYPE_CHECKING:
    from jaxtyping import Float, Int


@dataclass(frozen=True)
class PairModelConfig:
    """Options of a PairModel.

    vocabulary_size: number of tokens.
    output_size: classes.
    features: width of the network (H).
    pooling: "mean" or "last".
    """

    vocabulary_size: int = 256
    output_size: int = 2
    features: int = 128
    num_layers: int = 4
    block: S4BlockConfig = field(default_factory=S4BlockConfig)
    pooling: PoolingKind = "mean"

    def __post_init__(self) -> None:
        for name in ("vocabulary_size", "output_size", "features", "num_layers"):
            require_at_least(name, getattr(self, name), 1)
        require_config("block", self.block, S4BlockConfig)
        require_choice("pooling", self.pooling, [kind for kind in POOLING_KINDS if kind != "none"])


class PairModel(PretrainedModel[PairModelConfig]):
    """Predicts from pairs of token sequences (B, 2, L).

    Each becomes a vector by the same network; of the two vectors a and b, the head reads a, b, a - b and a·b.
    """

    config_class = PairModelConfig

    def __init__(self, config: PairModelConfig | None = None, **options: Any) -> None:
        super().__init__()
        self.config = config = merge_options(PairModelConfig, config, options)
        width = config.features
        self.reader = SequenceModel(
            SequenceModelConfig(
                output_size=width,
                vocabulary_size=config.vocabulary_size,
                features=width,
                num_layers=config.num_layers,
                block=config.block,
                pooling=config.pooling,
            )
        )
        self.head = nn.Sequential(
            nn.Linear(4 * width, 2 * width), nn.GELU(), nn.Linear(2 * width, config.output_size)
        )

    def forward(
        self,
        x: Int[Tensor, "B 2 L"],
        lengths: Int[Tensor, "B 2"] | None = None,
        rate: float = 1.0,
    ) -> Float[Tensor, "B O"]:
        """The prediction for whole pairs. lengths: how many positions of each text are real."""
        if x.ndim != 3 or x.shape[1] != 2:
            raise ValueError(f"x has shape {tuple(x.shape)}; expected pairs of tokens, (batch, 2, length).")
        if lengths is not None and lengths.shape != x.shape[:2]:
            raise ValueError(
                f"lengths has shape {tuple(lengths.shape)}; expected two for each pair, {tuple(x.shape[:2])}."
            )
        flat_lengths = None if lengths is None else lengths.flatten()
        # The reader's own head makes the vectors that are compared.
        first, second = (
            self.reader(x.flatten(0, 1), lengths=flat_lengths, rate=rate).unflatten(0, x.shape[:2]).unbind(1)
        )
        return self.head(torch.cat([first, second, first - second, first * second], dim=-1))
