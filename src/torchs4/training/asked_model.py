"""A model and what it is asked: the call that processes and devices share is one that gives sums.

So a task can ask a model for less than a whole prediction, and what distributes a model sees every weight
that is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import nn

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from torchs4.description import Batch
    from torchs4.models import Model
    from torchs4.tasks import Task


class AskedModel(nn.Module):
    """The task's sums over batches of examples, each by itself."""

    def __init__(self, model: Model, task: Task) -> None:
        super().__init__()
        self.model = model
        self.task = task

    def forward(self, batch: Batch) -> Float[Tensor, " n"]:
        """What the task adds up."""
        return self.task.sums_of(self.model, batch)


class CarryingModel(AskedModel):
    """The same for batches each of which goes on where the one before it ended."""

    def forward(self, batch: Batch, state: Any = None) -> tuple[Float[Tensor, " n"], Any]:  # type: ignore[override]
        """What the task adds up, and the state after the batch."""
        return self.task.carried_sums(self.model, batch, state)
