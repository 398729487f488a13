"""The token that comes next, at every position: language models and densities."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch.nn import functional as F

from torchs4.description import OutputDescription
from torchs4.tasks.metrics import PERPLEXITY, Metric
from torchs4.tasks.task import Task, asked_positions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from torchs4.description import Batch

_NOT_ASKED = -100
# Beyond it, exp has no number in double precision.
_LARGEST_EXPONENT = 700.0


@dataclass(frozen=True)
class NextToken(Task):
    """A distribution over the tokens for every position: cross entropy, perplexity, and bits per token.

    names: of the tokens, where they have some.
    unit: what a token is, such as "character" or "dimension"; bits are counted per unit.
    """

    vocabulary_size: int
    names: tuple[str, ...] = ()
    unit: str = "token"

    sum_count = 1

    @property
    def metrics(self) -> tuple[Metric, ...]:  # type: ignore[override]
        bits = Metric("bits", f"bits per {self.unit}")
        # As is usual: words are compared by perplexity, characters and pixels by bits.
        return (PERPLEXITY, bits) if self.unit == "word" else (bits, PERPLEXITY)

    @property
    def output(self) -> OutputDescription:
        return OutputDescription(self.vocabulary_size, per_position=True, causal=True, names=self.names)

    def count(self, batch: Batch) -> int:
        asked = asked_positions(batch)
        return batch.y.numel() if asked is None else int(asked.sum())

    def sums(self, prediction: Tensor, batch: Batch) -> Tensor:
        asked, target = asked_positions(batch), batch.y
        if asked is not None:
            # Picking positions out would make a device wait for their number.
            target = target.masked_fill(~asked, _NOT_ASKED)
        # Without a copy of what may be the largest tensor of all.
        flat = prediction.reshape(-1, prediction.shape[-1]).float()
        return F.cross_entropy(flat, target.reshape(-1), reduction="sum", ignore_index=_NOT_ASKED)[None]

    def sums_of(self, model: Any, batch: Batch, rate: float = 1.0) -> Tensor:
        if not hasattr(model, "token_losses"):
            return super().sums_of(model, batch, rate)
        # A model of many tokens need not hold a prediction for each of them.
        return _asked_sum(model.token_losses(batch.x, batch.y, batch.lengths, rate), batch)

    def carried_sums(self, model: Any, batch: Batch, state: Any) -> tuple[Tensor, Any]:
        if not hasattr(model, "prefill_losses"):
            return super().carried_sums(model, batch, state)
        losses, state = model.prefill_losses(batch.x, batch.y, state)
        return _asked_sum(losses, batch), state

    def scores(self, means: Sequence[float]) -> dict[str, float]:
        return {"bits": means[0] / math.log(2), "perplexity": math.exp(min(means[0], _LARGEST_EXPONENT))}


def _asked_sum(losses: Tensor, batch: Batch) -> Tensor:
    asked = asked_positions(batch)
    return (losses if asked is None else losses.where(asked, 0)).sum()[None]
