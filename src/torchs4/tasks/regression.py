"""Numbers to predict: some for each input, or some for each of its positions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from torchs4.description import OutputDescription, Scaling
from torchs4.tasks.metrics import MAE, MSE, SCALED_MAE, SCALED_MSE, Metric
from torchs4.tasks.task import Task, asked_positions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from torchs4.description import Batch


@dataclass(frozen=True)
class Regression(Task):
    """Values of these columns for each input: mean squared error, and mean absolute error.

    scaling: of the values. Errors are measured in units of its scale, so that columns count alike and the
        numbers compare with those of other data; predictions come in the data's own units.
    """

    columns: tuple[str, ...]
    scaling: Scaling | None = None

    sum_count = 2

    @property
    def metrics(self) -> tuple[Metric, ...]:  # type: ignore[override]
        return (MSE, MAE) if self.scaling is None else (SCALED_MSE, SCALED_MAE)

    @property
    def output(self) -> OutputDescription:
        return OutputDescription(len(self.columns), names=self.columns, scaling=self.scaling)

    def count(self, batch: Batch) -> int:
        return batch.y.numel()

    def sums(self, prediction: Tensor, batch: Batch) -> Tensor:
        return _squares_and_magnitudes(self._errors(prediction, batch))

    def scores(self, means: Sequence[float]) -> dict[str, float]:
        return {"mse": means[0], "mae": means[1]}

    def _errors(self, prediction: Tensor, batch: Batch) -> Tensor:
        errors = prediction.float() - batch.y
        return errors if self.scaling is None else errors / errors.new_tensor(self.scaling.scale)


@dataclass(frozen=True)
class PositionRegression(Regression):
    """Values of these columns for every position that is asked about, such as those of a horizon.

    causal: a model may not look ahead; needed where an input holds what another position is asked for.
    """

    causal: bool = False

    @property
    def output(self) -> OutputDescription:
        return replace(super().output, per_position=True, causal=self.causal)

    def count(self, batch: Batch) -> int:
        asked = asked_positions(batch)
        return batch.y.numel() if asked is None else int(asked.sum()) * len(self.columns)

    def sums(self, prediction: Tensor, batch: Batch) -> Tensor:
        errors, asked = self._errors(prediction, batch), asked_positions(batch)
        # Picking positions out would make a device wait for their number.
        return _squares_and_magnitudes(errors if asked is None else errors.where(asked[..., None], 0))


def _squares_and_magnitudes(errors: Tensor) -> Tensor:
    return torch.stack([errors.square().sum(), errors.detach().abs().sum()])
