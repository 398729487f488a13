"""What a forecaster's networks learn from, and how: windows of all series, usual networks and trainings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from torchs4.configuration import with_options
from torchs4.data.series import Part, forecasting_data
from torchs4.data.series_table import Series
from torchs4.models import ForecastModelConfig
from torchs4.tasks import Forecast, QuantileForecast
from torchs4.training.config import BudgetOptions, OptimizerOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchs4.data import SequenceData
    from torchs4.data.series import Columns, Windows
    from torchs4.estimators.series_input import OneSeries

# Windows that training measures with, that intervals are widened by, and that a backtest looks at.
MOST_WINDOWS = 400
# Patches of a window: fewer rows in each where windows are short.
_PATCHES, _LONGEST_PATCH = 40, 12


def windows_of(
    found: Sequence[OneSeries],
    held: Sequence[int],
    windows: Windows,
    columns: Columns,
    levels: tuple[float, ...],
) -> SequenceData:
    """Windows of all series, which lie one after the other, each in units of its own deviation.

    held: rows at the end of each that validate.
    """
    parts: list[list[Part]] = [[], []]
    first = 0
    for one, some in zip(found, held, strict=True):
        end = first + len(one.values)
        parts[0].append(Part(first, end - some, first))
        parts[1].append(Part(end - some, end, first))
        first = end
    times = [one.times for one in found if one.times is not None] if columns.calendar else []
    series = Series(
        np.concatenate([one.values for one in found]),
        columns.inputs + columns.known,
        np.concatenate(times) if times else None,
    )
    data = forecasting_data(series, parts, windows, columns, normalize=False)
    assert isinstance(data.task, Forecast)
    task = QuantileForecast(
        data.task.columns, horizon=windows.horizon, continues=data.task.continues, levels=levels
    )
    return replace(data, task=task)


def usual_network(data: SequenceData, columns: Columns) -> ForecastModelConfig:
    """A network for such windows."""
    config = ForecastModelConfig(
        patch=max(1, min(_LONGEST_PATCH, data.input.length // _PATCHES)),
        apart=len(columns.targets) > 1,
        flip=not columns.known and not any("sine" in name for name in data.input.names),
    )
    return with_options(config, layers=2, features=32, state_size=32, dropout=0.2, tied_dropout=True)


def usual_optimizer(learning_rate: float, batch_size: int) -> OptimizerOptions:
    """One rate for everything, and an average of the weights."""
    return OptimizerOptions(
        lr=learning_rate,
        ssm_lr=learning_rate,
        batch_size=batch_size,
        warmup_steps=50,
        average=0.98,
        clip=1.0,
    )


def usual_budget(steps: int, max_minutes: float) -> BudgetOptions:
    """So many steps, with eight looks at validation windows."""
    return BudgetOptions(
        epochs=steps,
        max_steps=steps,
        evaluate_every=max(1, steps // 8),
        validation_examples=MOST_WINDOWS,
        max_minutes=max_minutes,
    )
