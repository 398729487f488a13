"""Which of a few classes an input belongs to, be it one sequence or a pair of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional as F

from torchs4.description import OutputDescription
from torchs4.tasks.metrics import ACCURACY
from torchs4.tasks.task import Task

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from torchs4.description import Batch


@dataclass(frozen=True)
class Classification(Task):
    """One of these classes for each input: cross entropy, and the share of right answers."""

    classes: tuple[str, ...]

    metrics = (ACCURACY,)
    sum_count = 2

    @property
    def output(self) -> OutputDescription:
        return OutputDescription(len(self.classes), names=self.classes)

    def count(self, batch: Batch) -> int:
        return len(batch.y)

    def sums(self, prediction: Tensor, batch: Batch) -> Tensor:
        loss = F.cross_entropy(prediction.float(), batch.y, reduction="sum")
        right = (prediction.argmax(-1) == batch.y).sum()
        return torch.stack([loss, right.to(loss.dtype)])

    def scores(self, means: Sequence[float]) -> dict[str, float]:
        return {"accuracy": means[1]}
