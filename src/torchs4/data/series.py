"""One long series of numbers, cut into a history to read and a horizon to predict.

Axes: B examples of a batch, L positions of a history and its horizon.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from torchs4.configuration import require_whole
from torchs4.data.prepared import prepared_arrays
from torchs4.data.sequences import SequenceData, Split, require_fractions
from torchs4.data.series_table import Series, read_series
from torchs4.data.time_stamps import calendar_features, calendar_names
from torchs4.description import Batch, InputDescription, Scaling
from torchs4.tasks import PositionRegression

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float
    from numpy import ndarray
    from numpy.typing import NDArray

    from torchs4.data.progress import Progress


class Windows(NamedTuple):
    """Rows of history, rows to predict, and rows from one training window to the next."""

    history: int
    horizon: int
    stride: int = 1

    def require(self) -> None:
        """Refuse numbers that cut nothing; the names are those of the datasets' options."""
        for name, value in zip(("window", "horizon", "stride"), self, strict=True):
            require_whole(name, value, 1)


class Part(NamedTuple):
    """Rows first … end - 1 of a series."""

    first: int
    end: int


class WindowSplit(Split):
    """Windows of a series, cut when they are asked for. Example i's horizon begins at row starts[i].

    inputs, targets: columns to read and to predict. blank: what stands for each input in the horizon.
    calendar: names of calendar features, which are known for the horizon too and follow the inputs.
    """

    def __init__(
        self,
        series: Series,
        starts: NDArray[np.int64],
        windows: Windows,
        inputs: Sequence[int],
        targets: Sequence[int],
        blank: Sequence[float],
        calendar: tuple[str, ...] = (),
    ) -> None:
        self._series = series
        self._starts = starts
        self._windows = windows
        self._inputs = list(inputs)
        self._targets = list(targets)
        self._blank = np.array(blank, np.float32)
        self._calendar = calendar
        self._offsets = np.arange(-windows.history, windows.horizon)

    def __len__(self) -> int:
        return len(self._starts)

    def batch(self, rows: NDArray[np.int64], generator: torch.Generator | None = None) -> Batch:
        places = self._starts[rows][:, None] + self._offsets
        values = np.asarray(self._series.values[places])
        x = values[..., self._inputs]
        x[:, self._windows.history :] = self._blank
        if self._calendar and self._series.times is not None:
            x = np.concatenate([x, calendar_features(self._series.times[places], self._calendar)], axis=-1)
        asked = np.broadcast_to(self._offsets >= 0, places.shape).copy()
        return Batch(
            torch.from_numpy(x), torch.from_numpy(values[..., self._targets]), asked=torch.from_numpy(asked)
        )


def forecasting_data(
    series: Series,
    parts: Sequence[Part],
    windows: Windows,
    inputs: Sequence[str],
    targets: Sequence[str],
    *,
    calendar: bool = False,
    normalize: bool = True,
) -> SequenceData:
    """Windows for training, validation and, if there is a third part, test.

    Every horizon lies inside its part. A history may reach back into the part before, whose rows are past by
    then, as is usual; that of a training window lies inside its own. Scales come from training rows alone.
    """
    for what, part, needed in zip(
        ("train on", "validate with", "test with"),
        parts,
        (windows.history + windows.horizon, windows.horizon, windows.horizon),
        strict=False,
    ):
        if part.end - part.first < needed:
            raise ValueError(
                f"There are {part.end - part.first:,} rows to {what}; a window of {windows.history} rows and "
                f"a horizon of {windows.horizon} need at least {needed:,}. Choose smaller ones, or give more "
                f"rows."
            )
    if calendar and series.times is None:
        raise ValueError("calendar needs the time of every row; name a column with dates by `time`.")
    if calendar and series.times is not None and series.times.dtype.kind != "M":
        raise ValueError("calendar needs dates, not plain numbers, in the column of time.")
    features = calendar_names(series.times) if calendar and series.times is not None else ()
    read = [series.columns.index(name) for name in inputs]
    predicted = [series.columns.index(name) for name in targets]
    scaling = _scaling_of(series.values[: parts[0].end]) if normalize else None

    def split(part: Part, stride: int) -> WindowSplit:
        first = max(part.first, windows.history)
        starts = np.arange(first, part.end - windows.horizon + 1, stride)
        blank = [scaling.shift[column] if scaling else 0.0 for column in read]
        return WindowSplit(series, starts, windows, read, predicted, blank, features)

    train, validation, *test = parts
    return SequenceData(
        input=InputDescription(
            "values",
            len(read) + len(features),
            windows.history + windows.horizon,
            scaling=_of_columns(scaling, read, len(features)),
            names=(*inputs, *features),
        ),
        task=PositionRegression(tuple(targets), _of_columns(scaling, predicted)),
        train=split(train, windows.stride),
        validation=split(validation, 1),
        test=split(test[0], 1) if test else None,
    )


