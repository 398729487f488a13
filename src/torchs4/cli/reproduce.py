"""`s4 reproduce`: one experiment after the other, then the tables."""

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.markup import escape
from rich.table import Table

from torchs4 import tables
from torchs4.cli.consoles import console
from torchs4.cli.interrupts import INTERRUPTED
from torchs4.cli.table import print_table
from torchs4.recipes.queue import QueueResult, work_through
from torchs4.recipes.runs import RecipeRun, runs_of, status, summaries_in

# The quick ones first, so that a night that ends early has something to show.
EVERYTHING = (
    "sc10-mfcc",
    "smnist",
    "pmnist",
    "lra-text",
    "lra-listops",
    "lra-image",
    "sc10-raw",
    "scifar",
    "lra-pathfinder",
)

_UNITS = {"h": 3600, "m": 60, "s": 1}


@dataclass(frozen=True)
class ReproduceArguments:
    """Train experiments one after the other; what is finished is skipped, what was interrupted goes on.

    Several of these commands may share a list: what another one is training is left to it. With
    OMP_NUM_THREADS=1 each keeps to one core.

    Attributes:
        names: NAME or NAME:PRESET, as in `s4 list`; the preset is cpu if none is named. By default all
            of the paper's that two cores can train.
        seeds: train each with each of these.
        stop_after: stop after about so long, such as 2h, 90m or 1h30m; the same command goes on later.
        folder: where the runs are kept.
        data_dir: where datasets lie; by default $TORCHS4_DATA, else the user's cache folder.
        checkpoint_seconds: how often to save between epochs.
    """

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    seeds: tuple[int, ...] = (0,)
    stop_after: str | None = None
    folder: Path = Path("runs/reproduce")
    data_dir: Path | None = None
    checkpoint_seconds: float = 120.0


def reproduce(arguments: list[str]) -> int:
    """Work through the list; the exit code is 1 if something failed."""
    chosen = tyro.cli(ReproduceArguments, prog="s4 reproduce", args=arguments)
    runs = runs_of(chosen.names or EVERYTHING, chosen.seeds)
    stop_at = math.inf if chosen.stop_after is None else time.monotonic() + seconds_of(chosen.stop_after)
    _overview(runs, chosen.folder)
    result = work_through(
        runs,
        chosen.folder,
        tell=lambda text: console.print(text, soft_wrap=True, markup=False, style="bold"),
        stop_at=stop_at,
        data_dir=chosen.data_dir,
        checkpoint_seconds=chosen.checkpoint_seconds,
        console=console,
    )
    _overview(runs, chosen.folder, result)
    for table in _tables_of(runs):
        print_table(table, summaries_in(chosen.folder), console)
    if result.failures:
        return 1
    if result.is_complete:
        return 0
    console.print("Stopped. The same command goes on.")
    return 0 if time.monotonic() >= stop_at else INTERRUPTED


def seconds_of(text: str) -> float:
    """How long 2h, 90m, 45s or 1h30m is."""
    match = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text)
    if match is None or not any(match.groups()):
        raise ValueError(f"--stop-after is {text!r}; write it like 2h, 90m, 45s or 1h30m.")
    return sum(
        float(number) * unit
        for number, unit in zip(match.groups(), _UNITS.values(), strict=True)
        if number is not None
    )


def _overview(runs: Sequence[RecipeRun], folder: Path, result: QueueResult | None = None) -> None:
    """What is done and what is left, with times."""
    failed = {} if result is None else {run.folder_name: reason for run, reason in result.failures}
    elsewhere = set() if result is None else {run.folder_name for run in result.elsewhere}
    table = Table(title=f"runs in {escape(str(folder))}")
    for column in ("run", "state", "trained", "left", "result"):
        table.add_column(column, justify="right" if column in ("trained", "left") else "left")
    left, unknown = 0.0, 0
    for run in runs:
        now = status(run, folder)
        reason = failed.get(run.folder_name)
        # Whoever trains it may be done by now.
        is_elsewhere = run.folder_name in elsewhere and now.state != "finished"
        if now.seconds_left is None:
            unknown += 1
        else:
            left += now.seconds_left
        table.add_row(
            escape(run.title),
            "failed" if reason else "elsewhere" if is_elsewhere else now.state,
            _duration(now.seconds) if now.seconds else "",
            "" if now.state == "finished" else _about(now.seconds_left),
            escape(reason or now.result),
        )
    console.print(table)
    unknown_part = f", and {unknown} of which nothing is known yet" if unknown else ""
    console.print(f"Left to train: about {_duration(left)}{unknown_part}.")


def _about(seconds: float | None) -> str:
    return "?" if seconds is None else f"about {_duration(seconds)}"


def _duration(seconds: float) -> str:
    hours, minutes = divmod(math.ceil(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"


def _tables_of(runs: Sequence[RecipeRun]) -> list[tables.PublishedTable]:
    names = {run.recipe.name for run in runs}
    return [table for table in tables.TABLES.values() if names & {column.recipe for column in table.columns}]
