"""`s4 data list` and `s4 data get`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from torchs4.cli.consoles import console
from torchs4.data import catalogue, data_folder


@dataclass(frozen=True)
class DataListArguments:
    """Which datasets there are.

    Attributes:
        data_dir: where datasets lie; by default $TORCHS4_DATA, else the user's cache folder.
    """

    data_dir: Path | None = None


@dataclass(frozen=True)
class DataGetArguments:
    """Download a dataset, check it and unpack it. An interrupted download continues where it stopped.

    Attributes:
        name: as in `s4 data list`.
        again: fetch it even if it is there, to replace damaged files.
        data_dir: where datasets lie; by default $TORCHS4_DATA, else the user's cache folder.
    """

    name: tyro.conf.Positional[str]
    again: bool = False
    data_dir: Path | None = None


def list_data(arguments: list[str]) -> int:
    """Which datasets there are, and which are here."""
    chosen = tyro.cli(DataListArguments, prog="s4 data list", args=arguments)
    folder = data_folder(chosen.data_dir)
    table = Table(title=f"datasets in {folder}", caption="Get one with: s4 data get NAME")
    for column in ("name", "what", "here", "MB to fetch", "licence"):
        table.add_column(column, justify="right" if "MB" in column else "left")
    for status in catalogue.status(folder):
        here = f"{status.size_on_disk / 1e6:,.0f} MB" if status.present else "no"
        source = status.source
        size = "generated" if source.generated else "by hand" if source.page else f"{source.size_mb:,}"
        table.add_row(status.source.name, status.source.title, here, size, status.source.licence)
    console.print(table)
    return 0


def get_data(arguments: list[str]) -> int:
    """Download one."""
    chosen = tyro.cli(DataGetArguments, prog="s4 data get", args=arguments)
    folder = data_folder(chosen.data_dir)
    source = catalogue.find(chosen.name)
    if catalogue.is_present(source, folder) and not chosen.again:
        console.print(f"{chosen.name} is in {folder} already. --again fetches it anew.")
        return 0
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        tasks: dict[str, Any] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total or None)
            progress.update(tasks[what], completed=done, total=total or None)

        catalogue.get(chosen.name, folder, show, again=chosen.again)
    console.print(f"{chosen.name} is in {folder}. {source.note}")
    return 0
