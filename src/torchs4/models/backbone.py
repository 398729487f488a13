"""Blocks alone, as a model: features go in, features come out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from torchs4.models.sequence_model import SequenceModel

if TYPE_CHECKING:
    from torchs4.models.sequence_model import SequenceModelConfig


class Backbone(SequenceModel):
    """A SequenceModel without encoder and head, for weights that came without them.

    `Backbone(input_features=64, output_size=64, features=64, pooling="none")`.
    """

    def _build(self, config: SequenceModelConfig) -> None:
        if not config.input_features == config.output_size == config.features:
            raise ValueError(
                f"A Backbone gives what it takes: input_features ({config.input_features}), features "
                f"({config.features}) and output_size ({config.output_size}) must be the same. "
                f"A SequenceModel maps between different ones."
            )
        if config.vocabulary_size is not None or config.stem:
            raise ValueError("A Backbone has no encoder: vocabulary_size and stem are a SequenceModel's.")
        super()._build(config)
        self.encoder, self.head = nn.Identity(), nn.Identity()
