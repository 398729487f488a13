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
from torchs4.configuration import require_choice
from torchs4.recipes.runs import summaries_in
from torchs4.tables import efficiency, forecast, generation
from torchs4.tables.arena import ARENA, measured_arena
from torchs4.tables.markdown import NOT_RUN
from torchs4.tables.measurements import MARK, Measurement, Summaries, cells
from torchs4.tables.sheet import Sheet

# Between two columns, and around them all.
_GAP, _EDGE = 2, 2


@dataclass(frozen=True)
class TableArguments:
    """The rows of the paper's tables, and what was measured here. Without a name: which tables there are.

    Attributes:
        name: "lra" (Tables 4 and 10), "images" (6 and 12), "speech" (5), "density" (7), "forecast" (9),
            "efficiency-lssl" (2), "efficiency-transformers" (3) or "generation" (speeds of 7 and 8).
        folder: also take runs that `s4 reproduce` left in this folder, before those that come with torchs4.
        markdown: write it as Markdown, for documents.
        csv: write it as CSV, for spreadsheets.
    """

    name: tyro.conf.Positional[str]
    folder: Path | None = None
    markdown: bool = False
    csv: bool = False


TITLES = {
    **{table.name: table.title for table in tables.TABLES.values()},
    forecast.NAME: forecast.TITLE,
    **efficiency.TITLES,
    generation.NAME: generation.TITLE,
}
SHEETS = {**efficiency.SHEETS, generation.NAME: generation.generation_sheet}


def show_table(arguments: list[str]) -> int:
    """Print one of them, or which there are."""
    if not arguments:
        widest = max(map(len, TITLES))
        for name, title in TITLES.items():
            console.print(f"s4 table {name:<{widest}}  {title}", highlight=False, soft_wrap=True)
        return 0
    chosen = tyro.cli(TableArguments, prog="s4 table", args=arguments)
    require_choice("table", chosen.name, TITLES)
    if chosen.csv and chosen.markdown:
        raise ValueError("Both --csv and --markdown were given; choose one of them.")
    look_up = recipes.summaries if chosen.folder is None else summaries_in(chosen.folder)
    if chosen.name == forecast.NAME:
        found = forecast.forecast_rows(None if chosen.folder is None else look_up)
        markdown, sheet = forecast.forecast_markdown(found), _forecast_sheet(found)
    elif chosen.name in SHEETS:
        sheet = SHEETS[chosen.name]()
        markdown = sheet.as_markdown()
    else:
        table = tables.find(chosen.name)
        markdown, sheet = tables.markdown(table, look_up), _published_sheet(table, look_up)
    # As they are: no console may break their lines.
    if chosen.markdown:
        print(markdown, end="")
    elif chosen.csv:
        print(sheet.as_csv(), end="")
    else:
        print_sheet(sheet, console)
    return 0


def print_sheet(sheet: Sheet, console: Console) -> None:
    """All rows, in as many pieces as a narrow terminal needs, then what has to be known to read them."""
    console.print(f"[bold]{sheet.title}[/bold]")
    published = len(sheet.rows) - sheet.ours
    for piece in _pieces([sheet.header, *sheet.rows], console.width):
        shown = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
        for index in piece:
            shown.add_column(sheet.header[index], justify="right" if index else "left", no_wrap=True)
        for number, row in enumerate(sheet.rows):
            style = "bold green" if number >= published else None
            shown.add_row(*(row[index] for index in piece), end_section=number == published - 1, style=style)
        console.print(shown)
        console.print()
    for note in sheet.notes:
        console.print(note, markup=False)
    console.print()


def print_table(table: tables.PublishedTable, look_up: Summaries, console: Console) -> None:
    """A table of accuracies, and what each of our numbers comes from."""
    print_sheet(_published_sheet(table, look_up), console)


def print_forecasts(found: Sequence[forecast.ForecastRow], console: Console) -> None:
    """The settings of which something is known."""
    print_sheet(_forecast_sheet(found), console)


def _published_sheet(table: tables.PublishedTable, look_up: Summaries) -> Sheet:
    ours = tables.our_rows(table, look_up)
    published = [(row.model, *row.cells) for row in table.rows]
    measured = [(f"S4, {preset}{MARK}", *cells(table, found)) for preset, found in ours.items()]
    note = table.note or "X: fails or cannot run."
    notes = [f"{MARK} measured here; all other rows as published. {note}\n"]
    arena = measured_arena() if table.name == ARENA else None
    if arena is not None:
        measured += [tuple(row) for row in arena.rows(table)]
        notes.append(f"{arena.note}\n")
    for column in table.columns:
        if column.recipe is None:
            continue
        found_here = [found[column.title] for found in ours.values() if column.title in found]
        if not found_here:
            notes.append(f"{column.title}: {NOT_RUN} (s4 train {column.recipe})")
        notes += map(_told, found_here)
    header = ("model", *(column.title for column in table.columns))
    title = f"{table.title}, {table.metric.label}"
    return Sheet(title, header, (*published, *measured), len(measured), tuple(notes))


def _forecast_sheet(found: Sequence[forecast.ForecastRow]) -> Sheet:
    header, lines = forecast.table_of(list(found))
    note = forecast.note_of(list(found))
    return Sheet(forecast.TITLE, tuple(header), tuple(map(tuple, lines)), 0, (note,))


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
