"""The paper's tables of results, with what was measured here beside every row."""

from __future__ import annotations

from torchs4.configuration import require_choice
from torchs4.tables import density, images, lra, speech
from torchs4.tables.markdown import markdown
from torchs4.tables.measurements import Measurement, our_rows
from torchs4.tables.table import Column, PublishedTable, Row

__all__ = ["TABLES", "Column", "Measurement", "PublishedTable", "Row", "find", "markdown", "our_rows"]

TABLES: dict[str, PublishedTable] = {
    table.name: table for table in (lra.TABLE, images.TABLE, speech.TABLE, density.TABLE)
}


def find(name: str) -> PublishedTable:
    """The table of that name."""
    require_choice("table", name, TABLES)
    return TABLES[name]
