"""How forecasts compare with what came.

Axes: n windows, H rows of a horizon, k targets, q levels.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas

from torchs4.data.time_steps import seasons, step_of
from torchs4.estimators.calibration import spread
from torchs4.estimators.forecast_training import MOST_WINDOWS, held_rows
from torchs4.estimators.series_input import scale_of
from torchs4.estimators.series_times import index_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float
    from numpy import ndarray
    from numpy.typing import NDArray

    from torchs4.estimators.series_input import OneSeries


class Backtest(NamedTuple):
    """What a backtest found.

    scores: a row for each target, in its own units: `mae` and `mse` of the forecast, beside them those of the
        last value and, where rows have dates, of the same time a day, week or year ago, whichever was better
        on validation rows (`last week mae`); for each interval the share of values that lay inside,
        `coverage 0.8`.
    forecasts: every forecast with what came: series, origin (the last time that it saw), time, target, value,
        forecast, and the bounds of the intervals.
    windows: how many forecasts were made.
    """

    scores: pandas.DataFrame
    forecasts: pandas.DataFrame
    windows: int


class Season(NamedTuple):
    """What comes round, and after how many rows."""

    name: str
    rows: int

    def ago(self, starts: NDArray[np.int64], horizon: int) -> NDArray[np.int64]:
        """For horizons that begin at these rows, the rows of the last season that stand for theirs."""
        return np.asarray(starts[:, None] - self.rows + np.arange(horizon) % self.rows)


def best_season(
    earlier: Sequence[OneSeries], targets: int, horizon: int, validation_fraction: float
) -> Season | None:
    """The day, week or year whose repetition is the best forecast of validation rows, if rows have dates."""
    if any(one.times is None or len(one.times) < 2 for one in earlier):
        return None
    errors = {}
    for name, rows in seasons(step_of(np.asarray(earlier[0].times))).items():
        season, wrong = Season(name, rows), []
        for one in earlier:
            count, values = len(one.values), one.values[:, :targets]
            first = max(count - held_rows(count, validation_fraction), rows)
            starts = spread(first, count - horizon, MOST_WINDOWS)
            truth = values[starts[:, None] + np.arange(horizon)]
            wrong.append(np.abs(values[season.ago(starts, horizon)] - truth) / scale_of(values)[1])
        if all(each.size for each in wrong):
            errors[season] = np.concatenate(wrong).mean()
    return min(errors, key=lambda season: errors[season]) if errors else None


def warn_of_better(found: Backtest, season: Season | None, history: int) -> None:
    """Say where the last season was a better forecast, and whether it was out of sight."""
    if season is None:
        return
    for target, row in found.scores.iterrows():
        own, other = row["mae"], row[f"last {season.name} mae"]
        if own <= other:
            continue
        hint = "More rows or steps may help."
        if history < season.rows:
            hint = (
                f"It sees {history} rows, and a {season.name} has {season.rows}: try history={season.rows}."
            )
        warnings.warn(
            f"{target}: repeating the last {season.name} is better than the forecast (mean absolute error "
            f"{other:.4g}, not {own:.4g}). {hint}",
            stacklevel=3,
        )


def compare(
    scored: Sequence[tuple[OneSeries, NDArray[np.int64], Float[ndarray, "n H k q"]]],
    targets: Sequence[str],
    levels: Sequence[float],
    horizon: int,
    season: Season | None = None,
) -> Backtest:
    """Forecasts that begin at some rows of each series, beside the series' own values there."""
    middle = len(levels) // 2
    shares = {place: f"{1 - 2 * levels[place]:g}" for place in range(middle)}
    frames, scores = [], {}
    for place, target in enumerate(targets):
        errors = []
        naive: dict[str, list[Any]] = {"value": []} | ({season.name: []} if season else {})
        inside: dict[str, list[Any]] = {share: [] for share in shares.values()}
        for one, starts, quantiles in scored:
            rows = starts[:, None] + np.arange(horizon)
            truth, told = one.values[rows, place], quantiles[:, :, place]
            errors.append(told[..., middle] - truth)
            naive["value"].append(one.values[starts - 1, place][:, None] - truth)
            if season:
                naive[season.name].append(one.values[season.ago(starts, horizon), place] - truth)
            bounds: dict[str, Any] = {}
            for level, share in shares.items():
                lower, upper = told[..., level], told[..., -1 - level]
                inside[share].append(((truth >= lower) & (truth <= upper)).ravel())
                bounds |= {f"lower {share}": lower.ravel(), f"upper {share}": upper.ravel()}
            times = index_of(np.arange(len(one.values)) if one.times is None else one.times, one.zone)
            frames.append(
                pandas.DataFrame(
                    {
                        "series": one.name,
                        "origin": times[np.repeat(starts - 1, horizon)],
                        "time": times[rows.ravel()],
                        "target": target,
                        "value": truth.ravel(),
                        "forecast": told[..., middle].ravel(),
                        **bounds,
                    }
                )
            )
        wrong = np.concatenate(errors)
        plain = {name: np.concatenate(each) for name, each in naive.items()}
        scores[target] = {
            "mae": np.abs(wrong).mean(),
            "mse": np.square(wrong).mean(),
            **{f"last {name} mae": np.abs(each).mean() for name, each in plain.items()},
            **{f"last {name} mse": np.square(each).mean() for name, each in plain.items()},
            **{f"coverage {share}": np.concatenate(inside[share]).mean() for share in shares.values()},
        }
    count = sum(len(starts) for _, starts, _ in scored)
    return Backtest(
        pandas.DataFrame.from_dict(scores, orient="index").rename_axis("target"),
        pandas.concat(frames, ignore_index=True),
        count,
    )
