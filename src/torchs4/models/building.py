"""A network for data: options are a person's choice, both ends follow from what is given and asked."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, NoReturn

from torchs4.models.forecast_model import ForecastModel, ForecastModelConfig
from torchs4.models.informer import Informer, InformerConfig
from torchs4.models.language_model import LanguageModel, LanguageModelConfig
from torchs4.models.pair_model import PairModel, PairModelConfig
from torchs4.models.sequence_model import SequenceModel, SequenceModelConfig
from torchs4.models.unet_model import UNetModel, UNetModelConfig

if TYPE_CHECKING:
    from torchs4.description import InputDescription, OutputDescription
    from torchs4.layers.block import S4BlockConfig

# Whatever can be trained, and what describes it.
Model = SequenceModel | UNetModel | LanguageModel | PairModel | ForecastModel | Informer
ModelConfig = (
    SequenceModelConfig
    | UNetModelConfig
    | LanguageModelConfig
    | PairModelConfig
    | ForecastModelConfig
    | InformerConfig
)


def build_model(config: ModelConfig, given: InputDescription, asked: OutputDescription) -> Model:
    """A model with these options that reads such inputs and gives such answers."""
    ends: dict[str, Any] = {
        "output_size": asked.size,
        "input_features": given.size if given.kind == "values" else 1,
        "names": asked.names,
        "input_names": given.names,
        "input_scaling": given.scaling,
        "output_scaling": asked.scaling,
    }
    if isinstance(config, InformerConfig | ForecastModelConfig):
        return _build_forecaster(config, ends, given, asked)
    if isinstance(config, LanguageModelConfig):
        _require_text(given, asked)
    ends["vocabulary_size"] = given.size if given.kind == "tokens" else None
    ends["sample_rate"] = given.sample_rate
    if asked.per_position:
        ends["pooling"] = "none"
    elif config.pooling == "none":
        raise ValueError(
            "pooling is 'none', but one answer for each sequence is asked for: choose 'mean' or 'last'."
        )
    if isinstance(config, UNetModelConfig):
        ends |= {"image": given.image, "channels": given.channels, "mixtures": asked.mixtures}
    ends["block"] = _as_long_as(config.block, given.length)
    if isinstance(config, UNetModelConfig | LanguageModelConfig) and given.documents == 2:
        raise ValueError(
            f"{type(config).__name__} describes a model of one sequence, these data have two. Choose "
            f"SequenceModelConfig(…)."
        )
    fitted = dataclasses.replace(config, **ends)
    if given.documents == 2:
        fields = {field.name: getattr(fitted, field.name) for field in dataclasses.fields(fitted)}
        return PairModel(PairModelConfig(**fields))
    model: SequenceModel
    match fitted:
        case UNetModelConfig():
            model = UNetModel(fitted)
        case LanguageModelConfig():
            model = LanguageModel(fitted)
        case _:
            model = SequenceModel(fitted)
    if asked.causal and not model.causal:
        _refuse_the_future(fitted.block.layer)
    return model


def _refuse_the_future(layer: Any) -> NoReturn:
    if hasattr(layer, "bidirectional"):
        # A layer that cannot do otherwise says so, and which ones can.
        dataclasses.replace(layer, bidirectional=False)
    raise ValueError(
        "The model sees the future (bidirectional is True), where it would find the answers: this task "
        "asks at each position for what comes next. Set bidirectional to False."
    )


def _as_long_as(block: S4BlockConfig, length: int) -> S4BlockConfig:
    """A layer that has weights for each position gets as many as the longest input has, unless told."""
    layer: Any = block.layer
    if getattr(layer, "max_length", length) is not None:
        return block
    return dataclasses.replace(block, layer=dataclasses.replace(layer, max_length=length))


def _require_text(given: InputDescription, asked: OutputDescription) -> None:
    if given.kind != "tokens" or not asked.causal or asked.size != given.size:
        raise ValueError(
            "LanguageModelConfig describes a model that reads tokens and predicts the next one, but these "
            "data ask for something else. Choose SequenceModelConfig(…)."
        )


def _build_forecaster(
    config: InformerConfig | ForecastModelConfig,
    ends: dict[str, Any],
    given: InputDescription,
    asked: OutputDescription,
) -> ForecastModel | Informer:
    if not asked.horizon:
        raise ValueError(
            f"{type(config).__name__} describes a model for forecasts, but these data ask for something "
            f"else. "
            f"Choose SequenceModelConfig(…)."
        )
    ends |= {"horizon": asked.horizon, "history": given.length - asked.horizon}
    if isinstance(config, InformerConfig):
        return Informer(dataclasses.replace(config, **ends))
    if not asked.continues:
        raise ValueError(
            "A ForecastModel goes on with columns that it reads, but not all that are predicted are read: "
            "name "
            "them among the columns, too."
        )
    ends |= {"continues": asked.continues, "sample_rate": given.sample_rate}
    return ForecastModel(dataclasses.replace(config, **ends))
