"""A CSV or Parquet file as one long series: its numbers column by column, and the time of every row.

Whatever is wrong is told with file, column and row; rows count from 1 and the header is none of them.
"""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torchs4.data.progress import reported
from torchs4.data.time_stamps import is_regular, require_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from jaxtyping import Float, Shaped
    from numpy import ndarray
    from numpy.typing import NDArray

    from torchs4.data.progress import Progress

_CSV, _PARQUET = (".csv", ".tsv", ".txt"), (".parquet", ".pq")
_SEPARATORS = ",;\t"
# Besides the standard's 2016-07-01 00:00:00. Both orders of day and month are in use.
_DATES = ("%Y/%m/%d", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y")
_CLOCKS = ("", " %H:%M", " %H:%M:%S")


class Series(NamedTuple):
    """Numbers of these columns in every row, and the rows' times if they have any."""

    values: Float[ndarray, "rows columns"]
    columns: tuple[str, ...]
    times: Shaped[ndarray, " rows"] | None


def read_series(
    path: Path, columns: Sequence[str] = (), time: str = "", progress: Progress | None = None
) -> Series:
    """Read these columns, or all but that of time, every one of which must hold numbers.

    Without a name for it, the column of time is the one that holds dates, if there is one.
    """
    table = _read_table(path)
    if not table.num_rows:
        raise ValueError(f"{path} holds no rows; expected a header and a row for each step of time.")
    names = _checked_names(path, table.column_names)
    for name in (*columns, *([time] if time else [])):
        if name not in names:
            raise ValueError(f"{path} has no column {name!r}; it has {', '.join(map(repr, names))}.")
    time = time or _find_time(path, table)
    chosen = tuple(columns) or tuple(name for name in names if name != time)
    if not chosen:
        raise ValueError(f"{path} has no column besides {time!r}; expected numbers in at least one more.")
    times = None
    if time:
        times = _read_times(path, time, table[time])
        require_regular(times, f"{path}, column {time!r}")
    values = np.empty((table.num_rows, len(chosen)), np.float32)
    for place, name in enumerate(reported(chosen, f"Reading {path.name}", progress)):
        values[:, place] = _read_numbers(path, name, table[name])
    return Series(values, chosen, times)


def _read_table(path: Path) -> Any:
    try:
        import pyarrow
        from pyarrow import csv as arrow_csv
        from pyarrow import parquet
    except ImportError as error:
        raise ImportError(
            'Tables are read with pyarrow, which is not installed. Run `pip install "torchs4[data]"`.'
        ) from error
    suffix = path.suffix.lower()
    if suffix not in _CSV + _PARQUET:
        raise ValueError(f"{path} ends in {suffix!r}; expected one of {', '.join(_CSV + _PARQUET)}.")
    try:
        if suffix in _PARQUET:
            return parquet.read_table(path)
        with path.open(encoding="utf-8-sig", newline="") as file:
            first = file.readline()
        separator = max(_SEPARATORS, key=first.count)
        return arrow_csv.read_csv(
            path,
            # One thread counts the rows, so that an error can name one.
            read_options=arrow_csv.ReadOptions(use_threads=False),
            parse_options=arrow_csv.ParseOptions(
                delimiter=separator,
                # Where there is but one column, an empty line is a missing value.
                ignore_empty_lines=len(next(csv.reader([first], delimiter=separator), [])) > 1,
            ),
        )
    # Arrow's errors are ValueErrors, as is that of text which is not UTF-8.
    except (ValueError, pyarrow.ArrowException) as error:
        # Arrow's rows are lines: it counts the header, too.
        said = str(error).replace("Row #", "line ")
        raise ValueError(f"{path} cannot be read as a table: {said}") from error


def _checked_names(path: Path, names: list[str]) -> list[str]:
    for place, name in enumerate(names, start=1):
        if not name.strip():
            raise ValueError(f"{path}: column {place} has no name; give it one, or leave it out.")
        if names.count(name) > 1:
            raise ValueError(f"{path} has {names.count(name)} columns {name!r}; expected different names.")
    return names


def _find_time(path: Path, table: Any) -> str:
    """The name of the one column with dates; empty if there is none."""
    found = [name for name in table.column_names if _holds_times(table[name])]
    if len(found) > 1:
        raise ValueError(
            f"{path} has dates in the columns {', '.join(map(repr, found))}; choose the time of the rows "
            f"with `time`, and the columns to read with `columns`."
        )
    return found[0] if found else ""


def _holds_times(column: Any) -> bool:
    """Whether a column is of a type for dates, or holds text that starts with one."""
    from pyarrow import types

    if types.is_timestamp(column.type) or types.is_date(column.type):
        return True
    return types.is_string(column.type) and any(_parsed(column[:1]))


def _parsed(column: Any) -> Iterator[Any]:
    """Every reading of text as dates that understands its first row; null where it does not."""
    import pyarrow
    from pyarrow import compute

    unit = pyarrow.timestamp("us")
    try:
        column[:1].cast(unit)
    except pyarrow.ArrowInvalid:
        for date in _DATES:
            for clock in _CLOCKS:
                read = compute.strptime(column, format=date + clock, unit="us", error_is_null=True)
                if read[0].is_valid:
                    yield read
        return
    try:
        yield column.cast(unit)
    except pyarrow.ArrowInvalid:
        # One by one, to find the cells that are no dates.
        yield pyarrow.chunked_array([[_date_or_none(cell, unit) for cell in column]], unit)


def _date_or_none(cell: Any, unit: Any) -> Any:
    import pyarrow

    try:
        return cell.cast(unit).as_py()
    except pyarrow.ArrowInvalid:
        return None


def _read_times(path: Path, name: str, column: Any) -> NDArray[Any]:
    from pyarrow import compute, types

    expected = "a date and time such as 2016-07-01 00:00:00"
    if types.is_integer(column.type) or types.is_floating(column.type):
        return _read_numbers(path, name, column)
    _refuse_missing(path, name, column, expected)
    if not types.is_string(column.type):
        if not (types.is_timestamp(column.type) or types.is_date(column.type)):
            raise _bad_cell(path, name, 0, column[0].as_py(), expected)
        return _stamps(column)
    readings = list(_parsed(column))
    if not readings:
        raise _bad_cell(path, name, 0, column[0].as_py(), expected)
    whole = [_stamps(read) for read in readings if not read.null_count]
    if not whole:
        best = min(readings, key=lambda read: read.null_count)
        row = compute.index(compute.is_null(best), True).as_py()
        raise _bad_cell(path, name, row, column[row].as_py(), expected)
    # What is 3 February here is 2 March elsewhere: only one of them is regular.
    regular = [times for times in whole if is_regular(times)]
    if len(regular) > 1:
        raise _bad_cell(path, name, 0, column[0].as_py(), f"{expected}: day and month could be either")
    return (regular or whole)[0]


def _stamps(column: Any) -> NDArray[Any]:
    """Dates as numpy's, without a zone; those of a zone are in universal time."""
    return np.asarray(column.to_numpy()).astype("M8[us]")


def _read_numbers(path: Path, name: str, column: Any) -> NDArray[np.float64]:
    from pyarrow import types

    expected = "a number"
    _refuse_missing(path, name, column, expected)
    kind = column.type
    if types.is_string(kind) or types.is_large_string(kind) or types.is_dictionary(kind):
        numbers = _numbers_of_text(path, name, column, expected)
    elif (
        types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind)
    ):
        numbers = np.asarray(column.cast("float64", safe=False).to_numpy())
    else:
        raise _bad_cell(path, name, 0, column[0].as_py(), expected)
    # Batches are in single precision, beyond whose largest number there is only infinity.
    wrong = np.flatnonzero(~(np.abs(numbers) <= np.finfo(np.float32).max))
    if wrong.size:
        raise _bad_cell(path, name, wrong[0], float(numbers[wrong[0]]), "a finite number")
    return numbers


def _numbers_of_text(path: Path, name: str, column: Any, expected: str) -> NDArray[np.float64]:
    numbers = np.empty(len(column))
    for row, cell in enumerate(column.to_pylist()):
        try:
            numbers[row] = float(cell)
        except ValueError as error:
            raise _bad_cell(path, name, row, cell, expected) from error
    return numbers


def _refuse_missing(path: Path, name: str, column: Any, expected: str) -> None:
    from pyarrow import compute

    if column.null_count:
        row = compute.index(compute.is_null(column), True).as_py()
        raise _bad_cell(path, name, row, None, expected)


def _bad_cell(path: Path, name: str, row: int, found: object, expected: str) -> ValueError:
    shown = "nothing" if found is None or found == "" else repr(found)
    return ValueError(
        f"{path}, column {name!r}, row {row + 1}: found {shown}; expected {expected}. Mend it, or choose "
        f"other columns with `columns`."
    )
