"""S4: structured state spaces for long sequences."""

from torchs4 import interop, ops
from torchs4.layers import (
    LSSL,
    S4,
    S4D,
    LSSLConfig,
    S4Block,
    S4BlockConfig,
    S4Config,
    S4DConfig,
    SSMConfig,
)
from torchs4.memory import keep_memory
from torchs4.models import BlockStack, SequenceModel, SequenceModelConfig
from torchs4.training import parameter_groups

__version__ = "0.1.0"

__all__ = [
    "LSSL",
    "S4",
    "S4D",
    "BlockStack",
    "LSSLConfig",
    "S4Block",
    "S4BlockConfig",
    "S4Config",
    "S4DConfig",
    "SSMConfig",
    "SequenceModel",
    "SequenceModelConfig",
    "interop",
    "keep_memory",
    "ops",
    "parameter_groups",
]
