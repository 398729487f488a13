"""How forecasts compare with what came.

Axes: n windows, H rows of a horizon, k targets, q levels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float
    from numpy import ndarray
    from numpy.typing import NDArray

    from torchs4.estimators.series_input import OneSeries


class Backtest(NamedTuple):
    """What a backtest found.

    scores: a row for each target, in its own units: `mae` and `mse` of the forecast, those of the last value
        beside them, and for each interval the share of values that lay inside, `coverage 0.8`.
    forecasts: every forecast with what came: series, origin (the last time that it saw), time, target, value,
        forecast, and the bounds of the intervals.
    windows: how many forecasts were made.
    """

    scores: pandas.DataFrame
    forecasts: pandas.DataFrame
    windows: int


def compare(
    scored: Sequence[tuple[OneSeries, NDArray[np.int64], Float[ndarray, "n H k q"]]],
    targets: Sequence[str],
    levels: Sequence[float],
    horizon: int,
) -> Backtest:
    """Forecasts that begin at some rows of each series, beside the series' own values there."""
    middle = len(levels) // 2
    shares = {place: f"{1 - 2 * levels[place]:g}" for place in range(middle)}
    frames, scores = [], {}
    for place, target in enumerate(targets):
        errors, naive = [], []
        inside: dict[str, list[Any]] = {share: [] for share in shares.values()}
        for one, starts, quantiles in scored:
            rows = starts[:, None] + np.arange(horizon)
            truth, told = one.values[rows, place], quantiles[:, :, place]
            errors.append(told[..., middle] - truth)
            naive.append(one.values[starts - 1, place][:, None] - truth)
            bounds: dict[str, Any] = {}
            for level, share in shares.items():
                lower, upper = told[..., level], told[..., -1 - level]
                inside[share].append(((truth >= lower) & (truth <= upper)).ravel())
                bounds |= {f"lower {share}": lower.ravel(), f"upper {share}": upper.ravel()}
            times = np.arange(len(one.values)) if one.times is None else one.times
            frames.append(
                pandas.DataFrame(
                    {
                        "series": one.name,
                        "origin": np.repeat(times[starts - 1], horizon),
                        "time": times[rows].ravel(),
                        "target": target,
                        "value": truth.ravel(),
                        "forecast": told[..., middle].ravel(),
                        **bounds,
                    }
                )
            )
        wrong, last = np.concatenate(errors), np.concatenate(naive)
        scores[target] = {
            "mae": np.abs(wrong).mean(),
            "mse": np.square(wrong).mean(),
            "last value mae": np.abs(last).mean(),
            "last value mse": np.square(last).mean(),
            **{f"coverage {share}": np.concatenate(inside[share]).mean() for share in shares.values()},
        }
    count = sum(len(starts) for _, starts, _ in scored)
    return Backtest(
        pandas.DataFrame.from_dict(scores, orient="index").rename_axis("target"),
        pandas.concat(frames, ignore_index=True),
        count,
    )
