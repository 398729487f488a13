"""What a published table of results is."""

from __future__ import annotations

from dataclasses import dataclass

from torchs4.tasks import ACCURACY, Metric

# What stands where a model fails or cannot run, and where nobody has reported a number.
FAILS, UNREPORTED = "X", "-"


@dataclass(frozen=True)
class Column:
    """A column of numbers, in the unit of the table's metric.

    recipe: which of ours trains for it; the average has none.
    rate: 2 where the model sees every second sample, without having been trained so.
    """

    title: str
    recipe: str | None = None
    rate: int = 1


@dataclass(frozen=True)
class Row:
    """What was published of a model. tables: numbers of the paper's tables that have this row."""

    model: str
    cells: tuple[str, ...]
    tables: tuple[int, ...]
    state_space: bool = False

    def number(self, index: int) -> float | None:
        """The number in a column, if there is one."""
        cell = self.cells[index]
        return None if cell in (FAILS, UNREPORTED) else float(cell)


@dataclass(frozen=True)
class PublishedTable:
    """Rows as published, digit by digit.

    metric: what the numbers are. note: what has to be known to read the rows.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    metric: Metric = ACCURACY
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row.cells) != len(self.columns):
                raise ValueError(
                    f"{row.model} has {len(row.cells)} cells for the {len(self.columns)} columns of "
                    f"{self.name}."
                )

    def best_other(self, index: int) -> Row | None:
        """The row without state spaces that is best in a column."""
        others = [row for row in self.rows if not row.state_space and row.number(index) is not None]
        sign = 1 if self.metric.higher_is_better else -1
        return max(others, key=lambda row: sign * (row.number(index) or 0.0), default=None)

    @property
    def latest(self) -> Row:
        """The paper's own model, in its latest version."""
        return [row for row in self.rows if row.model.startswith("S4")][-1]


def row(model: str, cells: str, *tables: int, state_space: bool = False) -> Row:
    """A row from its cells as they stand on the page, with spaces between them."""
    return Row(model, tuple(cells.split()), tables, state_space)
