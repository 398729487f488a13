"""Load whatever model a folder holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from torchs4.models.backbone import Backbone
from torchs4.models.bundled import model_folder
from torchs4.models.pair_model import PairModel
from torchs4.models.pretrained import CONFIG_FILE
from torchs4.models.sequence_model import SequenceModel

if TYPE_CHECKING:
    from pathlib import Path

_KINDS = {cls.__name__: cls for cls in (SequenceModel, Backbone, PairModel)}


def load_model(directory: str | Path) -> SequenceModel | PairModel:
    """The model that save_pretrained wrote there, or a bundled one by its name, in evaluation mode."""
    directory = model_folder(directory)
    path = directory / CONFIG_FILE
    kind = None
    if path.is_file():
        try:
            kind = json.loads(path.read_text(encoding="utf-8")).get("model")
        except (ValueError, AttributeError, RecursionError):
            kind = None
    # A missing or unreadable description is explained by the class itself.
    model: SequenceModel | PairModel = _KINDS.get(str(kind), SequenceModel).from_pretrained(directory)
    return model
