"""What a forecaster's networks learn from, and how: windows of all series, usual networks and trainings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from torchs4.configuration import require_whole, with_options
from torchs4.data.series import Part, Windows, forecasting_data
from torchs4.data.series_table import Series
from torchs4.data.time_steps import seasons, step_of
from torchs4.models import ForecastModelConfig
from torchs4.tasks import Forecast, QuantileForecast
from torchs4.training.config import BudgetOptions, OptimizerOptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchs4.data import SequenceData
    from torchs4.data.series import Columns
    from torchs4.estimators.series_input import OneSeries

# Windows that training measures with, that intervals are widened by, and that a backtest looks at.
MOST_WINDOWS = 400
# Patches of a window: fewer rows in each where windows are short.
_PATCHES, _LONGEST_PATCH = 40, 12
# Rows of history, if nobody says: so many horizons, but not fewer or more rows than that; a week, if that is
# not more than so many rows.
_HORIZONS, _LEAST_HISTORY, _MOST_HISTORY, _LONGEST_WEEK = 3, 96, 720, 336


class TooFewRows(ValueError):
    """A series is too short for windows of this kind; `needed` rows would do."""

    def __init__(self, windows: str, needed: int, text: str) -> None:
        super().__init__(text)
        self.windows, self.needed = windows, needed

    def in_backtest(self, rows: int, horizon: int, test_fraction: float) -> TooFewRows:
        """The same, told about all the rows of a backtest."""
        needed = int(max(self.needed / (1 - test_fraction), horizon / test_fraction)) + 1
        return TooFewRows(
            self.windows,
            self.needed,
            f"There are {rows:,} rows, too few for {self.windows}: a backtest learns from the first "
            f"{1 - test_fraction:.0%} of the rows, and measures with the others, which takes about "
            f"{needed:,} rows in all. Choose a smaller horizon, or give more rows.",
        )


def levels_of(intervals: Sequence[float]) -> tuple[float, ...]:
    """The quantiles that bound the intervals, around the middle."""
    for share in intervals:
        if not 0 < share < 1:
            raise ValueError(f"intervals holds {share}; shares lie between 0 and 1, like 0.8.")
    below = sorted({round((1 - share) / 2, 6) for share in intervals})
    return (*below, 0.5, *(round(1 - level, 6) for level in reversed(below)))


def held_rows(rows: int, validation_fraction: float) -> int:
    """How many rows at the end validate."""
    return max(1, round(rows * validation_fraction))


def usual_windows(
    found: Sequence[OneSeries], horizon: int, history: int | None, validation_fraction: float
) -> Windows:
    """How long a history may be; a series that is too short for any is refused."""
    rows = min(len(one.values) for one in found)
    held = held_rows(rows, validation_fraction)
    left = rows - held - horizon
    chosen = history
    if chosen is None:
        week = 0
        if (times := found[0].times) is not None and len(times) > 1:
            week = seasons(step_of(times)).get("week", 0)
        least = max(_LEAST_HISTORY, week if week <= _LONGEST_WEEK else 0)
        chosen = min(max(_HORIZONS * horizon, least), _MOST_HISTORY, 2 * left // 3)
    else:
        require_whole("history", chosen, 1)
    if held < horizon or chosen < 1 or left < chosen:
        needed = 1 + int(max(horizon / validation_fraction, (horizon + (history or 2) + 2) * 1.2))
        told = f"a horizon of {horizon}{'' if history is None else f' and a history of {history}'}"
        raise TooFewRows(
            told,
            needed,
            f"The series has {rows:,} rows, too few for {told}: {held} of them validate, and the others have "
            f"to hold whole windows. Expected about {needed:,} rows at least: choose a smaller horizon, or "
            f"give more rows.",
        )
    return Windows(chosen, horizon)


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
