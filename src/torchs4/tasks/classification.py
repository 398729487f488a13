"""Which of a few classes an input belongs to, be it one sequence or a pair of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from torchs4.description import OutputDescription
from torchs4.tasks.metrics import ACCURACY, WEIGHTED_ACCURACY
from torchs4.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from torchs4.description import Batch
    from torchs4.tasks.metrics import Metric


@dataclass(frozen=True)
class Classification(Task):
    """One of these classes for each input: cross entropy, and the share of right answers.

    weights: how much a mistake about each class counts; without them all count alike. With them, the best
        model is the one with the most weight of right answers.
    """

    classes: tuple[str, ...]
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if self.weights and len(self.weights) != len(self.classes):
            raise ValueError(
                f"There are {len(self.weights)} weights for {len(self.classes)} classes; give one for each."
            )

    @property
    def metrics(self) -> tuple[Metric, ...]:  # type: ignore[override]
        return (WEIGHTED_ACCURACY, ACCURACY) if self.weights else (ACCURACY,)

    @property
    def sum_count(self) -> int:  # type: ignore[override]
        return 4 if self.weights else 2

    @property
    def output(self) -> OutputDescription:
        return OutputDescription(len(self.classes), names=self.classes)

    def count(self, batch: Batch) -> int:
        return len(batch.y)

    def sums(self, prediction: Tensor, batch: Batch) -> Tensor:
        weights = prediction.new_tensor(self.weights).float() if self.weights else None
        loss = F.cross_entropy(prediction.float(), batch.y, weights, reduction="sum")
        right = (prediction.argmax(-1) == batch.y).to(loss.dtype)
        if weights is None:
            return torch.stack([loss, right.sum()])
        each = weights[batch.y]
        return torch.stack([loss, right.sum(), (each * right).sum(), each.sum()])

    def scores(self, means: Sequence[float]) -> dict[str, float]:
        scores = {"accuracy": means[1]}
        return {"weighted_accuracy": means[2] / means[3], **scores} if self.weights else scores
