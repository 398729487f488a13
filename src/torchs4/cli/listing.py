"""`s4 list`: the experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from torchs4 import recipes
from torchs4.cli.consoles import console
from torchs4.configuration import short_options
from torchs4.models import bundled_names

if TYPE_CHECKING:
    from torchs4.models import SequenceModelConfig


def list_recipes(arguments: list[str]) -> int:
    """A table of all recipes and their presets."""
    if arguments:
        raise ValueError(f"`s4 list` takes no arguments; it was given {' '.join(arguments)}.")
    names = ", ".join(bundled_names()) or "none yet"
    table = Table(
        title="s4 train NAME --preset PRESET",
        caption=f"Trained models that come with torchs4 (s4 evaluate NAME): {names}",
    )
    for column, justify in (
        ("name", "left"),
        ("task", "left"),
        ("length", "right"),
        ("data", "left"),
        ("preset", "left"),
        ("model", "left"),
        ("measure", "left"),
        ("published", "right"),
        ("measured", "right"),
    ):
        # Names are what people copy: they are never cut.
        table.add_column(column, justify=justify, no_wrap=column == "name")  # type: ignore[arg-type]
    for recipe in recipes.RECIPES.values():
        metric = recipe.metric
        for index, preset in enumerate(recipe.presets):
            ours, published = recipes.measured(recipe, preset), recipe.published.get(preset)
            table.add_row(
                recipe.name if index == 0 else "",
                recipe.title if index == 0 else "",
                f"{recipe.length:,}" if index == 0 else "",
                recipe.dataset if index == 0 else "",
                preset,
                _size(recipe.config(preset).model),
                metric.title if index == 0 else "",
                "" if published is None else metric.text(published),
                "" if ours is None else metric.show(ours),
            )
    console.print(table)
    return 0


def _size(model: SequenceModelConfig) -> str:
    """Depth, width and, where there is one, the state's size."""
    options = short_options(model)
    size = f"{model.num_layers} × {model.features}"
    return f"{size}, N {options['state_size'].value}" if "state_size" in options else size
