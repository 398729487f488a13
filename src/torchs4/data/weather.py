"""Weather: four years of hours at one place of the United States, to be forecast."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from torchs4.data.prepared import prepared_arrays
from torchs4.data.published_series import as_series, read_published, usual_parts
from torchs4.data.series import Columns, Windows, forecasting_data

if TYPE_CHECKING:
    from pathlib import Path

    from torchs4.data.progress import Progress
    from torchs4.data.sequences import SequenceData

_TARGET = "WetBulbCelsius"
_HEADER = "date,Visibility,DryBulbFarenheit"
_ADVICE = "`s4 data get weather` says where WTH.csv comes from"


@dataclass(frozen=True)
class Weather:
    """Options of Weather: the first 70 % of the hours train, 10 % validate, 20 % test; scaled by the first.

    Attributes:
        window: rows of history that a prediction sees; that of the first horizons to validate and test with
            reaches back into the part before, as in the benchmark.
        horizon: rows to predict.
        stride: rows from one training window to the next.
        univariate: the wet bulb's temperature alone is read and predicted, instead of all twelve columns.
        calendar: hour of day, day of week and so on beside the columns, for the horizon too.
    """

    window: int = 168
    horizon: int = 24
    stride: int = 1
    univariate: bool = False
    calendar: bool = False

    def __post_init__(self) -> None:
        self._windows.require()

    @property
    def _windows(self) -> Windows:
        return Windows(self.window, self.horizon, self.stride)

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """Read `folder/WTH.csv`, the file as published."""
        path = folder / "WTH.csv"
        build = partial(read_published, path, "weather", _ADVICE, "%m/%d/%Y %H:%M", _HEADER)
        series = as_series(prepared_arrays(folder, "weather-v1", build))
        columns = (_TARGET,) if self.univariate else series.columns
        return forecasting_data(
            series,
            usual_parts(len(series.values)),
            self._windows,
            Columns(columns, columns, calendar=self.calendar),
        )
