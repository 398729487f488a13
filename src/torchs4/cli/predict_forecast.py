"""`s4 predict RUN FILE` for a forecaster: the rows that come after those of the file."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from torchs4.cli.consoles import errors
from torchs4.cli.fit_forecast import told_in_flags
from torchs4.estimators import S4Forecaster
from torchs4.estimators.series_file import read_frame


@dataclass(frozen=True)
class PredictForecastArguments:
    """The rows that follow, with intervals, from a forecaster that `s4 fit --horizon` made.

    Attributes:
        model: a folder that `s4 fit` wrote.
        path: a file laid out like the one it learned from, to go on from its last row; without it, from the
            last row that was learned from.
        output: where to write the table, as CSV; by default it is printed.
        horizon: rows ahead, at most those that were learned.
    """

    model: tyro.conf.Positional[Path]
    path: tyro.conf.Positional[Path | None] = None
    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    horizon: int | None = None


def predict_forecast(arguments: list[str]) -> int:
    """Predict."""
    chosen = tyro.cli(PredictForecastArguments, prog="s4 predict", args=arguments)
    forecaster = S4Forecaster.load(chosen.model)
    frame = None
    if chosen.path is not None:
        frame, _ = read_frame(
            chosen.path, forecaster.time_ or "", keep=(*forecaster.targets_, forecaster.series_)
        )
    with told_in_flags(PredictForecastArguments):
        try:
            table = forecaster.predict(chosen.horizon, frame)
        except ValueError as error:
            if "future=" not in str(error):
                raise
            raise ValueError(
                f"{error} From the command line nothing can be told about rows ahead: call "
                f"S4Forecaster.load({str(chosen.model)!r}).predict in a program."
            ) from error
    table.to_csv(
        sys.stdout if chosen.output is None else chosen.output, float_format="%.7g", lineterminator="\n"
    )
    if chosen.output is not None:
        errors.print(f"Wrote {len(table):,} rows to {chosen.output}", markup=False, soft_wrap=True)
    return 0
