"""Forecasting (Tables 9, 13 and 14): five series, five horizons each, one column or all of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from torchs4.configuration import with_options
from torchs4.data import ETT, Electricity, Weather
from torchs4.models import ForecastModelConfig
from torchs4.recipes.recipe import Recipe, network
from torchs4.tasks import SCALED_MSE
from torchs4.training.config import BudgetOptions, OptimizerOptions, TrainingConfig

if TYPE_CHECKING:
    from collections.abc import Callable


class BenchmarkSeries(NamedTuple):
    """A series of the benchmark.

    dataset: its name in `s4 data list`. data: makes its options. horizons: in rows, the longest last.
    calendar: whether the preset `cpu` reads one. Chosen on validation rows, like its history.
    published: mean squared error of the paper's S4 at the longest horizon, one column (Table 9).
    """

    name: str
    title: str
    dataset: str
    data: Callable[..., Any]
    horizons: tuple[int, ...]
    published: float
    history: int = 336
    calendar: bool = False


_BY_HOUR, _BY_QUARTER, _CLIENTS = (24, 48, 168, 336, 720), (24, 48, 96, 288, 672), (48, 168, 336, 720, 960)
SERIES = (
    BenchmarkSeries("etth1", "ETTh1", "ett", partial(ETT, "ETTh1"), _BY_HOUR, 0.116),
    BenchmarkSeries("etth2", "ETTh2", "ett", partial(ETT, "ETTh2"), _BY_HOUR, 0.187),
    BenchmarkSeries("ettm1", "ETTm1", "ett", partial(ETT, "ETTm1"), _BY_QUARTER, 0.292, history=720),
    BenchmarkSeries("weather", "Weather", "weather", Weather, _BY_HOUR, 0.245, calendar=True),
    BenchmarkSeries("ecl", "ECL", "electricity", Electricity, _CLIENTS, 0.432, calendar=True),
)
DIFFERS = (
    "A window is read relative to its last value, in patches of 12 rows, and a linear map from history to "
    "horizon, which begins at its closed form, helps S4; the paper's history is followed by zeros, row by "
    "row (preset `paper`). Everything was chosen on training and validation rows. Errors are in units of the "
    "training part's deviation."
)


def forecast_cpu(series: BenchmarkSeries, horizon: int, univariate: bool) -> TrainingConfig[Any]:
    return TrainingConfig(
        data=series.data(
            window=series.history, horizon=horizon, univariate=univariate, calendar=series.calendar
        ),
        model=with_options(
            ForecastModelConfig(patch=12, apart=not univariate, flip=not series.calendar),
            layers=2,
            features=32,
            state_size=32,
            dropout=0.3,
            tied_dropout=True,
        ),
        optim=OptimizerOptions(lr=5e-4, ssm_lr=5e-4, batch_size=64, warmup_steps=50, average=0.98),
        budget=BudgetOptions(epochs=100, max_steps=300, evaluate_every=30, validation_examples=600),
    )


def forecast_paper(series: BenchmarkSeries, horizon: int, univariate: bool) -> TrainingConfig[Any]:
    return TrainingConfig(
        data=series.data(window=720, horizon=horizon, univariate=univariate, calendar=True),
        model=network(
            layers=2, features=128, state_size=64, norm="layer", pre_norm=False, dropout=0.25, mixing="linear"
        ),
        optim=OptimizerOptions(
            lr=0.01, ssm_lr=0.001, weight_decay=0.0, batch_size=50, schedule="plateau", decay=0.2, patience=2
        ),
        budget=BudgetOptions(epochs=10),
    )


def _recipe(series: BenchmarkSeries, horizon: int, univariate: bool) -> Recipe:
    longest = univariate and horizon == series.horizons[-1]
    what = "one column" if univariate else "all columns"
    return Recipe(
        name=f"forecast-{series.name}-{horizon}{'' if univariate else '-multivariate'}",
        title=f"{series.title}: the next {horizon} rows of {what}",
        length=series.history + horizon,
        dataset=series.dataset,
        metric=SCALED_MSE,
        published={"paper": series.published} if longest else {},
        differs=DIFFERS,
        presets={
            "paper": partial(forecast_paper, series, horizon, univariate),
            "cpu": partial(forecast_cpu, series, horizon, univariate),
        },
        family=f"forecast-{series.name}",
    )


RECIPES = tuple(
    _recipe(series, horizon, univariate)
    for series in SERIES
    for univariate in (True, False)
    for horizon in series.horizons
)
