"""Load whatever model a folder holds."""

from __future__ import annotations

import json
from pathlib import Path

from torchs4.models.pair_model import PairModel
from torchs4.models.pretrained import CONFIG_FILE
from torchs4.models.sequence_model import SequenceModel

_KINDS = {cls.__name__: cls for cls in (SequenceModel, PairModel)}


def load_model(directory: str | Path) -> SequenceModel | PairModel:
    """The model that save_pretrained wrote there, of whichever kind, in evaluation mode."""
    path = Path(directory) / CONFIG_FILE
    kind = None
    if path.is_file():
        try:
            kind = json.loads(path.read_text(encoding="utf-8")).get("model")
        except (ValueError, AttributeError, RecursionError):
            kind = None
    # A missing or unreadable description is explained by the class itself.
    model: SequenceModel | PairModel = _KINDS.get(str(kind), SequenceModel).from_pretrained(directory)
    return model
