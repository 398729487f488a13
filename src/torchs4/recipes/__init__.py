"""Every experiment as a full configuration, by name and preset."""

from __future__ import annotations

import json
from difflib import get_close_matches
from fnmatch import fnmatch
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from torchs4.recipes import density, forecasting, images, language, long_range_arena, speech
from torchs4.recipes.recipe import PRESETS, Preset, Recipe, network

if TYPE_CHECKING:
    from torchs4.training.config import TrainingConfig

__all__ = [
    "PRESETS",
    "RECIPES",
    "Preset",
    "Recipe",
    "find",
    "measured",
    "network",
    "recipe_config",
    "representatives",
    "summaries",
]

# The one table from names to configurations.
RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for module in (images, density, long_range_arena, speech, forecasting, language)
    for recipe in module.RECIPES
}


def find(name: str) -> Recipe:
    """The recipe of that name."""
    if name in RECIPES:
        return RECIPES[name]
    close = get_close_matches(name.lower(), RECIPES, n=1, cutoff=0.4)
    suggestion = f" Did you mean {close[0]}?" if close else ""
    raise ValueError(f"There is no recipe {name!r}.{suggestion} There are: {', '.join(RECIPES)}.")


def representatives() -> list[Recipe]:
    """Every recipe that stands alone, and of each family the one that a number was published for."""
    families = {recipe.family for recipe in RECIPES.values() if recipe.family}
    chosen = {family: _of_family(family)[0] for family in families}
    return [recipe for recipe in RECIPES.values() if recipe is chosen.get(recipe.family, recipe)]


def _of_family(family: str) -> list[Recipe]:
    members = [recipe for recipe in RECIPES.values() if recipe.family == family]
    return sorted(members, key=lambda recipe: not recipe.published)


def recipe_config(name: str, preset: Preset = "cpu") -> TrainingConfig[Any]:
    """The whole configuration of a recipe's preset."""
    return find(name).config(preset)


def measured(recipe: Recipe, preset: Preset) -> float | None:
    """Our own result on test data, from the summary that comes with the package; None if there is none."""
    found = summaries(recipe, preset)
    return float(found[0][f"test_{recipe.metric.name}"]) if found else None


def summaries(recipe: Recipe, preset: Preset) -> list[dict[str, Any]]:
    """The summaries of our own runs that come with the package: the first seed's, then those of others."""
    stem, folder = f"{recipe.name}.{preset}", files("torchs4.recipes") / "measured"
    if not folder.is_dir():
        return []
    entries = {entry.name: entry for entry in folder.iterdir()}
    names = [f"{stem}.json", *sorted(name for name in entries if fnmatch(name, f"{stem}.seed*.json"))]
    return [json.loads(entries[name].read_text(encoding="utf-8")) for name in names if name in entries]
