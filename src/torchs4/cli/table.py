"""`s4 table`: the paper's tables with our numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich import box
from rich.console import Console
from rich.table import Table

from torchs4 import recipes, tables
from torchs4.cli.consoles import console
from torchs4.recipes.runs import summaries_in
from torchs4.tables import forecast
from torchs4.tables.markdown import NOT_RUN
from torchs4.tables.measurements import MARK, Measurement, Summaries, cells

# Between two columns, and around them all.
_GAP, _EDGE = 2, 2


@dataclass(frozen=True)
class TableArguments:
    """The rows of the paper's tables, and what was measured here.

    Attributes:
        name: "lra" (Tables 4 and 10), "images" (6 and 12), "speech" (5), "density" (7) or
            "forecast" (9).
        folder: also take runs that `s4 reproduce` left in this folder, before those that come with torchs4.
        markdown: write it as Markdown, for documents.
    """

    name: tyro.conf.Positional[str]
    folder: Path | None = None
    markdown: bool = False


def show_table(arguments: list[str]) -> int:
    """Print one of them."""
    if not arguments:
        raise ValueError(f"Name a table: s4 table {'|'.join((*tables.TABLES, forecast.NAME))}")
    chosen = tyro.cli(TableArguments, prog="s4 table", args=arguments)
    if chosen.name == forecast.NAME:
        found = forecast.forecast_rows(None if chosen.folder is None else summaries_in(chosen.folder))
        if chosen.markdown:
            print(forecast.forecast_markdown(found), end="")
        else:
            print_forecasts(found, console)
        return 0
    table = tables.find(chosen.name)
    look_up = recipes.summaries if chosen.folder is None else summaries_in(chosen.folder)
    if chosen.markdown:
        # As it is: no console may break its lines.
        print(tables.markdown(table, look_up), end="")
    else:
        print_table(table, look_up, console)
    return 0


def print_table(table: tables.PublishedTable, look_up: Summaries, console: Console) -> None:
    """All rows, in as many pieces as a narrow terminal needs, then what each of our numbers comes from."""
    ours = tables.our_rows(table, look_up)
    published = [[row.model, *row.cells] for row in table.rows]
    measured = [[f"S4, {preset}{MARK}", *cells(table, found)] for preset, found in ours.items()]
    header = ["model", *(column.title for column in table.columns)]
    console.print(f"[bold]{table.title}[/bold], {table.metric.label}")
    for piece in _pieces([header, *published, *measured], console.width):
        shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
        for index in piece:
            shown.add_column(header[index], justify="right" if index else "left", no_wrap=True)
        for row in published:
            shown.add_row(*(row[index] for index in piece), end_section=row is published[-1])
        for row in measured:
            shown.add_row(*(row[index] for index in piece), style="bold green")
        console.print(shown)
        console.print()
    note = table.note or "X: fails or cannot run."
    console.print(f"{MARK} measured here; all other rows as published. {note}\n")
    for column in table.columns:
        if column.recipe is None:
            continue
        found_here = [found[column.title] for found in ours.values() if column.title in found]
        if not found_here:
            console.print(f"{column.title}: {NOT_RUN} (s4 train {column.recipe})", markup=False)
        for one in found_here:
            console.print(_told(one), markup=False)
    console.print()


def print_forecasts(found: Sequence[forecast.ForecastRow], console: Console) -> None:
    """The settings of which something is known, in as many pieces as a narrow terminal needs."""
    header, lines = forecast.table_of(list(found))
    console.print(f"[bold]{forecast.TITLE}[/bold]")
    for piece in _pieces([header, *lines], console.width):
        shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
        for index in piece:
            shown.add_column(header[index], justify="right" if index else "left", no_wrap=True)
        for line in lines:
            shown.add_row(*(line[index] for index in piece))
        console.print(shown)
        console.print()
    console.print(forecast.note_of(list(found)), markup=False)


def _pieces(rows: Sequence[Sequence[str]], width: int) -> list[list[int]]:
    """Which columns fit side by side; the first one, with the models' names, leads every piece."""
    widths = [max(len(row[index]) for row in rows) + _GAP for index in range(len(rows[0]))]
    pieces, used = [[0]], widths[0] + _EDGE
    for index in range(1, len(widths)):
        if used + widths[index] > width and len(pieces[-1]) > 1:
            pieces.append([0])
            used = widths[0] + _EDGE
        pieces[-1].append(index)
        used += widths[index]
    return pieces


def _told(one: Measurement) -> str:
    differs = f" Differs: {one.recipe.differs}" if one.recipe.differs else ""
    return (
        f"{one.column.title}, {one.preset}: {one.figure}, {one.parameters:,} parameters, measured here on "
        f"{one.data}; {one.machine}, {one.minutes:,.0f} minutes, commit {one.commit}.{differs}"
    )
