"""Informer (Zhou et al., AAAI 2021), written from its publication: what forecasts are compared with.

Axes: B windows, T positions of a history, H of a horizon, F numbers that are read, O that are predicted.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchs4.configuration import (
    FROM_DATA,
    merge_options,
    require_at_least,
    require_probability,
    require_whole,
)
from torchs4.description import Scaling
from torchs4.layers.inputs import require_dtype, require_sequence
from torchs4.layers.placement import drawn_on_cpu
from torchs4.layers.prob_sparse import ProbSparseAttention
from torchs4.layers.signatures import lists_options
from torchs4.models.pretrained import PretrainedModel
from torchs4.models.scaling import ColumnScaling

if TYPE_CHECKING:
    from jaxtyping import Float

# The slowest sine of the positions turns once in about this many, as is usual.
_LONGEST_TURN = 10_000


@dataclass(frozen=True)
class InformerConfig:
    """Options of an Informer.

    features: width of the network.
    heads: attentions side by side.
    encoder_layers, decoder_layers: how many; after each of the encoder's but the last, half of the positions
        are left.
    factor: how many queries attend: factor · ln of their number.
    label: positions of the history that the decoder reads too, at most all of them.
    distill: whether the encoder halves its positions between layers.
    dropout: which part of the activations training drops.
    """

    features: int = 64
    heads: int = 4
    encoder_layers: int = 2
    decoder_layers: int = 1
    factor: float = 5.0
    label: int = 48
    distill: bool = True
    dropout: float = 0.05
    history: int = field(default=1, metadata=FROM_DATA)
    horizon: int = field(default=1, metadata=FROM_DATA)
    output_size: int = field(default=1, metadata=FROM_DATA)
    input_features: int = field(default=1, metadata=FROM_DATA)
    names: tuple[str, ...] = field(default=(), metadata=FROM_DATA)
    input_names: tuple[str, ...] = field(default=(), metadata=FROM_DATA)
    input_scaling: Scaling | None = field(default=None, metadata=FROM_DATA)
    output_scaling: Scaling | None = field(default=None, metadata=FROM_DATA)

    def __post_init__(self) -> None:
        for name in (
            "features",
            "heads",
            "encoder_layers",
            "decoder_layers",
            "history",
            "horizon",
            "output_size",
            "input_features",
        ):
            require_whole(name, getattr(self, name), 1)
        require_whole("label", self.label, 0)
        require_at_least("factor", self.factor, 0)
        require_probability("dropout", self.dropout)
        if self.features % (2 * self.heads):
            raise ValueError(
                f"features is {self.features} and heads is {self.heads}: each head gets features/heads "
                f"columns, "
                f"which must be a whole and even number."
            )
        for name, scaling, columns in (
            ("input_scaling", self.input_scaling, self.input_features),
            ("output_scaling", self.output_scaling, self.output_size),
        ):
            if scaling is not None:
                scaling.require_columns(columns)
            object.__setattr__(self, name, scaling)


class Informer(PretrainedModel[InformerConfig]):
    """Predicts the last positions of (B, T + H, F) from the first: (B, T + H, O), where only those count.

    The encoder reads the history; the decoder reads its end and the horizon, in which what is predicted is
    blank, and gives the whole horizon at once. One stack, without the publication's shorter replicas.
    """

    config_class = InformerConfig

    @lists_options(InformerConfig)
    def __init__(
        self,
        config: InformerConfig | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: object,
    ) -> None:
        super().__init__()
        self.config = config = merge_options(InformerConfig, config, options)
        with drawn_on_cpu(self, device, dtype):
            self.encoder_input = _Embedding(config)
            self.decoder_input = _Embedding(config)
            self.encoder = nn.ModuleList(_EncoderLayer(config) for _ in range(config.encoder_layers))
            self.distilling = nn.ModuleList(
                _Distilling(config.features)
                for _ in range(config.encoder_layers - 1 if config.distill else 0)
            )
            self.encoder_norm = nn.LayerNorm(config.features)
            self.decoder = nn.ModuleList(_DecoderLayer(config) for _ in range(config.decoder_layers))
            self.decoder_norm = nn.LayerNorm(config.features)
            self.head = nn.Linear(config.features, config.output_size)
        self.input_scaling = None if config.input_scaling is None else ColumnScaling(config.input_scaling)
        self.output_scaling = None if config.output_scaling is None else ColumnScaling(config.output_scaling)

    def forward(
        self, x: Float[Tensor, "B T+H F"], lengths: None = None, rate: float = 1.0
    ) -> Float[Tensor, "B T+H O"]:
        """The forecast, in the data's units, behind zeros for the history."""
        config = self.config
        require_sequence(x, config.input_features)
        require_dtype(x, self.head.weight)
        if x.shape[1] != config.history + config.horizon or lengths is not None:
            raise ValueError(
                f"x has {x.shape[1]:,} positions; expected a history of {config.history:,} and a horizon of "
                f"{config.horizon:,}, all of them real."
            )
        if self.input_scaling is not None:
            x = self.input_scaling.to_network(x)
        memory = self.encoder_input(x[:, : config.history])
        for place, layer in enumerate(self.encoder):
            memory = layer(memory)
            if place < len(self.distilling):
                memory = self.distilling[place](memory)
        memory = self.encoder_norm(memory)
        y = self.decoder_input(x[:, max(0, config.history - config.label) :])
        for layer in self.decoder:
            y = layer(y, memory)
        y = self.head(self.decoder_norm(y))[:, -config.horizon :]
        if self.output_scaling is not None:
            y = self.output_scaling.to_data(y)
        return torch.cat([y.new_zeros(len(y), config.history, y.shape[2]), y], dim=1)


