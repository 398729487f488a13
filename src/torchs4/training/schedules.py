"""How learning rates change over a run: a factor for every step, from nothing but what a checkpoint holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torchs4.tasks import Metric
    from torchs4.training.config import OptimizerOptions


# A warm-up takes at most one part in so many of a run.
_SHORTEST_AFTER_WARMUP = 5


@dataclass
class Schedule:
    """The factor by which every group's own learning rate is multiplied.

    metric: what validation is measured by. reduced: how often a plateau has reduced the factor.
    best, waited: the best measurement after an epoch, and epochs since.
    """

    options: OptimizerOptions
    metric: Metric
    total_steps: int
    steps_per_epoch: int
    reduced: int = 0
    best: float | None = None
    waited: int = 0

    def factor(self, step: int, time_spent: float = 0.0) -> float:
        """For the step of that number, counted from 0, when so large a share of the time is spent."""
        options = self.options
        # A short run would otherwise end before its warm-up.
        warmup = min(options.warmup_steps, self.total_steps // _SHORTEST_AFTER_WARMUP)
        if step < warmup:
            return (step + 1) / warmup
        match options.schedule:
            case "constant":
                return 1.0
            case "plateau":
                return options.decay**self.reduced
            case "steps":
                return options.decay ** (step // self.steps_per_epoch // options.patience)
            case "cosine":
                progress = max((step - warmup) / max(1, self.total_steps - warmup), time_spent)
                return 0.5 * (1 + math.cos(math.pi * min(1.0, progress)))

    def after_epoch(self, value: float) -> None:
        """Tell it how an epoch went."""
        if self.metric.is_better(value, self.best):
            self.best, self.waited = value, 0
            return
        self.waited += 1
        if self.options.schedule == "plateau" and self.waited > self.options.patience:
            self.reduced, self.waited = self.reduced + 1, 0
