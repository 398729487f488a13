"""Runs of recipes: which there are to do, and where each of them is kept."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from torchs4 import recipes
from torchs4.training.run_folder import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from torchs4.recipes.recipe import Preset, Recipe
    from torchs4.training.config import TrainingConfig

State = Literal["finished", "interrupted", "waiting"]


@dataclass(frozen=True)
class RecipeRun:
    """One training: a recipe, a preset, a seed."""

    recipe: Recipe
    preset: Preset
    seed: int = 0

    @property
    def title(self) -> str:
        """For people."""
        seed = f", seed {self.seed}" if self.seed else ""
        return f"{self.recipe.name} ({self.preset}{seed})"

    @property
    def folder_name(self) -> str:
        """Of its folder, below the one of all runs."""
        seed = f"-seed{self.seed}" if self.seed else ""
        return f"{self.recipe.name}-{self.preset}{seed}"

    def config(self) -> TrainingConfig[Any]:
        """The whole configuration."""
        return dataclasses.replace(self.recipe.config(self.preset), seed=self.seed)


@dataclass(frozen=True)
class Status:
    """How a run stands. seconds: of training so far. seconds_left: if anything is known about that."""

    run: RecipeRun
    state: State
    seconds: float = 0.0
    seconds_left: float | None = 0.0
    result: str = ""


def runs_of(names: Iterable[str], seeds: Sequence[int]) -> list[RecipeRun]:
    """The runs that NAME or NAME:PRESET ask for, seed after seed; the preset is `cpu` if none is named."""
    found = []
    for name in names:
        plain, _, preset = name.partition(":")
        recipe = recipes.find(plain)
        chosen: Any = preset or "cpu"
        recipe.config(chosen)
        found += [RecipeRun(recipe, chosen, seed) for seed in seeds]
    # Asked for twice is trained once.
    return list({run.folder_name: run for run in found}.values())


def status(run: RecipeRun, parent: Path) -> Status:
    """How a run in its folder stands, from the folder alone."""
    try:
        return _read_status(run, RunFolder(parent / run.folder_name))
    except ValueError as error:
        # Whoever continues it gets the same error; a list of runs should show the others too.
        return Status(run, "interrupted", 0.0, None, str(error))


def _read_status(run: RecipeRun, folder: RunFolder) -> Status:
    summary, metric = folder.summary(), run.recipe.metric
    if summary is not None:
        tested = summary.get(f"test_{metric.name}")
        result = "" if tested is None else metric.tell(tested)
        return Status(run, "finished", summary["training_seconds"], 0.0, result)
    known = [summary["training_seconds"] for summary in recipes.summaries(run.recipe, run.preset)]
    whole = sum(known) / len(known) if known else None
    records = folder.metrics()
    if not records:
        return Status(run, "interrupted" if folder.is_begun() else "waiting", 0.0, whole)
    last = records[-1]
    # What this machine has shown is worth more than what another one took.
    epochs = [record for record in records if record["epoch"] < last["epoch"]]
    if epochs:
        whole = epochs[-1]["seconds"] / epochs[-1]["epoch"] * folder.config().budget.epochs
    left = None if whole is None else max(whole - last["seconds"], 0.0)
    result = f"validation {metric.tell(last[f'validation_{metric.name}'])} at step {last['step']:,}"
    return Status(run, "interrupted", last["seconds"], left, result)


def summaries_in(parent: Path) -> Callable[[Recipe, Preset], list[dict[str, Any]]]:
    """Summaries of the finished runs below a folder; where there are none, those that come with torchs4."""

    def look_up(recipe: Recipe, preset: Preset) -> list[dict[str, Any]]:
        stem = RecipeRun(recipe, preset).folder_name
        paths = [parent / stem, *sorted(parent.glob(f"{stem}-seed*"))]
        found = [RunFolder(path).summary() for path in paths]
        return [summary for summary in found if summary is not None] or recipes.summaries(recipe, preset)

    return look_up
