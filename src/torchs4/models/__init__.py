"""Whole networks."""

from torchs4.models.sequence_model import SequenceModel, SequenceModelConfig
from torchs4.models.stack import BlockStack

__all__ = ["BlockStack", "SequenceModel", "SequenceModelConfig"]
