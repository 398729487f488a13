"""Whether a model fits into this machine at all, before somebody waits for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchs4.layers import LSTMConfig, SSMConfig
from torchs4.models import InformerConfig, LanguageModelConfig, UNetModelConfig
from torchs4.training.provenance import memory_gb

if TYPE_CHECKING:
    from torchs4.models import ModelConfig, SequenceModelConfig

# A float32 weight, its gradient and AdamW's two moments.
_BYTES_PER_WEIGHT = 16
# Starting points are computed in float64.
_BYTES_PER_START = 8


def require_room(model: ModelConfig) -> None:
    """Refuse a model whose weights alone take more than all of the memory."""
    if isinstance(model, InformerConfig):
        # Its sizes are those of a baseline; nobody asks for one by mistake.
        return
    room, needed = memory_gb(), _least_bytes(model) / 1e9
    if room is not None and needed > room:
        layer = model.block.layer
        state = f" and state_size {layer.state_size}" if isinstance(layer, SSMConfig) else ""
        raise ValueError(
            f"A model of {model.num_layers} layers with {model.features} features{state} needs at least "
            f"{needed:,.0f} GB to be trained; this machine has {room:,.0f} GB. Make it smaller."
        )


def _least_bytes(model: SequenceModelConfig) -> int:
    """A bound from below: what every model of these sizes has."""
    if isinstance(model, UNetModelConfig | LanguageModelConfig):
        return model.least_weights() * _BYTES_PER_WEIGHT
    layer, features = model.block.layer, model.features
    across, start = features, 0
    if isinstance(layer, SSMConfig):
        across += layer.state_size * layer.channels
        start = layer.state_size**2
    elif isinstance(layer, LSTMConfig) and layer.hidden_size is not None:
        across = layer.hidden_size
    weights = features * (model.num_layers * across + sum(model.stem))
    return weights * _BYTES_PER_WEIGHT + start * _BYTES_PER_START
