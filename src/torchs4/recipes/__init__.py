"""Every classification experiment of the paper as a full configuration, by name and preset."""

from __future__ import annotations

import json
from difflib import get_close_matches
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from torchs4.recipes import images, long_range_arena, speech
from torchs4.recipes.recipe import PRESETS, Preset, Recipe

if TYPE_CHECKING:
    from torchs4.training.config import TrainingConfig

__all__ = ["PRESETS", "RECIPES", "Preset", "Recipe", "find", "measured_accuracies", "recipe_config"]

# The one table from names to configurations.
RECIPES: dict[str, Recipe] = {
    recipe.name: recipe for recipe in (*images.RECIPES, *long_range_arena.RECIPES, *speech.RECIPES)
}


def find(name: str) -> Recipe:
    """The recipe of that name."""
    if name in RECIPES:
        return RECIPES[name]
    close = get_close_matches(name.lower(), RECIPES, n=1, cutoff=0.4)
    suggestion = f" Did you mean {close[0]}?" if close else ""
    raise ValueError(f"There is no recipe {name!r}.{suggestion} There are: {', '.join(RECIPES)}.")


def recipe_config(name: str, preset: Preset = "cpu") -> TrainingConfig[Any]:
    """The whole configuration of a recipe's preset."""
    return find(name).config(preset)


def measured_accuracies() -> dict[tuple[str, str], float]:
    """Our own test accuracies, by recipe and preset, from the summaries that come with the package."""
    folder = files("torchs4.recipes") / "measured"
    found: dict[tuple[str, str], float] = {}
    if not folder.is_dir():
        return found
    for entry in folder.iterdir():
        if entry.name.endswith(".json"):
            name, preset = entry.name.removesuffix(".json").rsplit(".", 1)
            found[name, preset] = float(json.loads(entry.read_text(encoding="utf-8"))["test_accuracy"])
    return found
