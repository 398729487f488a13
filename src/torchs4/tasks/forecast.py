"""Numbers of a horizon, each of which goes on with a column of the history: values, or quantiles of them.

Axes: B examples of a batch, H positions of a horizon, k columns, q levels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import torch

from torchs4.description import OutputDescription, Scaling
from torchs4.tasks.metrics import PINBALL, SCALED_MAE, Metric
from torchs4.tasks.regression import PositionRegression

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from torchs4.description import Batch

Number = TypeVar("Number", int, float)


@dataclass(frozen=True)
class Forecast(PositionRegression):
    """Values of these columns at the last positions of each input.

    horizon: how many positions that are.
    continues: which column of the input each of these columns is; empty if some are not read.
    """

    horizon: int = 0
    continues: tuple[int, ...] = ()

    @property
    def output(self) -> OutputDescription:
        return replace(super().output, horizon=self.horizon, continues=self.continues)


@dataclass(frozen=True)
class QuantileForecast(Forecast):
    """Quantiles of these columns: the pinball loss, and the mean absolute error of the middle one.

    levels: shares of values that lie below, in rising order, with 0.5 among them. A model gives all levels of
        the first column, then those of the next.
    """

    levels: tuple[float, ...] = (0.1, 0.5, 0.9)

    def __post_init__(self) -> None:
        if 0.5 not in self.levels or list(self.levels) != sorted(set(self.levels)):
            raise ValueError(f"levels is {self.levels}; they must rise and hold 0.5.")
        if not 0 < self.levels[0] <= self.levels[-1] < 1:
            raise ValueError(f"levels is {self.levels}; they must lie between 0 and 1.")

    @property
    def metrics(self) -> tuple[Metric, ...]:  # type: ignore[override]
        return PINBALL, SCALED_MAE

    @property
    def output(self) -> OutputDescription:
        names = [f"{column} {level:g}" for column in self.columns for level in self.levels]
        scaling = self.scaling
        return OutputDescription(
            len(names),
            per_position=True,
            names=tuple(names),
            scaling=None
            if scaling is None
            else Scaling(self._each(scaling.shift), self._each(scaling.scale)),
            horizon=self.horizon,
            continues=self._each(self.continues),
        )

    def sums(self, prediction: Tensor, batch: Batch) -> Tensor:
        quantiles = prediction.float()[:, -self.horizon :].unflatten(-1, (len(self.columns), -1))
        # (B, H, k, q), positive where the value lies above the quantile.
        above = batch.y[:, -self.horizon :, :, None] - quantiles
        if self.scaling is not None:
            above = above / above.new_tensor(self.scaling.scale)[:, None]
        levels = above.new_tensor(self.levels)
        loss = torch.maximum(levels * above, (levels - 1) * above)
        middle = above.detach()[..., self.levels.index(0.5)]
        return torch.stack([loss.mean(-1).sum(), middle.abs().sum()])

    def scores(self, means: Sequence[float]) -> dict[str, float]:
        return {"pinball": means[0], "mae": means[1]}

    def _each(self, values: tuple[Number, ...]) -> tuple[Number, ...]:
        """What belongs to a column, once for each of its levels."""
        return tuple(value for value in values for _ in self.levels)
