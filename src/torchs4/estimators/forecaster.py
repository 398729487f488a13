"""S4Forecaster: goes on with a series, and says how sure it is.

Axes: n windows, T rows of history, H of a horizon, k targets, q levels, i intervals.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas
import torch
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from torchs4.configuration import require_config, require_whole
from torchs4.data.series import Columns, Windows, WindowSplit
from torchs4.data.time_stamps import calendar_features
from torchs4.data.time_steps import Step, shown, step_of
from torchs4.estimators.backtest import Backtest, best_season, compare, warn_of_better
from torchs4.estimators.calibration import spread, widening_for
from torchs4.estimators.forecast_training import (
    MOST_WINDOWS,
    TooFewRows,
    held_rows,
    levels_of,
    usual_budget,
    usual_network,
    usual_optimizer,
    usual_windows,
    windows_of,
)
from torchs4.estimators.member import train_member
from torchs4.estimators.series_ahead import require_rows, rows_ahead
from torchs4.estimators.series_input import (
    OneSeries,
    as_frame,
    of_series,
    read_all,
    require_changing,
    scale_of,
)
from torchs4.estimators.series_times import index_of
from torchs4.models import ForecastModel, ForecastModelConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float
    from matplotlib.figure import Figure
    from numpy import ndarray
    from numpy.typing import NDArray

    from torchs4.data import SequenceData

_BATCH = 64
# Rows of a history to draw, in horizons; and rows that tell how far apart rows are, weekends and all.
_DRAWN, _TELLING = 4, 15
# Pictures below one another in one figure.
_MOST_PANELS = 4


class S4Forecaster(BaseEstimator):
    """Forecasts of one or several columns of one or many series, with intervals.

    >>> forecaster = S4Forecaster().fit(frame, target="load", horizon=24)
    >>> forecaster.predict()

    history: rows that a forecast sees; by default three horizons, between 96 and 720 rows and at least a
        week (if that is no more than 336 rows), if there are enough.
    intervals: shares of values that are to lie inside, such as 0.8.
    calendar: read hour of day, day of week and so on; "auto" tries both on validation rows.
    model: options of the network, instead of usual ones.
    ensemble: so many networks, averaged: better, and as many times slower.
    steps: of training. learning_rate, batch_size: of its optimiser.
    validation_fraction: of the rows, the last ones: they decide when training was at its best, and how wide
        intervals have to be.
    max_minutes: of training in all.
    random_state: same seed, same forecasts.
    output: folder to keep the training in; a fit that was killed goes on there.
    verbose: 0 shows nothing, 1 one line, 2 everything.
    """

    members_: list[ForecastModel]

    def __init__(
        self,
        *,
        history: int | None = None,
        intervals: Sequence[float] = (0.8, 0.95),
        calendar: bool | str = "auto",
        model: ForecastModelConfig | None = None,
        ensemble: int = 1,
        steps: int = 300,
        learning_rate: float = 5e-4,
        batch_size: int = _BATCH,
        validation_fraction: float = 0.15,
        max_minutes: float | None = None,
        random_state: Any = None,
        output: str | Path | None = None,
        verbose: int = 1,
    ) -> None:
        self.history = history
        self.intervals = intervals
        self.calendar = calendar
        self.model = model
        self.ensemble = ensemble
        self.steps = steps
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.max_minutes = max_minutes
        self.random_state = random_state
        self.output = output
        self.verbose = verbose

    def fit(
        self,
        data: Any,
        y: None = None,
        *,
        target: str | int | Sequence[str | int] | None = None,
        horizon: int = 24,
        covariates: Sequence[str | int] = (),
        known: Sequence[str | int] = (),
        time: str | None = None,
        series: str | None = None,
    ) -> Self:
        """Learn from the past of one or many series.

        data: a pandas frame with dates as its index or in the column `time`, or an array (rows,) or (rows,
            columns); several of them in a list or a dictionary, or told apart by the column `series`.
        target: column or columns to forecast; by default all that are neither covariates nor known.
        horizon: rows ahead.
        covariates: columns that help and are known up to now. known: also for the rows ahead (holidays,
            plans).
        """
        require_whole("horizon", horizon, 1)
        levels = levels_of(self.intervals)
        targets = () if target is None else (target,) if isinstance(target, str | int) else tuple(target)
        others = (*map(str, covariates), *map(str, known))
        columns, found = read_all(data, (*targets, *others) if targets else (), time, series)
        names = tuple(map(str, targets)) or tuple(name for name in columns if name not in others)
        for name in others:
            if name not in columns:
                raise ValueError(f"data has no column {name!r}; it has {', '.join(map(repr, columns))}.")
        order = [columns.index(name) for name in (*names, *others)]
        found = [one._replace(values=one.values[:, order]) for one in found]
        require_changing(found, names)
        windows = usual_windows(found, horizon, self.history, self.validation_fraction)
        self.targets_, self.horizon_, self.history_ = names, horizon, windows.history
        self.covariates_, self.known_ = tuple(map(str, covariates)), tuple(map(str, known))
        self.time_, self.series_, self.levels_, self.zone_ = time, series, levels, found[0].zone
        self.scales_ = {one.name: scale_of(one.values[: len(one.values) - self._held(one)]) for one in found}
        with ExitStack() as stack:
            place = Path(self.output or stack.enter_context(TemporaryDirectory(prefix="torchs4-")))
            self.calendar_, self.members_ = self._train(found, windows, place)
        self._calibrate(found)
        self.recent_ = {one.name: self._recent(one) for one in found}
        return self

    def predict(self, horizon: int | None = None, data: Any = None, future: Any = None) -> pandas.DataFrame:
        """The next rows: a column for each target, and the bounds of each interval.

        horizon: at most that of `fit`, which is the default.
        data: newer rows to go on from, laid out as in `fit`; without it, from the end of what was fit.
        future: the columns `known` for the rows ahead, found by their times, or in their order if there are
            none; of several series, a dictionary of them, or a frame with the column that tells them apart.
        """
        check_is_fitted(self, "members_")
        horizon = self.horizon_ if horizon is None else horizon
        require_whole("horizon", horizon, 1)
        if horizon > self.horizon_:
            raise ValueError(
                f"horizon is {horizon}, but this forecaster was fit for {self.horizon_} rows ahead. Fit one "
                f"with horizon={horizon}."
            )
        recent = [self._end_of(name) for name in self.recent_] if data is None else self._read(data)
        frames = {}
        for one in recent:
            if len(one.values) < self.history_:
                raise ValueError(
                    f"There are {len(one.values)} rows to go on from{of_series(one)}; expected at least "
                    f"{self.history_}, the history that a forecast sees."
                )
            quantiles = self._quantiles(self._extended(one, future), np.array([len(one.values)]))[0]
            frames[one.name] = self._frame(
                quantiles[:horizon], index_of(self._ahead(one), one.zone)[:horizon]
            )
        if len(frames) == 1 and not self.series_:
            return next(iter(frames.values()))
        return pandas.concat(frames, names=[self.series_ or "series"])

    def backtest(
        self,
        data: Any,
        *,
        target: str | int | Sequence[str | int] | None = None,
        horizon: int = 24,
        covariates: Sequence[str | int] = (),
        known: Sequence[str | int] = (),
        time: str | None = None,
        series: str | None = None,
        test_fraction: float = 0.2,
    ) -> Backtest:
        """How good forecasts would have been: fit a copy on the first rows, forecast the last, and compare.

        Forecasts begin at up to 400 rows of the last part, and are told beside those of the last value and of
        the last day, week or year. This forecaster stays as it is.
        """
        if not 0 < test_fraction < 1:
            raise ValueError(f"test_fraction is {test_fraction}; it must lie between 0 and 1, like 0.2.")
        require_whole("horizon", horizon, 1)
        columns, found = read_all(data, (), time, series)
        firsts = [len(one.values) - round(len(one.values) * test_fraction) for one in found]
        for one, first in zip(found, firsts, strict=True):
            if len(one.values) - first < horizon:
                # Half of them to learn from is the least that makes sense.
                could = len(one.values) >= 2 * horizon
                advice = "Choose a larger test_fraction" if could else "Give more rows, or a smaller horizon"
                raise ValueError(
                    f"The last {test_fraction:.0%} of the {len(one.values)} rows{of_series(one)} are "
                    f"{len(one.values) - first}, fewer than a horizon of {horizon}. {advice}."
                )
        frames = {one.name: as_frame(one, columns, first) for one, first in zip(found, firsts, strict=True)}
        copy = clone(self).set_params(output=None)
        try:
            copy.fit(
                frames if len(frames) > 1 else next(iter(frames.values())),
                target=target,
                horizon=horizon,
                covariates=covariates,
                known=known,
            )
        except TooFewRows as error:
            raise error.in_backtest(min(len(one.values) for one in found), horizon, test_fraction) from error
        if len(frames) == 1:
            found = [found[0]._replace(name="")]
        order = [columns.index(name) for name in (*copy.targets_, *copy.covariates_, *copy.known_)]
        found = [one._replace(values=one.values[:, order]) for one in found]
        scored, earlier = [], []
        for one, first in zip(found, firsts, strict=True):
            starts = spread(first, len(one.values) - horizon, MOST_WINDOWS // len(found))
            scored.append((one, starts, copy._quantiles(one, starts)))
            times = None if one.times is None else one.times[:first]
            earlier.append(one._replace(values=one.values[:first], times=times))
        season = best_season(earlier, len(copy.targets_), horizon, self.validation_fraction)
        result = compare(scored, copy.targets_, copy.levels_, horizon, season)
        warn_of_better(result, season, copy.history_)
        return result

    def plot(
        self,
        truth: Any = None,
        *,
        rows: int | None = None,
        target: str | None = None,
        name: str | None = None,
        future: Any = None,
    ) -> Figure:
        """A picture of the end of a series, its forecast and the intervals; the caller saves it.

        truth: what came, if it is known by now, to be drawn beside the forecast: rows of the times ahead, or
            without times. rows: of history to draw.
        target, name: which target of which series, if there are several; without them, the first four.
        future: the columns `known` for the rows ahead, as in `predict`.
        """
        from torchs4.plots import ForecastPanel, plot_forecasts

        check_is_fitted(self, "members_")
        if target not in (None, *self.targets_) or name not in (None, *self.recent_):
            raise ValueError(
                f"There is no target {target!r} of a series {name!r}; there are the targets "
                f"{', '.join(self.targets_)} and the series {', '.join(map(repr, self.recent_))}."
            )
        names = list(self.recent_) if name is None else [name]
        targets = self.targets_ if target is None else (target,)
        chosen = [(one, wanted) for one in names for wanted in targets]
        panels: list[ForecastPanel] = []
        for series, wanted in chosen[:_MOST_PANELS]:
            one = self._end_of(series)
            ahead, place = self._ahead(one), self.targets_.index(wanted)
            quantiles = self._quantiles(self._extended(one, future), np.array([len(one.values)]))[0]
            came = None if truth is None else self._rows_ahead(truth, (wanted,), one, "truth")[:, 0]
            title = f"{wanted}{of_series(one)}: the next {self.horizon_} rows"
            if len(chosen) > _MOST_PANELS:
                title += f" ({len(panels) + 1} of {len(chosen)}; target and name choose others)"
            drawn = min(len(one.values), rows or _DRAWN * self.horizon_)
            past = np.arange(len(one.values)) if one.times is None else one.times
            panels.append(
                ForecastPanel(
                    title,
                    index_of(past, one.zone)[-drawn:],
                    one.values[-drawn:, place],
                    index_of(ahead, one.zone),
                    quantiles[:, place],
                    came,
                )
            )
        return plot_forecasts(panels, self.levels_)

    def save(self, path: str | Path) -> None:
        """Write a folder that `load` reads: what was fit, and the weights. Nothing is pickled."""
        from torchs4.estimators.forecaster_files import save_forecaster

        check_is_fitted(self, "members_")
        save_forecaster(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The forecaster that `save` wrote there."""
        from torchs4.estimators.forecaster_files import load_forecaster

        return load_forecaster(cls, Path(path))

    def _held(self, one: OneSeries) -> int:
        return held_rows(len(one.values), self.validation_fraction)

    def _read(self, data: Any) -> list[OneSeries]:
        """Newer rows, which must be as far apart as those that were learned from."""
        columns = (*self.targets_, *self.covariates_, *self.known_)
        usual = self._step(next(iter(self.recent_)))
        found = read_all(data, columns, self.time_, self.series_, step=usual)[1]
        for one in found:
            step = self._step(one.name)
            if step is None:
                continue
            if one.times is None:
                raise ValueError(
                    f"data has no times{of_series(one)}, but what was fit had: its rows were {step} apart. "
                    f"Give them as the index."
                )
            if not step.holds(one.times):
                raise ValueError(
                    f"Rows{of_series(one)} are {step_of(one.times)} apart; they were {step} apart when this "
                    f"forecaster was fit, and it knows no other step. Give such rows, or fit another."
                )
        return found

    def _step(self, name: str) -> Step | None:
        """How far apart rows were that were learned from; nothing where they had no times."""
        _, times = self.recent_.get(name) or next(iter(self.recent_.values()))
        # Numbers of rows are no times.
        if times.dtype.kind != "M" and self.time_ is None:
            return None
        return step_of(times)

    def _end_of(self, name: str) -> OneSeries:
        """The last rows of a series that was learned from."""
        return OneSeries(name, *self.recent_[name], self.zone_)

    def _train(
        self, found: list[OneSeries], windows: Windows, place: Path
    ) -> tuple[tuple[str, ...], list[ForecastModel]]:
        """Every member, after the choice whether a calendar helps."""
        require_whole("ensemble", self.ensemble, 1)
        if not isinstance(self.calendar, bool) and self.calendar != "auto":
            raise ValueError(f'calendar is {self.calendar!r}; expected True, False or "auto".')
        dated = all(one.times is not None and one.times.dtype.kind == "M" for one in found)
        if self.calendar is True and not dated:
            raise ValueError(
                "calendar needs dates: give them as the frame's index, or name their column by time."
            )
        choices = [self.calendar] if isinstance(self.calendar, bool) else [False, True] if dated else [False]
        seeds = check_random_state(0 if self.random_state is None else self.random_state).randint(
            2**31 - 1, size=self.ensemble
        )
        tried = {}
        for calendar in choices:
            scaled = [one._replace(values=self._scaled(one)) for one in found]
            held = [self._held(one) for one in found]
            data = windows_of(scaled, held, windows, self._columns(calendar), self.levels_)
            tried[calendar] = (
                data,
                *self._train_one(data, place / f"training-1{'-calendar' * calendar}", seeds[0]),
            )
        chosen = min(choices, key=lambda calendar: tried[calendar][2])
        data, first, _ = tried[chosen]
        members = [first]
        for number, seed in enumerate(seeds[1:], 2):
            members.append(self._train_one(data, place / f"training-{number}", seed)[0])
        names = data.input.names[len(self.targets_ + self.covariates_ + self.known_) :]
        return tuple(dict.fromkeys(name.partition(",")[0] for name in names)), members

    def _train_one(self, data: SequenceData, folder: Path, seed: int) -> tuple[ForecastModel, float]:
        if self.model is not None:
            require_config("model", self.model, ForecastModelConfig)
        run = train_member(
            self.model or usual_network(data, self._columns()),
            data,
            folder,
            optim=usual_optimizer(self.learning_rate, min(self.batch_size, len(data.train))),
            budget=usual_budget(self.steps, (self.max_minutes or 0.0) / self.ensemble),
            seed=int(seed),
            keep=self.output is not None,
            verbose=self.verbose,
        )
        assert isinstance(run.model, ForecastModel)
        return run.model, float(run.summary["best_validation_pinball"])

    def _columns(self, calendar: bool = False) -> Columns:
        return Columns(self.targets_ + self.covariates_, self.targets_, self.known_, calendar)

    def _scaled(self, one: OneSeries) -> Float[ndarray, "rows columns"]:
        shift, scale = self.scales_.get(one.name) or scale_of(one.values)
        return ((one.values - shift) / scale).astype(np.float32)

    def _quantiles(self, one: OneSeries, starts: NDArray[np.int64]) -> Float[ndarray, "n H k q"]:
        """Forecasts whose horizons begin at these rows, in the series' units, with intervals widened."""
        values = self._scaled(one)
        if self.calendar_:
            assert one.times is not None
            values = np.concatenate([values, calendar_features(one.times, self.calendar_)], axis=1)
        blank = [0.0] * len(self.targets_ + self.covariates_)
        windows = Windows(self.history_, self.horizon_)
        split = WindowSplit(values, values[:, : len(self.targets_)], starts, windows, blank)
        outputs = []
        with torch.inference_mode():
            for rows in np.array_split(np.arange(len(starts)), -(-len(starts) // _BATCH)):
                x = split.batch(rows).x
                told = torch.stack([member(x)[:, -self.horizon_ :] for member in self.members_]).mean(0)
                outputs.append(told.unflatten(2, (len(self.targets_), -1)).double().numpy())
        quantiles = np.sort(np.concatenate(outputs), axis=-1) + getattr(self, "widening_", 0.0)
        shift, scale = self.scales_.get(one.name) or scale_of(one.values)
        return (
            np.sort(quantiles, axis=-1) * scale[: len(self.targets_), None]
            + shift[: len(self.targets_), None]
        )

    def _calibrate(self, found: list[OneSeries]) -> None:
        """Move every bound until validation values lie inside as often as they should, row by row ahead."""
        self.__dict__.pop("widening_", None)
        missed = []
        for one in found:
            first = max(len(one.values) - self._held(one), self.history_)
            starts = spread(first, len(one.values) - self.horizon_, MOST_WINDOWS // len(found) + 1)
            ahead = starts[:, None] + np.arange(self.horizon_)
            scale = self.scales_[one.name][1][: len(self.targets_), None]
            truth = one.values[ahead][..., : len(self.targets_), None]
            missed.append((truth - self._quantiles(one, starts)) / scale)
        self.widening_ = widening_for(np.concatenate(missed), self.levels_)

    def _recent(self, one: OneSeries) -> tuple[Any, Any]:
        """The last rows; where there are no times, their numbers stand for them."""
        rows = max(self.history_, _DRAWN * self.horizon_, _TELLING)
        times = np.arange(len(one.values)) if one.times is None else one.times
        return one.values[-rows:], times[-rows:]

    def _ahead(self, one: OneSeries) -> NDArray[Any]:
        if one.times is None:
            return np.arange(len(one.values), len(one.values) + self.horizon_)
        # Of rows without times only the newer ones may have some.
        step = self._step(one.name) or step_of(one.times)
        return step.stamps(one.times[-1], self.horizon_ + 1)[1:]

    def _rows_ahead(self, given: Any, columns: Sequence[str], one: OneSeries, called: str) -> NDArray[Any]:
        ahead = self._ahead(one)
        if self._step(one.name) is None:
            one = one._replace(times=None)
        return rows_ahead(given, columns, one, ahead, time=self.time_, series=self.series_, called=called)

    def _extended(self, one: OneSeries, future: Any) -> OneSeries:
        """With rows for the horizon: what is known there, and zeros that nobody looks at."""
        ahead = np.zeros((self.horizon_, one.values.shape[1]))
        if self.known_:
            when = self._ahead(one)
            if future is None:
                first, last = shown(when[0]), shown(when[-1])
                raise ValueError(
                    f"{', '.join(self.known_)} are known ahead: pass future=…, a frame with these columns "
                    f"and {self.horizon_} rows{of_series(one)}, those of {first} to {last}."
                )
            known = self._rows_ahead(future, self.known_, one, "future")
            require_rows(known, one, when, "future")
            ahead[:, -len(self.known_) :] = known
        times = None if one.times is None else np.concatenate([one.times, self._ahead(one)])
        return OneSeries(one.name, np.concatenate([one.values, ahead]), times)

    def _frame(self, quantiles: Float[ndarray, "H k q"], index: pandas.Index) -> pandas.DataFrame:
        middle = len(self.levels_) // 2
        columns = {}
        for place, target in enumerate(self.targets_):
            columns[target] = quantiles[:, place, middle]
            for level in range(middle):
                share = f"{1 - 2 * self.levels_[level]:g}"
                columns[f"{target} lower {share}"] = quantiles[:, place, level]
                columns[f"{target} upper {share}"] = quantiles[:, place, -1 - level]
        return pandas.DataFrame(columns, index=index.rename(self.time_ or "time"))
