"""Our own numbers for a table's columns, and what has to be known to believe them."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchs4 import recipes
from torchs4.recipes import Preset, Recipe

if TYPE_CHECKING:
    from torchs4.tables.table import Column, PublishedTable

# The summaries of a recipe's runs with a preset, one for each seed.
Summaries = Callable[[Recipe, Preset], Sequence[dict[str, Any]]]
# Stands behind every number that was measured here.
MARK = "*"


@dataclass(frozen=True)
class Measurement:
    """What runs of a recipe came to in a column. values: in the metric's unit, one for each seed."""

    column: Column
    recipe: Recipe
    preset: Preset
    values: tuple[float, ...]
    summaries: tuple[dict[str, Any], ...]

    @property
    def mean(self) -> float:
        """Over the seeds."""
        return statistics.fmean(self.values)

    @property
    def cell(self) -> str:
        """The number as it stands in a table."""
        return f"{self.mean:.2f}{MARK}"

    @property
    def figure(self) -> str:
        """The number with its spread over seeds."""
        metric = self.recipe.metric
        unit = f" {metric.unit or metric.title}"
        if len(self.values) == 1:
            return f"{self.mean:.2f}{unit} (one seed)"
        return f"{self.mean:.2f} ± {statistics.stdev(self.values):.2f}{unit} ({len(self.values)} seeds)"

    @property
    def data(self) -> str:
        """The data, which of their options are not the usual ones, and how many examples there were."""
        data = self.recipe.config(self.preset).data
        options = [
            f"{field.name} {getattr(data, field.name)}"
            for field in dataclasses.fields(data)
            if getattr(data, field.name) != field.default
        ]
        chosen = f" ({', '.join(options)})" if options else ""
        first = self.summaries[0]
        counts = [
            f"{first[f'{kind}_examples']:,} {kind}"
            for kind in ("training", "test")
            if f"{kind}_examples" in first
        ]
        return f"{self.recipe.dataset}{chosen}: {', '.join(counts)} examples"

    @property
    def machine(self) -> str:
        """What it ran on."""
        machine = self.summaries[0]["machine"]
        accelerator = f", {machine['accelerator']}" if machine.get("accelerator") else ""
        return f"{machine['processor']}, {self.summaries[0]['threads']} threads{accelerator}"

    @property
    def minutes(self) -> float:
        """Of a run, on average over the seeds."""
        return statistics.fmean(summary["training_seconds"] for summary in self.summaries) / 60

    @property
    def commit(self) -> str:
        """Of the source that ran."""
        return str(self.summaries[0].get("commit") or "unknown")[:7]

    @property
    def parameters(self) -> int:
        """Of the model."""
        return int(self.summaries[0]["parameters"])


def our_rows(
    table: PublishedTable, summaries: Summaries | None = None
) -> dict[Preset, dict[str, Measurement]]:
    """What was measured here, by preset and title of the column; presets without any are left out.

    summaries: where to look for runs; by default those that come with the package.
    """
    look_up = recipes.summaries if summaries is None else summaries
    rows: dict[Preset, dict[str, Measurement]] = {}
    for preset in recipes.PRESETS:
        found = [_measurement(column, preset, look_up) for column in table.columns if column.recipe]
        if any(found):
            rows[preset] = {one.column.title: one for one in found if one is not None}
    return rows


def cells(table: PublishedTable, measured: dict[str, Measurement]) -> list[str]:
    """A row of ours as it stands in the table; an average only of all columns."""
    ours = [measured.get(column.title) for column in table.columns if column.recipe]
    average = ""
    if all(ours):
        average = f"{statistics.fmean(one.mean for one in ours if one is not None):.2f}{MARK}"
    texts = {title: one.cell for title, one in measured.items()}
    return [texts.get(column.title, "" if column.recipe else average) for column in table.columns]


def _measurement(column: Column, preset: Preset, look_up: Summaries) -> Measurement | None:
    recipe = recipes.find(column.recipe or "")
    key = f"test_{recipe.metric.name}"
    used = []
    values = []
    for summary in look_up(recipe, preset):
        source = summary if column.rate == 1 else summary.get("rates", {}).get(str(column.rate), {})
        if key in source:
            used.append(summary)
            values.append(recipe.metric.shown(float(source[key])))
    return Measurement(column, recipe, preset, tuple(values), tuple(used)) if used else None
