"""The trained model that a command works with."""

from __future__ import annotations

from torchs4.cli.consoles import errors
from torchs4.models import SequenceModel
from torchs4.training.display import Display
from torchs4.training.finish import load_best
from torchs4.training.run_folder import RunFolder


def best_model(folder: RunFolder) -> SequenceModel:
    """The best model of a run, if it reads one sequence."""
    folder.config()
    # What a command says about the model must not mix with what the model says.
    with Display(errors, quiet=False) as display:
        model = load_best(folder, display)
    if not isinstance(model, SequenceModel):
        raise ValueError(
            f"{folder.path} compares two texts, which have to be there as a whole: it cannot stream."
        )
    return model
