"""The sizes of the paper's models that counts are made for. Nothing here was run on an accelerator."""

from __future__ import annotations

from typing import NamedTuple

from torchs4 import S4BlockConfig, S4Config, SequenceModel


class Size(NamedTuple):
    """A model and its batch; tokens where it has a vocabulary."""

    features: int
    layers: int
    state_size: int
    length: int
    batch: int
    bidirectional: bool = True
    vocabulary: int | None = None

    def build(self) -> SequenceModel:
        """The model, on the CPU."""
        layer = S4Config(state_size=self.state_size, bidirectional=self.bidirectional)
        options = {"output_size": 10} if self.vocabulary is None else {"output_size": 256, "pooling": "none"}
        return SequenceModel(
            features=self.features,
            num_layers=self.layers,
            block=S4BlockConfig(layer=layer, norm="layer" if self.vocabulary else "batch"),
            vocabulary_size=self.vocabulary,
            **options,
        )


SIZES = {
    "LRA Text, modern": Size(256, 6, 4, 4096, 16),
    "LRA Image, modern": Size(512, 6, 64, 1024, 50),
    "LRA Path-X, modern": Size(256, 6, 64, 16384, 16),
    # The trunk alone: 32 S4 blocks with GLU mixing; the publication has feed-forward layers after every
    # second one, and an adaptive softmax over 267,735 words, which torchs4 does not have yet.
    "WikiText trunk, one sequence": Size(1024, 32, 64, 8192, 1, bidirectional=False, vocabulary=256),
}
