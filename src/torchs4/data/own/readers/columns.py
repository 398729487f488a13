"""Columns of a table as arrays; whatever is not what it should be is named by row and column."""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Any

import numpy as np

from torchs4.data.own.readers.packages import require_package
from torchs4.data.own.survey import is_finite

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

# Rows of a long file must fit into one block.
_BLOCK_BYTES = 1 << 26
# 2024-01-31, 31.1.2024, 1/31/24, alone or with a time of day.
_DATE = re.compile(r"\s*\d{1,4}([-./])\d{1,2}\1\d{1,4}([ T]+\d{1,2}:\d\d\S*)?\s*")


class Columns:
    """A table of Arrow, and the file that it comes from."""

    def __init__(self, path: Path, table: Any) -> None:
        self.path = path
        self._table = table
        self._arrow = require_package("pyarrow", "Reading tables")

    def __len__(self) -> int:
        return self._table.num_rows

    def place(self, row: int) -> str:
        """What to call a row."""
        return f"row {row + 1} of {self.path}"

    def numbers(self, name: str) -> NDArray[np.float64]:
        """A column of finite numbers."""
        column = self._filled(name, "a number")
        types = self._arrow.types
        if not (
            types.is_string(column.type) or types.is_boolean(column.type) or _is_number(column.type, types)
        ):
            raise ValueError(f"{self.path}: column {name!r} holds {column.type}; expected numbers.")
        if types.is_string(column.type):
            column = require_package("pyarrow.compute", "Reading tables").utf8_trim_whitespace(column)
        try:
            numbers = self._with_points(column).cast(self._arrow.float64()).to_numpy(zero_copy_only=False)
        except self._arrow.ArrowInvalid as error:
            texts = self._with_points(column).to_pylist()
            row = next(row for row, text in enumerate(texts) if not _is_written_number(text))
            raise self._error(row, name, column[row].as_py(), "a number") from error
        if (wrong := np.flatnonzero(~is_finite(numbers))).size:
            raise self._error(int(wrong[0]), name, numbers[wrong[0]], "a finite number")
        return numbers

    def labels(self, name: str) -> list[Any] | NDArray[Any]:
        """A column of classes; texts that are written like whole numbers are whole numbers."""
        column = self._filled(name, "a label")
        if not self._arrow.types.is_string(column.type):
            return column.to_numpy(zero_copy_only=False)
        try:
            whole = column.cast(self._arrow.int64())
        except self._arrow.ArrowInvalid:
            return column.to_pylist()
        # "01" is a name.
        return whole.to_numpy() if whole.cast(column.type).equals(column) else column.to_pylist()

    def texts(self, name: str) -> list[str]:
        """A column of texts."""
        return self._filled(name, "a text").cast(self._arrow.string()).to_pylist()

    def holds_dates(self, name: str) -> bool:
        """Whether its first entry is a date."""
        first = self._table.column(name)[0].as_py()
        return hasattr(first, "isoformat") or (isinstance(first, str) and bool(_DATE.fullmatch(first)))

    def groups(self, name: str) -> tuple[NDArray[np.int64], list[Any]]:
        """Which of the different entries each row has, and these entries in the order of their appearance."""
        encoded = self._filled(name, "an entry").dictionary_encode()
        return encoded.indices.to_numpy().astype(np.int64), encoded.dictionary.to_pylist()

    def times(self, name: str) -> NDArray[Any]:
        """A column to sort by: numbers, dates or times."""
        column = self._filled(name, "a number or a time")
        if not self._arrow.types.is_string(column.type):
            return column.to_numpy(zero_copy_only=False)
        for kind in (self._arrow.int64(), self._arrow.float64(), self._arrow.timestamp("ns")):
            try:
                return column.cast(kind).to_numpy(zero_copy_only=False)
            except self._arrow.ArrowInvalid:
                continue
        texts = column.to_pylist()
        is_fine = _is_written_number if _is_written_number(texts[0]) else self._is_time
        row = next((row for row, text in enumerate(texts) if not is_fine(text)), 0)
        raise self._error(row, name, column[row].as_py(), "a number or a time such as 2024-01-31 12:00:00")

    def _with_points(self, column: Any) -> Any:
        """Written numbers as Python writes them."""
        return column

    def _is_time(self, text: str) -> bool:
        try:
            self._arrow.scalar(text).cast(self._arrow.timestamp("ns"))
        except self._arrow.ArrowInvalid:
            return False
        return True

    def _filled(self, name: str, expected: str) -> Any:
        column = self._table.column(name).combine_chunks()
        types = self._arrow.types
        if types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if types.is_large_string(column.type):
            column = column.cast(self._arrow.string())
        if column.null_count:
            row = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
            raise ValueError(f"{self._start(row)}: column {name!r} is empty; expected {expected}.")
        return column

    def _error(self, row: int, name: str, value: Any, expected: str) -> ValueError:
        return ValueError(f"{self._start(row)}: column {name!r} holds {_shown(value)}; expected {expected}.")

    def _start(self, row: int) -> str:
        place = self.place(row)
        return f"{place[0].upper()}{place[1:]}"


class CsvColumns(Columns):
    """The columns of a text file; all are texts until they are asked for as something else."""

    def __init__(self, path: Path, names: list[str], delimiter: str) -> None:
        self._delimiter = delimiter
        arrow, arrow_csv = (require_package(name, f"Reading {path}") for name in ("pyarrow", "pyarrow.csv"))
        try:
            table = arrow_csv.read_csv(
                path,
                arrow_csv.ReadOptions(block_size=_BLOCK_BYTES),
                arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
                arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(names, arrow.string()),
                    include_columns=names,
                    null_values=[""],
                    strings_can_be_null=True,
                ),
            )
        except arrow.ArrowInvalid as error:
            raise ValueError(f"{path}: {self._unequal_row(path) or error}") from error
        super().__init__(path, table)

    def labels(self, name: str) -> list[Any] | NDArray[Any]:
        labels = super().labels(name)
        if self._delimiter == ";" and isinstance(labels, list):
            numbers = [text.replace(",", ".") for text in labels]
            return numbers if all(map(_is_written_number, numbers)) else labels
        return labels

    def _with_points(self, column: Any) -> Any:
        if self._delimiter != ";" or not self._arrow.types.is_string(column.type):
            return column
        return require_package("pyarrow.compute", "Reading tables").replace_substring(column, ",", ".")

    def place(self, row: int) -> str:
        # Rows are not lines: some lines are empty, and a text may go over several.
        with self.path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            reader = csv.reader(file, delimiter=self._delimiter)
            filled = (reader.line_num for fields in reader if fields)
            for _ in range(row + 1):
                next(filled, None)
            return f"line {next(filled, row + 2)} of {self.path}"

    def _unequal_row(self, path: Path) -> str:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            reader = csv.reader(file, delimiter=self._delimiter)
            columns = len(next(reader))
            for fields in reader:
                if fields and len(fields) != columns:
                    return (
                        f"line {reader.line_num} has {len(fields)} fields; expected {columns}, as the first "
                        f"line has."
                    )
        return ""


def _is_number(kind: Any, types: Any) -> bool:
    return types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)


def _is_written_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    # Python reads 1_000, Arrow does not.
    return "_" not in text


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else str(value)
