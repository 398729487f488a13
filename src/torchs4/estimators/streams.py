"""A stream through several models at once, whose predictions are averaged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float
    from torch import Tensor

    from torchs4.inference import Stream


class EnsembleStream:
    """Like `Stream`, for an ensemble."""

    def __init__(self, streams: Sequence[Stream]) -> None:
        self.streams = list(streams)

    @property
    def positions(self) -> int:
        """How many positions have come so far."""
        return self.streams[0].positions

    @property
    def prediction(self) -> Float[Tensor, "*B O"]:
        """From everything so far: the mean of the values, or of the probabilities, as their logarithms."""
        predictions = torch.stack([stream.prediction for stream in self.streams]).double()
        if self.streams[0].model.config.output_scaling is not None:
            return predictions.mean(0).float()
        return predictions.softmax(-1).mean(0).log().float()

    def push(self, samples: Any) -> Float[Tensor, "*B O"]:
        """Read samples: the prediction from everything so far."""
        for stream in self.streams:
            stream.push(samples)
        return self.prediction

    def probabilities(self, sequence: int = 0) -> dict[str, float]:
        """How likely each class is by now, by name, for one sequence of the batch."""
        each = [stream.probabilities(sequence) for stream in self.streams]
        return {name: sum(one[name] for one in each) / len(each) for name in each[0]}
