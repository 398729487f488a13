"""Forecasting: Table 9, with all fifty settings of the benchmark and baselines that were measured here."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from torchs4 import recipes
from torchs4.tables.measurements import MARK

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torchs4.tables.measurements import Summaries

NAME, TITLE = "forecast", "Forecasting (Table 9): mean squared / mean absolute error"
# Table 9 reports the longest horizon of each series, one column: errors of S4, then of Informer.
PUBLISHED: dict[str, dict[str, tuple[str, str]]] = {
    "forecast-etth1-720": {"S4": ("0.116", "0.271"), "Informer": ("0.269", "0.435")},
    "forecast-etth2-720": {"S4": ("0.187", "0.358"), "Informer": ("0.277", "0.431")},
    "forecast-ettm1-672": {"S4": ("0.292", "0.466"), "Informer": ("0.512", "0.644")},
    "forecast-weather-720": {"S4": ("0.245", "0.375"), "Informer": ("0.359", "0.466")},
    "forecast-ecl-960": {"S4": ("0.432", "0.497"), "Informer": ("0.582", "0.608")},
}
# What benchmarks/forecasting.py calls each model, and what it is called here.
MODELS = {
    "s4": "S4",
    "s4 of all seeds": "S4, seeds averaged",
    "linear": "linear map",
    "lstm": "LSTM",
    "informer": "Informer",
    "seasonal": "last day",
    "last value": "last value",
}


@dataclass(frozen=True)
class ForecastRow:
    """A setting: what was published, and what was measured here, by model; cells are text."""

    recipe: str
    title: str
    published: Mapping[str, str]
    measured: Mapping[str, str]


def forecast_rows(summaries: Summaries | None = None) -> list[ForecastRow]:
    """Every setting of the benchmark.

    summaries: where to look for runs of S4, before the measurements that come with torchs4.
    """
    kept = _kept()
    rows = []
    for recipe in recipes.RECIPES.values():
        if not recipe.family:
            continue
        measured = {
            title: _cell([model])
            for name, title in MODELS.items()
            if (model := kept.get(recipe.name, {}).get(name)) is not None
        }
        found = [] if summaries is None else list(summaries(recipe, "cpu"))
        if found:
            measured["S4"] = _cell([{"mse": one["test_mse"], "mae": one["test_mae"]} for one in found])
        published = {name: " / ".join(pair) for name, pair in PUBLISHED.get(recipe.name, {}).items()}
        rows.append(ForecastRow(recipe.name, recipe.title, published, measured))
    return rows


def forecast_markdown(rows: list[ForecastRow]) -> str:
    """The settings of which something is known, for documents."""
    header, lines = table_of(rows)
    parts = [f"### {TITLE}", _lines([header, ["---"] * len(header), *lines]), note_of(rows)]
    return "\n\n".join(parts) + "\n"


def table_of(rows: list[ForecastRow]) -> tuple[list[str], list[list[str]]]:
    """Names of the columns, and a line for each setting of which something is known."""
    titles = [title for title in MODELS.values() if any(title in row.measured for row in rows)]
    header = ["setting", "S4 published", "Informer published", *(f"{title}{MARK}" for title in titles)]
    lines = [
        [
            row.recipe.removeprefix("forecast-"),
            row.published.get("S4", ""),
            row.published.get("Informer", ""),
            *(row.measured.get(title, "") for title in titles),
        ]
        for row in rows
        if row.published or row.measured
    ]
    return header, lines


def note_of(rows: list[ForecastRow]) -> str:
    """What has to be known to read the table."""
    waiting = sum(not row.measured for row in rows)
    return (
        f"Columns with {MARK} were measured here (benchmarks/forecasting.py, means over seeds), all others "
        f"are as "
        f"published. Errors are in units of the training part's deviation. LSTM is the layer in the place "
        f"of S4 "
        f"in the same model; the linear map is in closed form, its penalty and history chosen on "
        f"validation rows. "
        f"{waiting} of {len(rows)} settings have not been run here: s4 train forecast-etth1-48, …"
    )


def _kept() -> dict[str, dict[str, Any]]:
    """The measurements that come with the package, by recipe and model."""
    path = files("torchs4.recipes") / "measured" / "forecasting.json"
    if not path.is_file():
        return {}
    kept: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["settings"]
    return kept


def _cell(results: list[dict[str, float]]) -> str:
    means = (statistics.fmean(one[name] for one in results) for name in ("mse", "mae"))
    return " / ".join(f"{mean:.3f}" for mean in means)


def _lines(rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
