"""Modules that map (B, L, H) to (B, L, H)."""

from torchs4.layers.block import S4Block, S4BlockConfig
from torchs4.layers.lssl import LSSL, LSSLConfig
from torchs4.layers.lstm import LSTM, LSTMConfig
from torchs4.layers.registry import LAYERS, Layer, LayerConfig, register_layer
from torchs4.layers.s4 import S4, S4Config
from torchs4.layers.s4d import S4D, S4DConfig
from torchs4.layers.ssm_layer import SSMConfig, SSMLayer
from torchs4.layers.transformer import Transformer, TransformerConfig

# isort: split
# Behind the others, so that a list of layers begins with S4.
from torchs4.layers import attention

__all__ = [
    "LAYERS",
    "LSSL",
    "LSTM",
    "S4",
    "S4D",
    "LSSLConfig",
    "LSTMConfig",
    "Layer",
    "LayerConfig",
    "S4Block",
    "S4BlockConfig",
    "S4Config",
    "S4DConfig",
    "SSMConfig",
    "SSMLayer",
    "Transformer",
    "TransformerConfig",
    "attention",
    "register_layer",
]
