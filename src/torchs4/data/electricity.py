"""Electricity (ECL): what some hundred clients use by the hour, to be forecast."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

from torchs4.configuration import require_choice
from torchs4.data.prepared import prepared_arrays
from torchs4.data.published_series import as_series, read_published, usual_parts
from torchs4.data.series import Columns, Windows, forecasting_data

if TYPE_CHECKING:
    from pathlib import Path

    from torchs4.data.progress import Progress
    from torchs4.data.sequences import SequenceData

FileName = Literal["ECL", "ECL_first6"]

# Each file's way to write dates: that of the six clients comes from another hand.
_DATES = {"ECL": "%Y-%m-%d %H:%M:%S", "ECL_first6": "%Y/%m/%d %H:%M"}
# The benchmark's client; a file that has fewer clients has its last one instead.
_TARGET = "MT_320"
_ADVICE = "`s4 data get electricity` says where ECL.csv comes from"


@dataclass(frozen=True)
class Electricity:
    """Options of ECL: the first 70 % of the hours train, 10 % validate, 20 % test; scaled by the first.

    Attributes:
        name: ECL, the file of the benchmark with 321 clients, or ECL_first6, its first six with other dates.
        window: rows of history that a prediction sees; that of the first horizons to validate and test with
            reaches back into the part before, as in the benchmark.
        horizon: rows to predict.
        stride: rows from one training window to the next.
        univariate: one client is read and predicted instead of all: MT_320, or the file's last one.
        calendar: hour of day, day of week and so on beside the columns, for the horizon too.
    """

    name: FileName = "ECL"
    window: int = 168
    horizon: int = 48
    stride: int = 1
    univariate: bool = False
    calendar: bool = False

    def __post_init__(self) -> None:
        require_choice("name", self.name, get_args(FileName))
        self._windows.require()

    @property
    def _windows(self) -> Windows:
        return Windows(self.window, self.horizon, self.stride)

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """Read `folder/ECL.csv`, the file as published, or that of its first six clients."""
        path = folder / f"{self.name}.csv"
        build = partial(read_published, path, "electricity", _ADVICE, _DATES[self.name], "date,")
        series = as_series(prepared_arrays(folder, f"electricity-{self.name}-v1", build))
        columns = series.columns
        if self.univariate:
            columns = (_TARGET,) if _TARGET in columns else columns[-1:]
        return forecasting_data(
            series,
            usual_parts(len(series.values)),
            self._windows,
            Columns(columns, columns, calendar=self.calendar),
        )
