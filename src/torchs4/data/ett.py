"""ETT: loads and oil temperatures of electricity transformers over two years, to be forecast."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from torchs4.configuration import require_choice
from torchs4.data.location import DatasetMissingError, advise_again
from torchs4.data.prepared import prepared_arrays
from torchs4.data.series import Columns, Part, Windows, forecasting_data
from torchs4.data.series_table import Series
from torchs4.data.time_stamps import require_regular

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from torchs4.data.progress import Progress
    from torchs4.data.sequences import SequenceData

TransformerName = Literal["ETTh1", "ETTh2", "ETTm1", "ETTm2"]

_COLUMNS = ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")
_OIL_TEMPERATURE = "OT"
# The benchmark's months have 30 days. Of the two years in the files, what comes after 20 months is not used.
_TRAIN_MONTHS, _HELD_OUT_MONTHS = 12, 4
_MONTH_HOURS = 30 * 24
_AGAIN = advise_again("ett")


@dataclass(frozen=True)
class ETT:
    """Options of ETT: 12 months to train on, 4 to validate and 4 to test with, scaled by the training months.

    Attributes:
        name: which transformer and which step: ETTh1 and ETTh2 by the hour, ETTm1 and ETTm2 by 15 minutes.
        window: rows of history that a prediction sees; that of the first horizons to validate and test with
            reaches back into the months before, as in the benchmark.
        horizon: rows to predict.
        stride: rows from one training window to the next.
        univariate: oil temperature (OT) alone is read and predicted, instead of all seven columns.
        calendar: hour of day, day of week and so on beside the columns, for the horizon too.
    """

    name: TransformerName = "ETTh1"
    window: int = 168
    horizon: int = 24
    stride: int = 1
    univariate: bool = False
    calendar: bool = False

    def __post_init__(self) -> None:
        require_choice("name", self.name, get_args(TransformerName))
        self._windows.require()

    @property
    def _windows(self) -> Windows:
        return Windows(self.window, self.horizon, self.stride)

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """Read `folder/ETT-small`, the files as published."""
        path = folder / "ETT-small" / f"{self.name}.csv"
        arrays = prepared_arrays(folder, f"ett-{self.name}-v1", partial(_read, path))
        month = _MONTH_HOURS * (4 if "m" in self.name else 1)
        parts, first = [], 0
        for months in (_TRAIN_MONTHS, _HELD_OUT_MONTHS, _HELD_OUT_MONTHS):
            parts.append([Part(first, first + months * month)])
            first += months * month
        if len(arrays["values"]) < first:
            raise ValueError(
                f"{path} is cut short: it has {len(arrays['values']):,} rows; expected {first:,}. {_AGAIN}"
            )
        columns = (_OIL_TEMPERATURE,) if self.univariate else _COLUMNS
        series = Series(arrays["values"], _COLUMNS, arrays["times"])
        return forecasting_data(
            series, parts, self._windows, Columns(columns, columns, calendar=self.calendar)
        )


def _read(path: Path) -> dict[str, NDArray[Any]]:
    if not path.is_file():
        raise DatasetMissingError("ett", path)
    with path.open(encoding="utf-8") as file:
        header = file.readline().strip()
        if header != ",".join(("date", *_COLUMNS)):
            raise ValueError(f"{path} begins with {header[:80]!r}; expected the columns of ETT. {_AGAIN}")
        try:
            table = np.loadtxt(file, delimiter=",", dtype=np.str_, ndmin=2)
            times = table[:, 0].astype("M8[s]")
            values = table[:, 1:].astype(np.float32)
            require_regular(times, f"{path}, column 'date'")
        except ValueError as error:
            raise ValueError(f"{path} is damaged: {error} {_AGAIN}") from error
    return {"values": values, "times": times}
