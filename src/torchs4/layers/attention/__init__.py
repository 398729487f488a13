"""The attentions that the Long Range Arena compares, beside the softmax attention of `Transformer`."""

from torchs4.layers.attention.attention_layer import AttentionLayer
from torchs4.layers.attention.bigbird import BigBird, BigBirdConfig
from torchs4.layers.attention.fnet import FNet, FNetConfig
from torchs4.layers.attention.linear_transformer import LinearTransformer, LinearTransformerConfig
from torchs4.layers.attention.linformer import Linformer, LinformerConfig
from torchs4.layers.attention.local_attention import LocalAttention, LocalAttentionConfig
from torchs4.layers.attention.longformer import Longformer, LongformerConfig
from torchs4.layers.attention.luna import Luna, LunaConfig
from torchs4.layers.attention.nystromformer import Nystromformer, NystromformerConfig
from torchs4.layers.attention.performer import Performer, PerformerConfig
from torchs4.layers.attention.reformer import Reformer, ReformerConfig
from torchs4.layers.attention.sinkhorn import Sinkhorn, SinkhornConfig
from torchs4.layers.attention.sparse_transformer import SparseTransformer, SparseTransformerConfig
from torchs4.layers.attention.synthesizer import Synthesizer, SynthesizerConfig

__all__ = [
    "AttentionLayer",
    "BigBird",
    "BigBirdConfig",
    "FNet",
    "FNetConfig",
    "LinearTransformer",
    "LinearTransformerConfig",
    "Linformer",
    "LinformerConfig",
    "LocalAttention",
    "LocalAttentionConfig",
    "Longformer",
    "LongformerConfig",
    "Luna",
    "LunaConfig",
    "Nystromformer",
    "NystromformerConfig",
    "Performer",
    "PerformerConfig",
    "Reformer",
    "ReformerConfig",
    "Sinkhorn",
    "SinkhornConfig",
    "SparseTransformer",
    "SparseTransformerConfig",
    "Synthesizer",
    "SynthesizerConfig",
]
