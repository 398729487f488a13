"""A table with our rows as Markdown, for documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchs4.tables.arena import ARENA, measured_arena
from torchs4.tables.measurements import MARK, cells, our_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torchs4.tables.measurements import Summaries
    from torchs4.tables.table import PublishedTable

NOT_RUN = "not run to its end here yet"
_DETAILS = (
    "task",
    "measured here",
    "best without state spaces",
    "S4 published",
    "data",
    "machine, time of a run",
    "parameters",
    "commit",
)


def markdown(table: PublishedTable, summaries: Summaries | None = None) -> str:
    """The published rows and ours, then what each of our numbers was measured on."""
    ours = our_rows(table, summaries)
    titles = [column.title for column in table.columns]
    rows = [[row.model, *row.cells] for row in table.rows]
    rows += [[f"**S4, `{preset}`**", *cells(table, found)] for preset, found in ours.items()]
    arena = measured_arena() if table.name == ARENA else None
    if arena is not None:
        rows += arena.rows(table)
    parts = [f"### {table.title}", _lines(["model", *titles], rows)]
    parts.append(
        f"Numbers with {MARK} were measured here, all others are as published. "
        f"{table.note or 'X: fails or cannot run.'}"
    )
    if arena is not None:
        parts.append(arena.note)
    details = []
    for index, column in enumerate(table.columns):
        if column.recipe is None:
            continue
        best = table.best_other(index)
        other = "–" if best is None else f"{best.cells[index]} ({best.model})"
        published = table.latest.cells[index]
        found_here = [found[column.title] for found in ours.values() if column.title in found]
        if not found_here:
            details.append([column.title, NOT_RUN, other, published, "", "", "", ""])
        for one in found_here:
            details.append(
                [
                    f"{column.title}, `{one.preset}`",
                    one.figure,
                    other,
                    published,
                    one.data,
                    f"{one.machine}, {one.minutes:,.0f} minutes",
                    f"{one.parameters:,}",
                    one.commit,
                ]
            )
    parts.append(_lines(_DETAILS, details))
    differing = {one.column.title: one.recipe.differs for found in ours.values() for one in found.values()}
    notes = [f"- {title}: {text}" for title, text in differing.items() if text]
    if notes:
        parts.append("\n".join(["What differs from the paper:", *notes]))
    return "\n\n".join(parts) + "\n"


def _lines(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
