"""Two texts, one answer: both go through one network, and a small one compares what it made of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from typing import TYPE_CHECKING, Unpack

import torch
from torch import Tensor, nn

from torchs4.configuration import FROM_DATA, merge_options, require_choice
from torchs4.layers.placement import drawn_on_cpu
from torchs4.layers.signatures import lists_options
from torchs4.models.pooling import POOLING_KINDS
from torchs4.models.pretrained import PretrainedModel
from torchs4.models.sequence_model import SequenceModel, SequenceModelConfig, SequenceModelOptions

if TYPE_CHECKING:
    from jaxtyping import Float, Int


@dataclass(frozen=True)
class PairModelConfig(SequenceModelConfig):
    """Options of a PairModel: those of the network that reads each text, and output_size of the whole."""

    output_size: int = field(default=2, metadata=FROM_DATA)
    vocabulary_size: int | None = field(default=256, metadata=FROM_DATA)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("pooling", self.pooling, [kind for kind in POOLING_KINDS if kind != "none"])


class PairModel(PretrainedModel[PairModelConfig]):
    """Predicts from pairs of token sequences (B, 2, L).

    Each becomes a vector by the same network; of the two vectors a and b, the head reads a, b, a - b and a·b.
    """

    config_class = PairModelConfig

    @lists_options(PairModelConfig)
    def __init__(
        self,
        config: PairModelConfig | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Unpack[SequenceModelOptions],
    ) -> None:
        super().__init__()
        self.config = config = merge_options(PairModelConfig, config, options)
        width = config.features
        with drawn_on_cpu(self, device, dtype):
            own = {"output_size": width, "names": (), "output_scaling": None}
            fields = {field.name: getattr(config, field.name) for field in fields_of(SequenceModelConfig)}
            self.reader = SequenceModel(SequenceModelConfig(**{**fields, **own}))
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
