"""The trained model that a command works with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchs4.cli.consoles import errors
from torchs4.models import SequenceModel
from torchs4.models.bundled import bundled_names, bundled_run
from torchs4.training.display import Display
from torchs4.training.finish import load_best
from torchs4.training.run_folder import RunFolder

if TYPE_CHECKING:
    from pathlib import Path


def named_run(place: Path) -> RunFolder:
    """A run's folder, or that of a model that comes with torchs4."""
    if place.is_dir():
        if place.name in ("best", "last") and RunFolder(place.parent).is_begun():
            raise ValueError(f"{place} is a part of a run. Pass the whole run: {place.parent}")
        return RunFolder(place)
    bundled = bundled_run(place)
    if bundled is None:
        raise ValueError(
            f"{place} is not a run: there is no such folder. Pass a folder of `s4 train`, or the name of a "
            f"model that comes with torchs4: {', '.join(bundled_names())}."
        )
    return RunFolder(bundled)


def best_model(folder: RunFolder) -> SequenceModel:
    """The best model of a run, if it reads one sequence."""
    folder.config()
    # What a command says about the model must not mix with what the model says.
    with Display(errors, quiet=False) as display:
        model = load_best(folder, display)
    if not isinstance(model, SequenceModel):
        raise ValueError(
            f"{folder.path} holds a {type(model).__name__}. Two texts that are compared, and the history of "
            f"a forecast, have to be there as a whole: it cannot stream."
        )
    return model
