"""Series that others have published as CSV files: dates in the first column, numbers in all others."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from torchs4.data.location import DatasetMissingError
from torchs4.data.series import Part
from torchs4.data.series_table import Series
from torchs4.data.time_stamps import require_regular

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

# Of the benchmark for everything but ETT: the rest validates.
_TRAIN_SHARE, _TEST_SHARE = 0.7, 0.2


def read_published(path: Path, name: str, advice: str, date: str, expected: str) -> dict[str, NDArray[Any]]:
    """Numbers, times and names of the columns of a file.

    name: of the dataset. advice: what to do when the file is missing or damaged.
    date: how its dates are written. expected: how its header begins.
    """
    if not path.is_file():
        raise DatasetMissingError(name, path, advice)
    with path.open(encoding="utf-8-sig") as file:
        header = file.readline().strip()
        if not header.startswith(expected):
            raise ValueError(f"{path} begins with {header[:80]!r}; expected {expected!r}. {advice}.")
        try:
            table = np.loadtxt(file, delimiter=",", dtype=np.str_, ndmin=2)
            times = np.array([datetime.strptime(text, date) for text in table[:, 0]], "M8[s]")
            values = table[:, 1:].astype(np.float32)
            require_regular(times, f"{path}, column 'date'")
        except ValueError as error:
            raise ValueError(f"{path} is damaged: {error} {advice}.") from error
    return {"values": values, "times": times, "columns": np.array(header.split(",")[1:])}


def as_series(arrays: Mapping[str, NDArray[Any]]) -> Series:
    """What `read_published` gave, after it was kept on disk."""
    return Series(arrays["values"], tuple(map(str, arrays["columns"])), arrays["times"])


def usual_parts(rows: int) -> list[list[Part]]:
    """70 % to train on, then 10 % to validate and 20 % to test with, rounded as in the benchmark."""
    train, test = int(rows * _TRAIN_SHARE), int(rows * _TEST_SHARE)
    return [[Part(0, train)], [Part(train, rows - test)], [Part(rows - test, rows)]]
