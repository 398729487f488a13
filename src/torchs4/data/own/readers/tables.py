"""CSV and Parquet: wide, where a row is a sequence, or long, where a row is a position of one."""

from __future__ import annotations

import csv
import re
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from torchs4.data.own.examples import Examples
from torchs4.data.own.readers.columns import Columns, CsvColumns
from torchs4.data.own.readers.layout import listed
from torchs4.data.own.readers.packages import require_package

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from torchs4.data.own.readers.layout import Layout

# How pandas names the numbers of rows: in CSV files not at all.
_ROW_NUMBERS = re.compile(r"|Unnamed: \d+|__index_level_\d+__")
# What else separates columns; spreadsheets write ; where they write decimal commas.
_SEPARATORS = ";\t,|"


def read_csv(path: Path, layout: Layout) -> Examples:
    """A table whose first line names its columns, separated by commas (in .tsv files by tabs), ; or |."""
    delimiter = usual = "\t" if path.suffix.lower() == ".tsv" else ","
    names = _header(path, delimiter)
    if not names:
        raise ValueError(f"{path} is empty; its first line must name the columns.")
    notes = []
    if len(names) == 1 and (others := [mark for mark in _SEPARATORS if mark in names[0]]):
        # Nothing can be learned from one column, so these separate more of them.
        delimiter = others[0]
        names = _header(path, delimiter)
        decimals = ", so a ',' inside a number is its decimal point" if delimiter == ";" else ""
        notes.append(f"Columns of {path.name} are separated by {delimiter!r}, not by {usual!r}{decimals}.")
    roles = _Roles(path, names, layout)
    notes += roles.notes
    return replace(roles.examples(CsvColumns(path, roles.wanted, delimiter)), notes=tuple(notes))


def _header(path: Path, delimiter: str) -> list[str]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return next(csv.reader(file, delimiter=delimiter), [])
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text ({error}).") from error


def read_parquet(path: Path, layout: Layout) -> Examples:
    """A table with the layouts of a CSV file."""
    arrow, parquet = (require_package(name, f"Reading {path}") for name in ("pyarrow", "pyarrow.parquet"))
    try:
        file = parquet.ParquetFile(path)
        roles = _Roles(path, file.schema_arrow.names, layout)
        examples = roles.examples(Columns(path, file.read(columns=roles.wanted)))
        return replace(examples, notes=tuple(roles.notes))
    except (arrow.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path} is not a Parquet file, or is damaged: {error}.") from error


