"""How sure a classifier may be: scores are multiplied so that the probabilities of other examples are right.

Axes: n examples, o classes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

    from torchs4.data import SequenceData
    from torchs4.models import SequenceModel

_FACTORS: list[float] = np.logspace(-2, 1.5, 36).tolist()
# Of networks that have learned all examples by heart: on folds of small sets, halved scores are best.
_LEARNED_BY_HEART = 0.5
_AT_ONCE = 64


def best_factor(scores: Float[Tensor, "n o"], y: Int[Tensor, " n"]) -> float:
    """By what to multiply the scores of examples that took no part in finding them."""
    # Few examples, all of them right, would ask for certainty.
    doubt = 2 / (len(y) + 2)
    return min(_FACTORS, key=lambda factor: float(F.cross_entropy(factor * scores, y, label_smoothing=doubt)))


@torch.no_grad()
def sharpen(model: SequenceModel, data: SequenceData) -> None:
    """Let a network that was trained be as sure as validation examples say, or half as sure without any.

    Its most probable classes stay what they are.
    """
    factor = _LEARNED_BY_HEART
    split = data.validation
    if not data.learns_all and split is not None:
        model.eval()
        starts = range(0, len(split), _AT_ONCE)
        batches = [split.batch(np.arange(start, min(start + _AT_ONCE, len(split)))) for start in starts]
        scores = torch.cat([model(batch.x, lengths=batch.lengths) for batch in batches])
        factor = best_factor(scores, torch.cat([batch.y for batch in batches]))
    for parameter in model.head.parameters():
        parameter.mul_(factor)
