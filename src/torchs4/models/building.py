"""A network for data: options are a person's choice, both ends follow from what is given and asked."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from torchs4.models.pair_model import PairModel, PairModelConfig
from torchs4.models.sequence_model import SequenceModel, SequenceModelConfig

if TYPE_CHECKING:
    from torchs4.description import InputDescription, OutputDescription


def build_model(
    config: SequenceModelConfig, given: InputDescription, asked: OutputDescription
) -> SequenceModel | PairModel:
    """A model with these options that reads such inputs and gives such answers."""
    ends: dict[str, Any] = {
        "output_size": asked.size,
        "vocabulary_size": given.size if given.kind == "tokens" else None,
        "input_features": given.size if given.kind == "values" else 1,
        "names": asked.names,
        "input_names": given.names,
        "sample_rate": given.sample_rate,
        "input_scaling": given.scaling,
        "output_scaling": asked.scaling,
    }
    if asked.per_position:
        ends["pooling"] = "none"
    elif config.pooling == "none":
        raise ValueError(
            "pooling is 'none', but one answer for each sequence is asked for: choose 'mean' or 'last'."
        )
    fitted = dataclasses.replace(config, **ends)
    if given.documents == 2:
        fields = {field.name: getattr(fitted, field.name) for field in dataclasses.fields(fitted)}
        return PairModel(PairModelConfig(**fields))
    model = SequenceModel(fitted)
    if asked.causal and not model.causal:
        raise ValueError(
            "The model sees the future (bidirectional is True), where it would find the answers: this task "
            "asks at each position for what comes next. Set bidirectional to False."
        )
    return model
