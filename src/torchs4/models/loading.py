"""Load whatever model a folder holds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from torchs4.models.backbone import Backbone
from torchs4.models.bundled import model_folder
from torchs4.models.forecast_model import ForecastModel
from torchs4.models.informer import Informer
from torchs4.models.language_model import LanguageModel
from torchs4.models.pair_model import PairModel
from torchs4.models.pretrained import CONFIG_FILE
from torchs4.models.sequence_model import SequenceModel
from torchs4.models.unet_model import UNetModel

if TYPE_CHECKING:
    from pathlib import Path

    from torchs4.models.building import Model

_KINDS = {
    cls.__name__: cls
    for cls in (SequenceModel, UNetModel, LanguageModel, Backbone, PairModel, ForecastModel, Informer)
}


def load_model(directory: str | Path) -> Model:
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
    model: Model = _KINDS.get(str(kind), SequenceModel).from_pretrained(directory)
    return model
