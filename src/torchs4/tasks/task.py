"""What every task tells: what a model has to give, what counts as a mistake, and how well it does.

Axes: B examples of a batch, L positions, k numbers per prediction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Bool, Float
    from torch import Tensor

    from torchs4.description import Batch, OutputDescription
    from torchs4.tasks.metrics import Metric


class Task(ABC):
    """A question about sequences. Everything that training, measuring and showing need to know of it is here.

    metrics: how well a model does; the first one decides which model is the best.
    sum_count: how many numbers `sums` gives.
    """

    metrics: tuple[Metric, ...]
    sum_count: int

    @property
    @abstractmethod
    def output(self) -> OutputDescription:
        """What a model has to give."""

    @abstractmethod
    def count(self, batch: Batch) -> int:
        """How many answers a batch asks for: what the mean loss is a mean over."""

    @abstractmethod
    def sums(self, prediction: Float[Tensor, "B ..."], batch: Batch) -> Float[Tensor, " n"]:
        """Sums over all answers of a batch. The first one is the loss, which training lowers."""

    def sums_of(self, model: Any, batch: Batch, rate: float = 1.0) -> Float[Tensor, " n"]:
        """The same of what a model predicts. A task that needs no whole prediction may ask for less."""
        return self.sums(_widened(model(batch.x, lengths=batch.lengths, rate=rate)), batch)

    def carried_sums(self, model: Any, batch: Batch, state: Any) -> tuple[Float[Tensor, " n"], Any]:
        """The same for examples that go on where others ended in that state, and the state after them."""
        prediction, state = model.prefill(batch.x, state)
        return self.sums(_widened(prediction), batch), state

    @abstractmethod
    def scores(self, means: Sequence[float]) -> dict[str, float]:
        """Every metric by its name, from the sums divided by the count."""

    def at_rate(self, batch: Batch, rate: float) -> Batch:
        """The batch as a slower recording would have caught it: every rate-th sample, without a filter."""
        if not batch.x.is_floating_point():
            raise ValueError("Another sampling rate makes sense for signals, not for tokens.")
        if self.output.per_position:
            raise ValueError("Another sampling rate makes sense for one answer per signal, not per position.")
        step = round(rate)
        if step != rate or step < 1:
            raise ValueError(f"rate is {rate}; leaving out samples needs a whole number, such as 2.")
        lengths = None if batch.lengths is None else (batch.lengths + step - 1) // step
        return batch._replace(x=batch.x[:, ::step], lengths=lengths)


def _widened(prediction: Tensor) -> Tensor:
    """Sums over many answers need more digits than half precision has."""
    return prediction.float() if prediction.dtype in (torch.float16, torch.bfloat16) else prediction


def asked_positions(batch: Batch) -> Bool[Tensor, "B L"] | None:
    """Which positions are asked about; None when all of them are."""
    if batch.asked is not None:
        return batch.asked
    if batch.lengths is None:
        return None
    return torch.arange(batch.x.shape[1], device=batch.x.device) < batch.lengths[:, None]
