"""`s4 list`: the experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from rich.table import Table

from torchs4 import recipes
from torchs4.cli.consoles import console
from torchs4.configuration import short_options
from torchs4.models import bundled_names

if TYPE_CHECKING:
    from torchs4.models import ModelConfig

_COLUMNS: dict[str, Literal["left", "right"]] = {
    "name": "left",
    "task": "left",
    "length": "right",
    "data": "left",
    "preset": "left",
    "model": "left",
    "measure": "left",
    "published": "right",
    "measured": "right",
}
# Where there is no room for everything, what `s4 train NAME --help` tells as well.
_DETAILS, _WIDE = ("task", "data", "measure"), 120


def list_recipes(arguments: list[str]) -> int:
    """A table of all recipes and their presets."""
    if arguments in (["-h"], ["--help"]):
        console.print("`s4 list` shows every experiment and preset, with published and measured results.")
        return 0
    if arguments:
        raise ValueError(f"`s4 list` takes no arguments; it was given {' '.join(arguments)}.")
    names = ", ".join(bundled_names()) or "none yet"
    table = Table(
        title="s4 train NAME --preset PRESET",
        caption=f"Trained models that come with torchs4 (s4 evaluate NAME): {names}\n"
        "Forecasts have other horizons, and -multivariate for all columns: s4 table forecast",
    )
    columns = {
        name: justify for name, justify in _COLUMNS.items() if console.width >= _WIDE or name not in _DETAILS
    }
    for name, justify in columns.items():
        # Names are what people copy: they are never cut.
        table.add_column(name, justify=justify, no_wrap=name == "name")
    for recipe in recipes.representatives():
        metric = recipe.metric
        for index, preset in enumerate(recipe.presets):
            ours, published = recipes.measured(recipe, preset), recipe.published.get(preset)
            once = {
                "name": recipe.name,
                "task": recipe.title,
                "length": f"{recipe.length:,}",
                "data": recipe.dataset,
                "measure": metric.title,
            }
            cells = {
                **(once if index == 0 else {}),
                "preset": preset,
                "model": _size(recipe.config(preset).model),
                "published": "" if published is None else metric.text(published),
                "measured": "" if ours is None else metric.show(ours),
            }
            table.add_row(*(cells.get(name, "") for name in columns))
    console.print(table)
    return 0


def _size(model: ModelConfig) -> str:
    """Depth, width and, where there is one, the state's size."""
    options = short_options(model)
    layers = options["layers" if "layers" in options else "encoder_layers"].value
    size = f"{layers} × {model.features}"
    return f"{size}, N {options['state_size'].value}" if "state_size" in options else size
