"""What a recipe is: a task, what was published on it, and a configuration for each preset."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from torchs4.configuration import with_options
from torchs4.models import SequenceModelConfig
from torchs4.tasks import ACCURACY, Metric

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torchs4.training.config import TrainingConfig

Preset = Literal["paper", "paper-large", "modern", "cpu"]
PRESETS: tuple[Preset, ...] = get_args(Preset)


@dataclass(frozen=True)
class Recipe:
    """One task of the paper.

    length: positions per input.
    dataset: the name of its data in `s4 data list`.
    metric: what results are compared by.
    published: what the paper reports, by preset, in the metric's unit.
    differs: what is not as in the paper.
    presets: a function for each preset that returns the configuration.
    family: what recipes share that differ in little more than a number; lists show the first of them.
    """

    name: str
    title: str
    length: int
    dataset: str
    presets: Mapping[Preset, Callable[[], TrainingConfig[Any]]]
    metric: Metric = ACCURACY
    published: Mapping[Preset, float] = field(default_factory=dict)
    differs: str = ""
    family: str = ""

    def config(self, preset: Preset) -> TrainingConfig[Any]:
        """The whole configuration of a preset."""
        if preset not in self.presets:
            raise ValueError(
                f"{self.name} has no preset {preset!r}; it has {', '.join(map(repr, self.presets))}."
            )
        return self.presets[preset]()


def network(**options: Any) -> SequenceModelConfig:
    """A network with these options, wherever they belong: `network(layers=4, norm="batch")`."""
    return with_options(SequenceModelConfig(), **options)
