"""Recipes that train in a second, for tests of queues; `s4 … --import tiny_recipes` registers them."""

import os
from pathlib import Path

from torchs4 import recipes
from torchs4.data import TextFile
from torchs4.recipes.recipe import Recipe, network
from torchs4.tasks import NextToken
from torchs4.training.config import BudgetOptions, OptimizerOptions, TrainingConfig


def tiny_recipe(name: str, text: Path, epochs: int = 2) -> Recipe:
    """Predicts the next character of a text file; one that is not there makes it fail."""
    return Recipe(
        name=name,
        title="a tiny text",
        length=16,
        dataset="(bundled)",
        metric=NextToken(1, unit="character").metrics[0],
        presets={
            "cpu": lambda: TrainingConfig(
                data=TextFile(str(text), length=16),
                model=network(layers=1, features=4, state_size=4, dropout=0.1),
                optim=OptimizerOptions(batch_size=8),
                budget=BudgetOptions(epochs=epochs),
            )
        },
    )


def write_text(folder: Path) -> Path:
    path = folder / "book.txt"
    path.write_text("the quick brown fox jumps over the lazy dog. " * 60)
    return path


if "TINY_TEXT" in os.environ:
    for name in ("tiny", "small"):
        recipes.RECIPES[name] = tiny_recipe(name, Path(os.environ["TINY_TEXT"]), epochs=20)
    recipes.RECIPES["missing"] = tiny_recipe("missing", Path("nowhere.txt"))
