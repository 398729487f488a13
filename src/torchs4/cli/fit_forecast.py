"""`s4 fit FILE --horizon N`: a forecaster for a series of your own; `s4 predict` then goes on with it."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import tyro

from torchs4.cli.consoles import console, errors
from torchs4.cli.options import peek, with_flags
from torchs4.estimators import S4Forecaster
from torchs4.estimators.forecast_training import TooFewRows
from torchs4.estimators.series_file import read_frame
from torchs4.training.run_folder import free_folder


@dataclass(frozen=True)
class FitForecastArguments:
    """Learn to go on with a series: a table with a row for each step of time.

    First a copy learns from the earlier rows and forecasts the last ones, to say how good it is; then the
    forecaster learns from all. Its picture is forecast.png.

    Attributes:
        path: the file: CSV or Parquet, with a header.
        horizon: rows ahead.
        target: the column or columns to forecast; without it all that hold numbers.
        time: the column of dates; without it the first one that holds some.
        covariates: columns that help and are known up to now.
        series: the column that tells which series a row belongs to, if there are several in the file.
        history: rows that a forecast sees; by default three horizons, between 96 and 720, and at least a week
            of hours or days.
        calendar: read hour of day, day of week and so on; by default where that helps on validation rows.
        intervals: shares of values that are to lie inside.
        test_fraction: of the rows, the last ones, to say how good forecasts are; 0 does without.
        ensemble: so many networks, averaged: better, and as many times slower.
        steps: of training.
        max_minutes: of each of the two trainings, at most.
        seed: of everything random.
        output: folder for the forecaster; by default a new one below runs/. The same command with the folder
            of an interrupted one goes on there.
    """

    path: tyro.conf.Positional[Path]
    horizon: int
    target: tuple[str, ...] = ()
    time: str = ""
    covariates: tuple[str, ...] = ()
    series: str = ""
    history: int | None = None
    calendar: bool | None = None
    intervals: tuple[float, ...] = (0.8, 0.95)
    test_fraction: float = 0.2
    ensemble: int = 1
    steps: int = 300
    max_minutes: float | None = None
    seed: int = 0
    output: Path | None = None


def fit_forecast(arguments: list[str]) -> int:
    """Fit."""
    if peek(arguments, "--epochs") is not None:
        raise ValueError(
            "--epochs is for sequences with answers; how long to learn from a series is --steps N."
        )
    chosen = tyro.cli(FitForecastArguments, prog="s4 fit", args=arguments)
    frame, time = read_frame(
        chosen.path, chosen.time, keep=(*chosen.target, *chosen.covariates, chosen.series)
    )
    if left_out := frame.attrs["left_out"]:
        _say(f"Left out, because they hold text: {', '.join(left_out)}")
    output = chosen.output or free_folder(Path("runs"), chosen.path.resolve().stem)
    forecaster = S4Forecaster(
        history=chosen.history,
        intervals=chosen.intervals,
        calendar="auto" if chosen.calendar is None else chosen.calendar,
        ensemble=chosen.ensemble,
        steps=chosen.steps,
        max_minutes=chosen.max_minutes,
        random_state=chosen.seed,
        output=output,
    )
    columns: dict[str, Any] = {
        "target": chosen.target or None,
        "horizon": chosen.horizon,
        "covariates": chosen.covariates,
        "time": time,
        "series": chosen.series or None,
    }
    try:
        with told_in_flags(FitForecastArguments):
            if chosen.test_fraction:
                share = 1 - chosen.test_fraction
                _say(f"Learning from the first {share:.0%} of the rows, to forecast the others …")
                _tell(forecaster.backtest(frame, test_fraction=chosen.test_fraction, **columns))
            _say("Learning from all rows …")
            forecaster.fit(frame, **columns)
    except KeyboardInterrupt:
        _say(f"To go on, give the same command with --output {output}")
        raise
    forecaster.save(output)
    forecaster.plot().savefig(output / "forecast.png", dpi=120)
    _say(
        f"The forecaster and forecast.png are in {output}. Go on from newer rows: "
        f"s4 predict {output} NEW_FILE -o forecast.csv"
    )
    return 0


def _say(text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)


@contextmanager
def told_in_flags(arguments: type[Any]) -> Iterator[None]:
    """Errors and warnings name options as they are written here; each warning is told once, at the end."""
    names = [field.name for field in fields(arguments)]
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", UserWarning)
        try:
            yield
        except TooFewRows as error:
            without = " Or do without a backtest: --test-fraction 0." * ("backtest" in str(error))
            raise ValueError(with_flags(f"{error}{without}", names)) from error
        except ValueError as error:
            raise ValueError(with_flags(str(error), names)) from error
        finally:
            for text in dict.fromkeys(str(one.message) for one in said):
                errors.print(with_flags(text, names), markup=False, soft_wrap=True)


def _tell(found: Any) -> None:
    """How good forecasts of the last rows were."""
    for target, row in found.scores.iterrows():
        inside = ", ".join(
            f"{row[name]:.0%} of the values in the {float(name.split()[1]):.0%} interval"
            for name in found.scores.columns
            if name.startswith("coverage")
        )
        others = ", ".join(
            f"that of the {name.removesuffix(' mae')} {row[name]:.4g}"
            for name in found.scores.columns
            if name.startswith("last") and name.endswith("mae")
        )
        _say(
            f"{target}: mean absolute error {row['mae']:.4g}, {others}; {inside} "
            f"({found.windows:,} forecasts of rows that took no part)."
        )
