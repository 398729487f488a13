"""How likely each whole number is, by a mixture of logistic distributions that are rounded to whole numbers.

Axes: K distributions of a mixture, each with a weight, a middle and a scale.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

from torchs4.description import OutputDescription
from torchs4.tasks.next_token import NextToken
from torchs4.tasks.task import asked_positions

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

    from torchs4.description import Batch

VALUES = 256
# Values as a network sees them: 0 … 255 become -1 … 1.
_HALF = (VALUES - 1) / 2
# Narrower than a hundredth of a value, a distribution is one value: its gradient would only be noise.
_LEAST_LOG_SCALE = math.log(1 / _HALF) - 5
# Wider than a hundred times all values, it is flat, and a bin's share of it would round to nothing.
_LARGEST_LOG_SCALE = 5.0
# At the start, distributions stand side by side over all values, each about as wide as its share of them.
_START_LOG_SCALE = -1.5


@dataclass(frozen=True)
class LogisticMixture(NextToken):
    """A mixture for every position over the values 0 … 255: cross entropy, perplexity, bits per dimension.

    A model gives three numbers for each distribution: all weights, then all middles, then all scales. What
    lies below 0 counts as 0 and what lies above 255 as 255, so that probabilities add up to 1.
    """

    vocabulary_size: int = VALUES
    unit: str = "dimension"
    mixtures: int = 10

    @property
    def output(self) -> OutputDescription:
        return OutputDescription(3 * self.mixtures, per_position=True, causal=True, mixtures=self.mixtures)

    def sums(self, prediction: Tensor, batch: Batch) -> Tensor:
        asked, each = asked_positions(batch), log_probability(prediction, batch.y)
        return -(each if asked is None else each.where(asked, 0)).sum()[None]


def log_probability(prediction: Float[Tensor, "... 3*K"], values: Int[Tensor, "..."]) -> Float[Tensor, "..."]:
    """The logarithm of how likely these values are."""
    weights, middles, log_scales = _parts(prediction)
    values = values[..., None]
    x = (values.to(middles.dtype) - _HALF) / _HALF
    inverse = torch.exp(-log_scales)
    centred = (x - middles) * inverse
    half_bin = inverse / (2 * _HALF)
    above, below = centred + half_bin, centred - half_bin
    # The difference of two sigmoids, without cancellation: σ(a) - σ(b) = σ(a) σ(-b) (1 - e^(b - a)).
    inside = F.logsigmoid(above) + F.logsigmoid(-below) + torch.log(-torch.expm1(below - above))
    each = torch.where(
        values == 0, F.logsigmoid(above), torch.where(values == VALUES - 1, F.logsigmoid(-below), inside)
    )
    return torch.logsumexp(weights + each, dim=-1)


def log_probabilities(prediction: Float[Tensor, "... 3*K"]) -> Float[Tensor, "... 256"]:
    """The logarithm of how likely each value is."""
    values = torch.arange(VALUES, device=prediction.device)
    return log_probability(prediction[..., None, :], values.expand(*prediction.shape[:-1], VALUES))


def _parts(prediction: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # Half precision has no digits for bins.
    prediction = prediction.to(torch.promote_types(prediction.dtype, torch.float32))
    weights, middles, log_scales = prediction.chunk(3, dim=-1)
    count = weights.shape[-1]
    spread = torch.linspace(-1, 1, count + 2, dtype=prediction.dtype, device=prediction.device)[1:-1]
    log_scales = (log_scales + _START_LOG_SCALE).clamp(_LEAST_LOG_SCALE, _LARGEST_LOG_SCALE)
    return weights.log_softmax(-1), middles + spread, log_scales
