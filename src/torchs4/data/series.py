"""One long series of numbers, cut into a history to read and a horizon to predict.

Axes: k columns that are predicted.
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
from torchs4.data.time_stamps import calendar_columns, calendar_features, calendar_names
from torchs4.description import Batch, InputDescription, Scaling
from torchs4.tasks import Forecast

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
    """Rows first … end - 1; their histories may reach back to row `earliest`, where their series begins."""

    first: int
    end: int
    earliest: int = 0

    def starts(self, windows: Windows, stride: int = 1) -> NDArray[np.int64]:
        """Where the horizons of its windows begin."""
        first = max(self.first, self.earliest + windows.history)
        return np.arange(first, self.end - windows.horizon + 1, stride)


class Columns(NamedTuple):
    """What windows read and predict, by the columns' names.

    known: columns that are known for the horizon, too, beside those that are read.
    calendar: hour of day, day of week and so on, as two numbers each, known for the horizon, too.
    """

    inputs: tuple[str, ...]
    targets: tuple[str, ...]
    known: tuple[str, ...] = ()
    calendar: bool = False


class WindowSplit(Split):
    """Windows of a series, cut when they are asked for. Example i's horizon begins at row starts[i].

    read: of every row, the numbers that are read; behind the first `blank` many of them, those that are known
        for the horizon, too. blank: what stands in the horizon for each of the first ones.
    """

    def __init__(
        self,
        read: Float[ndarray, "rows columns"],
        targets: Float[ndarray, "rows k"],
        starts: NDArray[np.int64],
        windows: Windows,
        blank: Sequence[float],
    ) -> None:
        self._read = read
        self._targets = targets
        self._starts = starts
        self._windows = windows
        self._blank = np.array(blank, np.float32)
        self._offsets = np.arange(-windows.history, windows.horizon)

    def __len__(self) -> int:
        return len(self._starts)

    def batch(self, rows: NDArray[np.int64], generator: torch.Generator | None = None) -> Batch:
        places = self._starts[rows][:, None] + self._offsets
        x = self._read[places]
        x[:, self._windows.history :, : len(self._blank)] = self._blank
        asked = np.broadcast_to(self._offsets >= 0, places.shape).copy()
        return Batch(
            torch.from_numpy(x), torch.from_numpy(self._targets[places]), asked=torch.from_numpy(asked)
        )


def forecasting_data(
    series: Series,
    parts: Sequence[Sequence[Part]],
    windows: Windows,
    columns: Columns,
    *,
    normalize: bool = True,
) -> SequenceData:
    """Windows for training, validation and, if there is a third part, test.

    Every horizon lies inside its part. A history may reach back into the part before, whose rows are past by
    then, as is usual; that of a training window lies inside its own. Scales come from training rows alone.
    Each part may consist of several, one of each series where several lie one after the other.
    """
    for what, part, needed in zip(
        ("train on", "validate with", "test with"),
        parts,
        (windows.history + windows.horizon, windows.horizon, windows.horizon),
        strict=False,
    ):
        most = max(piece.end - piece.first for piece in part)
        if most < needed or not any(len(piece.starts(windows)) for piece in part):
            raise ValueError(
                f"There are {most:,} rows to {what}; a window of {windows.history} rows and "
                f"a horizon of {windows.horizon} need at least {needed:,}. Choose smaller ones, or give more "
                f"rows."
            )
    if columns.calendar and series.times is None:
        raise ValueError("calendar needs the time of every row; name a column with dates by `time`.")
    if columns.calendar and series.times is not None and series.times.dtype.kind != "M":
        raise ValueError("calendar needs dates, not plain numbers, in the column of time.")
    read = [series.columns.index(name) for name in (*columns.inputs, *columns.known)]
    predicted = [series.columns.index(name) for name in columns.targets]
    rows = np.concatenate([np.arange(piece.first, piece.end) for piece in parts[0]])
    scaling = _scaling_of(series.values, rows) if normalize else None
    values, names = series.values[:, read], columns.inputs + columns.known
    if columns.calendar and series.times is not None:
        told = calendar_names(series.times[rows])
        values = np.concatenate([values, calendar_features(series.times, told)], axis=1)
        names += calendar_columns(told)
    targets = np.ascontiguousarray(series.values[:, predicted])
    blank = [scaling.shift[column] if scaling else 0.0 for column in read[: len(columns.inputs)]]

    def split(part: Sequence[Part], stride: int) -> WindowSplit:
        starts = np.concatenate([piece.starts(windows, stride) for piece in part])
        return WindowSplit(values, targets, starts, windows, blank)

    train, validation, *test = parts
    inputs = read[: len(columns.inputs)]
    return SequenceData(
        input=InputDescription(
            "values",
            len(names),
            windows.history + windows.horizon,
            scaling=_of_columns(scaling, read, len(names) - len(read)),
            names=names,
        ),
        task=Forecast(
            columns.targets,
            _of_columns(scaling, predicted),
            horizon=windows.horizon,
            continues=tuple(map(inputs.index, predicted)) if set(predicted) <= set(inputs) else (),
        ),
        train=split(train, windows.stride),
        validation=split(validation, 1),
        test=split(test[0], 1) if test else None,
    )


def _scaling_of(values: Float[ndarray, "rows columns"], rows: NDArray[np.int64]) -> Scaling:
    """Mean and deviation of every column; one that never changes is only shifted."""
    shift, scale = [], []
    for column in range(values.shape[1]):
        numbers = values[rows, column].astype(np.float64)
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
        calendar: beside the columns, hour of day, day of week and so on, for the horizon too: the sine and
            cosine of each that differs from row to row and comes round at least twice in training rows.
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
        parts = [[Part(0, rows - test - validation)], [Part(rows - test - validation, rows - test)]]
        if self.test_fraction:
            parts.append([Part(rows - test, rows)])
        try:
            return forecasting_data(
                series,
                parts,
                self._windows,
                Columns(inputs, self.targets or inputs, calendar=self.calendar),
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