def _scaling_of(values: Float[ndarray, "rows columns"]) -> Scaling:
    """Mean and deviation of every column; one that never changes is only shifted."""
    shift, scale = [], []
    for column in range(values.shape[1]):
        numbers = values[:, column].astype(np.float64)
        shift.append(float(numbers.mean()))
        scale.append(float(numbers.std()) if np.ptp(numbers) else 1.0)
    return Scaling(tuple(shift), tuple(scale))


def _of_columns(scaling: Scaling | None, columns: Sequence[int], unscaled: int = 0) -> Scaling | None:
    """The scaling of these columns, and of some more that come ready."""
    if scaling is None:
        return None
    shift = tuple(scaling.shift[column] for column in columns)
    scale = tuple(scaling.scale[column] for column in columns)
    return Scaling(shift + (0.0,) * unscaled, scale + (1.0,) * unscaled)


@dataclass(frozen=True)
class SeriesFile:
    """A CSV or Parquet file of one long series: a column for each quantity, a row for each step of time.

    The first rows train, the next ones validate, the last ones test.

    Attributes:
        path: the file: .csv, .tsv or .txt with a header, or .parquet.
        targets: columns to predict; none means all that are read.
        columns: columns to read; none means all, which then must hold numbers.
        time: column with the time of each row, which must rise by the same step everywhere; by default the
            one with dates. Dates with a zone are read in universal time.
        window: rows of history that a prediction sees.
        horizon: rows to predict.
        stride: rows from one training window to the next; those to validate and test with begin at every row.
        validation_fraction, test_fraction: of the rows. Without a test fraction nothing is set aside.
        calendar: beside the columns, hour of day, day of week and so on, for the horizon too; between -0.5
            and 0.5, and only those that differ from row to row.
        normalize: the network reads and predicts every column in units of its deviation from its mean, both
            over training rows.
    """

    path: str = ""
    targets: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    time: str = ""
    window: int = 168
    horizon: int = 24
    stride: int = 1
    validation_fraction: float = 0.1
    test_fraction: float = 0.2
    calendar: bool = False
    normalize: bool = True

    def __post_init__(self) -> None:
        self._windows.require()
        require_fractions(self.validation_fraction, self.test_fraction)
        for name, columns in (("targets", self.targets), ("columns", self.columns)):
            if isinstance(columns, str) or len(set(columns)) != len(columns):
                raise ValueError(f"{name} is {columns!r}; expected a tuple of different column names.")
            if self.time and self.time in columns:
                raise ValueError(
                    f"{name} holds {self.time!r}, which is the column of time; leave it out there."
                )

    @property
    def _windows(self) -> Windows:
        return Windows(self.window, self.horizon, self.stride)

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """Read the file, and keep its numbers in the data folder for as long as its content is the same."""
        series = self._series(folder, progress)
        inputs = self.columns or series.columns
        rows = len(series.values)
        validation, test = round(rows * self.validation_fraction), round(rows * self.test_fraction)
        parts = [Part(0, rows - test - validation), Part(rows - test - validation, rows - test)]
        if self.test_fraction:
            parts.append(Part(rows - test, rows))
        try:
            return forecasting_data(
                series,
                parts,
                self._windows,
                inputs,
                self.targets or inputs,
                calendar=self.calendar,
                normalize=self.normalize,
            )
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from error

    def _series(self, folder: Path, progress: Progress | None) -> Series:
        path = Path(self.path).expanduser()
        if not self.path or not path.is_file():
            raise FileNotFoundError(
                f"path is {self.path!r}, which is no file; expected a CSV or Parquet file."
            )
        wanted: tuple[str, ...] = ()
        if self.columns:
            wanted = (*self.columns, *(name for name in self.targets if name not in self.columns))
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256")
        digest.update(repr((path.suffix, wanted, self.time)).encode())
        arrays = prepared_arrays(
            folder,
            f"series-{digest.hexdigest()[:16]}-v1",
            partial(_prepare, path, wanted, self.time, progress),
        )
        columns = tuple(map(str, arrays["columns"]))
        for name in self.targets:
            if name not in columns:
                raise ValueError(f"{path} has no column {name!r}; it has {', '.join(map(repr, columns))}.")
        return Series(arrays["values"], columns, arrays.get("times"))


def _prepare(
    path: Path, wanted: tuple[str, ...], time: str, progress: Progress | None
) -> dict[str, NDArray[Any]]:
    series = read_series(path, wanted, time, progress)
    arrays: dict[str, NDArray[Any]] = {"values": series.values, "columns": np.array(series.columns)}
    if series.times is not None:
        arrays["times"] = series.times
    return arrays
