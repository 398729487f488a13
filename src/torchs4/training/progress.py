"""How far a run is, and how fast it goes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from torchs4.configuration import require_whole

if TYPE_CHECKING:
    from collections.abc import Sequence


class StepReport(NamedTuple):
    """How the run stands after a step. Loss and metrics are of the epoch so far.

    epoch, epochs: passes over the examples, some of which may be shown several times between measurements.

    After the first step, which prepares, speed and time left are not known yet: 0 and None.
    """

    epoch: int
    epochs: int
    step: int
    total_steps: int
    loss: float
    metrics: dict[str, float]
    examples_per_second: float
    seconds_left: float | None


@dataclass
class Progress:
    """How far a run is: what a checkpoint holds beside weights and optimiser.

    batch: the next one of this epoch. sums, answers: of the task, in this epoch so far.
    seconds: of training and measuring, in all. waited: of these, for data.
    """

    step: int = 0
    epoch: int = 0
    batch: int = 0
    sums: list[float] = field(default_factory=list)
    answers: int = 0
    seconds: float = 0.0
    waited: float = 0.0
    measurements: int = 0
    best: float | None = None
    best_loss: float = math.inf
    best_epoch: int = 0

    def __post_init__(self) -> None:
        for name in ("step", "epoch", "batch", "answers", "measurements", "best_epoch"):
            require_whole(name, getattr(self, name), 0)

    def start_epoch(self) -> None:
        """Forget the epoch that is over."""
        self.batch, self.sums, self.answers = 0, [], 0

    def add(self, sums: Sequence[float], answers: int) -> None:
        """Count a step."""
        self.step, self.batch, self.answers = self.step + 1, self.batch + 1, self.answers + answers
        self.sums = [old + new for old, new in zip(self.sums or [0.0] * len(sums), sums, strict=True)]

    def means(self) -> list[float]:
        """The task's sums of this epoch, for each answer."""
        return [total / max(self.answers, 1) for total in self.sums]


class Speed:
    """Examples per second, of late. The first step, which compiles and prepares, does not count."""

    def __init__(self) -> None:
        self._is_first = True
        self._examples = 0.0
        self._seconds = 0.0

    def add(self, examples: int, seconds: float) -> None:
        """Count a step."""
        if self._is_first:
            self._is_first = False
            return
        # Older steps count less and less.
        self._examples = 0.95 * self._examples + examples
        self._seconds = 0.95 * self._seconds + seconds

    def per_second(self) -> float:
        """How fast it goes; 0 while nobody knows."""
        return self._examples / self._seconds if self._seconds else 0.0
