"""Whole networks."""

from torchs4.models.adaptive import AdaptiveTable
from torchs4.models.backbone import Backbone
from torchs4.models.building import Model, ModelConfig, build_model
from torchs4.models.bundled import bundled_names
from torchs4.models.feed_forward_stack import FeedForwardStack
from torchs4.models.forecast_model import ForecastModel, ForecastModelConfig
from torchs4.models.informer import Informer, InformerConfig
from torchs4.models.language_model import LanguageModel, LanguageModelConfig
from torchs4.models.loading import load_model
from torchs4.models.pair_model import PairModel, PairModelConfig
from torchs4.models.sequence_model import SequenceModel, SequenceModelConfig
from torchs4.models.stack import BlockStack
from torchs4.models.unet import UNet
from torchs4.models.unet_model import UNetModel, UNetModelConfig

__all__ = [
    "AdaptiveTable",
    "Backbone",
    "BlockStack",
    "FeedForwardStack",
    "ForecastModel",
    "ForecastModelConfig",
    "Informer",
    "InformerConfig",
    "LanguageModel",
    "LanguageModelConfig",
    "Model",
    "ModelConfig",
    "PairModel",
    "PairModelConfig",
    "SequenceModel",
    "SequenceModelConfig",
    "UNet",
    "UNetModel",
    "UNetModelConfig",
    "build_model",
    "bundled_names",
    "load_model",
]