class _Roles:
    """What each column of a table is for."""

    def __init__(self, path: Path, names: list[str], layout: Layout) -> None:
        self.path = path
        self.layout = layout
        if len(set(names)) < len(names):
            name, _ = Counter(names).most_common(1)[0]
            raise ValueError(f"{path} has two columns {name!r}; each needs a name of its own.")
        self.label = layout.find_label(names, str(path))
        for field in ("id", "time"):
            layout.require(field, filter(None, [getattr(layout, field)]), names, str(path))
        layout.require("values", layout.values, names, str(path))
        if layout.with_labels:
            layout.require("ignore", layout.ignore, names, str(path))
        if layout.time and not layout.id:
            raise ValueError(
                f"{layout.told('time')} is {layout.time!r}, but no column tells which sequence a row of "
                f"{path} belongs to: name it by {layout.how('id')}."
            )
        taken = {*filter(None, (self.label, layout.id, layout.time)), *layout.ignore}
        if not layout.id and not layout.values and "id" in set(names) - taken:
            raise ValueError(
                f"{path} has a column 'id': if each row is a position of the sequence that it names, say so "
                f"by {layout.how('id')}; if each row is a sequence, leave it out by {layout.how('ignore')}, "
                f"or name the columns of its values by {layout.how('values')}. There are {listed(names)}."
            )
        others = [name for name in names if name not in taken]
        self.values = list(layout.values) or [name for name in others if not _ROW_NUMBERS.fullmatch(name)]
        self.notes = self._notes_about([name for name in others if name not in self.values])
        if not self.values:
            raise ValueError(f"{path} has no columns of values beside {listed(sorted(filter(None, taken)))}.")

    def _notes_about(self, left_out: list[str]) -> list[str]:
        """What to say about columns that nobody asked to leave out."""
        if not left_out or (self.layout.values and self.layout.with_labels):
            return []
        if self.layout.values:
            return [f"Not read, as nothing was learned from it: {listed(left_out)}."]
        return [f"Left out, as it looks like the numbers of the rows: {listed(left_out)}."]

    @property
    def wanted(self) -> list[str]:
        """The columns to read."""
        label = self.label if self.layout.with_labels else ""
        roles = (label, self.layout.id, self.layout.time, *self.values)
        return list(dict.fromkeys(filter(None, roles)))

    def examples(self, columns: Columns) -> Examples:
        """The sequences of the table."""
        if not len(columns):
            raise ValueError(f"{self.path} has no rows below its column names.")
        return self._long(columns) if self.layout.id else self._wide(columns)

    def _wide(self, columns: Columns) -> Examples:
        if self.layout.task == "position-regression":
            raise ValueError(
                f"position-regression needs a long table, a row for each position: name the column that "
                f"tells sequences of {self.path} apart by {self.layout.how('id')}."
            )
        for name in self.values:
            if columns.holds_dates(name):
                raise ValueError(
                    f"{self.path}: the column {name!r} holds dates. If each row is a moment of one series "
                    f"that is to be continued, did you mean `s4 fit {self.path} --horizon 24`, or in a "
                    f"program S4Forecaster? If each row is a sequence, leave the column out by "
                    f"{self.layout.how('ignore')}."
                )
        x: Any
        if len(self.values) == 1:
            x = columns.texts(self.values[0])
        else:
            x = np.empty((len(columns), len(self.values)), np.float32)
            for place, name in enumerate(self.values):
                x[:, place] = columns.numbers(name)
        return Examples(
            x, self._answers(columns), columns=(self.label,), name_of=columns.place, read=tuple(self.values)
        )

    def _long(self, columns: Columns) -> Examples:
        groups, ids = columns.groups(self.layout.id)
        order = np.argsort(groups, kind="stable")
        if self.layout.time:
            times = columns.times(self.layout.time)
            order = np.lexsort((times, groups))
            self._require_order(columns, times, groups, order)
        x = np.empty((len(columns), len(self.values)), np.float32)
        for place, name in enumerate(self.values):
            x[:, place] = columns.numbers(name)
        answers, starts = self._answers(columns), np.cumsum(np.bincount(groups))[:-1]
        y: Any
        if answers is None:
            y = None
        elif self.layout.task == "position-regression":
            y = np.split(np.asarray(answers)[order], starts)
        else:
            # The first row of each sequence, in the order of the sequences.
            firsts = np.unique(groups, return_index=True)[1]
            self._require_one_label(columns, answers, groups, firsts, ids)
            y = [answers[row] for row in firsts] if isinstance(answers, list) else answers[firsts]
        return Examples(
            np.split(x[order], starts),
            y,
            channels=tuple(self.values),
            columns=(self.label,),
            name_of=lambda row: f"sequence {ids[row]!r} of {self.path}",
            keys=ids,
            read=tuple(self.values),
        )

    def _answers(self, columns: Columns) -> Any:
        if not self.layout.with_labels:
            return None
        is_label = self.layout.task == "classification"
        return columns.labels(self.label) if is_label else columns.numbers(self.label)

    def _require_order(
        self, columns: Columns, times: NDArray[Any], groups: NDArray[np.int64], order: NDArray[np.int64]
    ) -> None:
        same = (np.diff(groups[order]) == 0) & (times[order][1:] == times[order][:-1])
        if (wrong := np.flatnonzero(same)).size:
            first, second = order[wrong[0]], order[wrong[0] + 1]
            raise ValueError(
                f"{self.path}: {columns.place(int(first))} and {columns.place(int(second))} have the same "
                f"time, {times[first]}, in one sequence; each position needs its own."
            )

    def _require_one_label(
        self,
        columns: Columns,
        answers: Any,
        groups: NDArray[np.int64],
        firsts: NDArray[np.int64],
        ids: list[Any],
    ) -> None:
        if isinstance(answers, list):
            number = {label: place for place, label in enumerate(dict.fromkeys(answers))}
            codes = np.array([number[label] for label in answers])
        else:
            codes = answers
        if (wrong := np.flatnonzero(codes != codes[firsts][groups])).size:
            row = int(wrong[0])
            first = int(firsts[groups[row]])
            raise ValueError(
                f"{self.path}: sequence {ids[groups[row]]!r} has two labels, {answers[first]!r} in "
                f"{columns.place(first)} and {answers[row]!r} in {columns.place(row)}; all rows of a "
                f"sequence must have the same one."
            )
