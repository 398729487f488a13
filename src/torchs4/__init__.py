"""S4: structured state spaces for long sequences."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchs4 import data, estimators, inference, interop, ops, tasks
    from torchs4.layers import (
        LSSL,
        LSTM,
        S4,
        S4D,
        LSSLConfig,
        LSTMConfig,
        S4Block,
        S4BlockConfig,
        S4Config,
        S4DConfig,
        SSMConfig,
        Transformer,
        TransformerConfig,
        register_layer,
    )
    from torchs4.memory import keep_memory
    from torchs4.models import (
        Backbone,
        BlockStack,
        ForecastModel,
        ForecastModelConfig,
        Informer,
        InformerConfig,
        LanguageModel,
        LanguageModelConfig,
        PairModel,
        PairModelConfig,
        SequenceModel,
        SequenceModelConfig,
        UNetModel,
        UNetModelConfig,
        load_model,
    )
    from torchs4.training.parameter_groups import parameter_groups
    from torchs4.training.session import train

__version__ = "0.1.0"

__all__ = [
    "LSSL",
    "LSTM",
    "S4",
    "S4D",
    "Backbone",
    "BlockStack",
    "ForecastModel",
    "ForecastModelConfig",
    "Informer",
    "InformerConfig",
    "LSSLConfig",
    "LSTMConfig",
    "LanguageModel",
    "LanguageModelConfig",
    "PairModel",
    "PairModelConfig",
    "S4Block",
    "S4BlockConfig",
    "S4Config",
    "S4DConfig",
    "SSMConfig",
    "SequenceModel",
    "SequenceModelConfig",
    "Transformer",
    "TransformerConfig",
    "UNetModel",
    "UNetModelConfig",
    "data",
    "estimators",
    "inference",
    "interop",
    "keep_memory",
    "load_model",
    "ops",
    "parameter_groups",
    "register_layer",
    "tasks",
    "train",
]

# Where public names live. They are imported when they are first used: PyTorch takes seconds, `s4 --help`
# should not, and training needs packages that layers and models do not.
_HOMES = {
    "keep_memory": "torchs4.memory",
    "parameter_groups": "torchs4.training.parameter_groups",
    "train": "torchs4.training.session",
    **dict.fromkeys(
        ("data", "estimators", "hippo", "inference", "interop", "layers", "memory", "models", "ops"), ""
    ),
    **dict.fromkeys(("plots", "recipes", "ssm", "tables", "tasks", "training"), ""),
    **dict.fromkeys(
        ("Backbone", "BlockStack", "PairModel", "PairModelConfig", "SequenceModel", "SequenceModelConfig"),
        "torchs4.models",
    ),
    **dict.fromkeys(("ForecastModel", "ForecastModelConfig", "Informer", "InformerConfig"), "torchs4.models"),
    **dict.fromkeys(("UNetModel", "UNetModelConfig"), "torchs4.models"),
    **dict.fromkeys(("LanguageModel", "LanguageModelConfig"), "torchs4.models"),
    "load_model": "torchs4.models",
}


def __getattr__(name: str) -> Any:
    if name not in __all__ and name not in _HOMES:
        raise AttributeError(f"module 'torchs4' has no attribute {name!r}")
    home = _HOMES.get(name, "torchs4.layers")
    try:
        value = getattr(import_module(home), name) if home else import_module(f"torchs4.{name}")
    except ModuleNotFoundError as error:
        if name != "train":
            raise
        raise ImportError(
            f'Training needs {error.name}. Install it with: pip install "torchs4[train]"'
        ) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
