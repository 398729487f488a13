"""A table ready to be shown: cells as text, and what has to be known to read them."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass


@dataclass(frozen=True)
class Sheet:
    """A header and rows of cells. ours: how many of the last rows were measured here. notes: sentences."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    ours: int = 0
    notes: tuple[str, ...] = ()

    def as_csv(self) -> str:
        """For spreadsheets: the header and the rows, nothing else."""
        written = io.StringIO()
        csv.writer(written, lineterminator="\n").writerows([self.header, *self.rows])
        return written.getvalue()

    def as_markdown(self) -> str:
        """For documents."""
        lines = [self.header, ("---",) * len(self.header), *self.rows]
        cells = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return "\n\n".join([f"### {self.title}", cells, *self.notes]) + "\n"