class _Embedding(nn.Module):
    """What stands at three neighbouring positions, and where."""

    def __init__(self, config: InformerConfig) -> None:
        super().__init__()
        self.values = nn.Conv1d(
            config.input_features, config.features, 3, padding=1, padding_mode="circular", bias=False
        )
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "B L F"]) -> Float[Tensor, "B L H"]:
        y = self.values(x.transpose(1, 2)).transpose(1, 2)
        return self.dropout(y + _positions(*y.shape[1:]).to(y))


class _EncoderLayer(nn.Module):
    def __init__(self, config: InformerConfig) -> None:
        super().__init__()
        self.attention = ProbSparseAttention(config.features, config.heads, config.factor)
        self.attention_norm = nn.LayerNorm(config.features)
        self.widening = _Widening(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "B L H"]) -> Float[Tensor, "B L H"]:
        return self.widening(self.attention_norm(x + self.dropout(self.attention(x))))


class _DecoderLayer(nn.Module):
    def __init__(self, config: InformerConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.attention = ProbSparseAttention(config.features, config.heads, config.factor, causal=True)
        self.attention_norm = nn.LayerNorm(config.features)
        self.query = nn.Linear(config.features, config.features)
        self.key_value = nn.Linear(config.features, 2 * config.features)
        self.output = nn.Linear(config.features, config.features)
        self.memory_norm = nn.LayerNorm(config.features)
        self.widening = _Widening(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "B L H"], memory: Float[Tensor, "B S H"]) -> Float[Tensor, "B L H"]:
        x = self.attention_norm(x + self.dropout(self.attention(x)))
        query = self.query(x).unflatten(2, (self.heads, -1)).transpose(1, 2)
        keys, values = (
            part.transpose(1, 2)
            for part in self.key_value(memory).unflatten(2, (2, self.heads, -1)).unbind(2)
        )
        seen = F.scaled_dot_product_attention(query, keys, values).transpose(1, 2).flatten(2)
        return self.widening(self.memory_norm(x + self.dropout(self.output(seen))))


class _Widening(nn.Module):
    """Four times as wide and back, added, normalised."""

    def __init__(self, config: InformerConfig) -> None:
        super().__init__()
        self.wide = nn.Linear(config.features, 4 * config.features)
        self.narrow = nn.Linear(4 * config.features, config.features)
        self.norm = nn.LayerNorm(config.features)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "B L H"]) -> Float[Tensor, "B L H"]:
        return self.norm(x + self.dropout(self.narrow(self.dropout(F.gelu(self.wide(x))))))


class _Distilling(nn.Module):
    """Half as many positions: a convolution, and the largest of neighbours."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.convolution = nn.Conv1d(features, features, 3, padding=1, padding_mode="circular")
        self.norm = nn.BatchNorm1d(features)

    def forward(self, x: Float[Tensor, "B L H"]) -> Float[Tensor, "B L/2 H"]:
        y = F.elu(self.norm(self.convolution(x.transpose(1, 2))))
        return F.max_pool1d(y, 3, stride=2, padding=1).transpose(1, 2)


def _positions(length: int, features: int) -> Float[Tensor, "L H"]:
    """Sines and cosines of every position, from fast to slow."""
    turns = torch.exp(torch.arange(0, features, 2) * (-math.log(_LONGEST_TURN) / features))
    angles = torch.arange(length)[:, None] * turns
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
