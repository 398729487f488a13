"""Softmax attention, the layer of Transformers, fused or written out, with rotary positions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, cast, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchs4.configuration import (
    merge_options,
    require_at_least,
    require_choice,
    require_probability,
    require_whole,
)
from torchs4.layers.inputs import (
    position_mask,
    require_causal,
    require_rate,
    require_sequence,
    require_vector,
)
from torchs4.layers.padded_chunks import padded_lengths, refuse_lengths
from torchs4.layers.padding import move_to_front, take
from torchs4.layers.placement import drawn_on_cpu
from torchs4.layers.precision import widest_dtype
from torchs4.layers.registry import register_layer
from torchs4.layers.signatures import lists_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Bool, Float, Int

    State = tuple[Float[Tensor, "B heads L D"], Float[Tensor, "B heads L D"]]

AttentionKind = Literal["fused", "materialised"]
# The slowest pair of columns turns once in about this many positions, as is usual.
_LONGEST_TURN = 10_000


@register_layer("transformer")
@dataclass(frozen=True)
class TransformerConfig:
    """Options of a self-attention layer.

    heads: how many attentions work side by side, each on projection/heads columns.
    projection: columns of queries, of keys and of values; None is as many as there are features.
    attention_dropout: which part of the attention weights training drops.
    bidirectional: every position sees the future too; such a layer cannot stream.
    attention: "fused", PyTorch's own, which never holds the matrix of attention weights; or "materialised",
        which does, as was usual when S4 was published: the same numbers, slower and in quadratic memory.
    """

    heads: int = 4
    attention_dropout: float = 0.0
    bidirectional: bool = False
    attention: AttentionKind = "fused"
    projection: int | None = None

    def __post_init__(self) -> None:
        require_choice("attention", self.attention, get_args(AttentionKind))
        require_whole("heads", self.heads, 1)
        if self.projection is not None:
            require_whole("projection", self.projection, 1)
        require_probability("attention_dropout", self.attention_dropout)

    def build(self, features: int) -> Transformer:
        """The layer that this describes."""
        return Transformer(features, self)


class TransformerOptions(TypedDict, total=False):
    """TransformerConfig's fields, as keyword arguments that an editor completes."""

    heads: int
    attention_dropout: float
    bidirectional: bool
    attention: AttentionKind
    projection: int | None


class Transformer(nn.Module):
    """Self-attention, (B, L, H) to (B, L, H): `Transformer(256, heads=8)`, with TransformerConfig's options.

    Positions are rotary: only distances matter and there is no longest sequence. Its state are the keys and
    values of everything seen so far, so it grows with every position, and so does the time of a step.
    Attention counts positions and knows no time, so `rate` changes nothing. Positions outside a mask are left
    out, wherever they are.
    """

    @lists_options(TransformerConfig)
    def __init__(
        self,
        features: int,
        config: TransformerConfig | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Unpack[TransformerOptions],
    ) -> None:
        with drawn_on_cpu(self, device, dtype):
            super().__init__()
            self.config = config = merge_options(TransformerConfig, config, options)
            require_at_least("features", features, 1)
            self.features = features
            self.projection = features if config.projection is None else config.projection
            _require_even_heads(
                "features" if config.projection is None else "projection", self.projection, config.heads
            )
            self.heads = config.heads
            self.bidirectional = config.bidirectional
            self.query_key_value = nn.Linear(features, 3 * self.projection)
            self.output = nn.Linear(self.projection, features)

    @property
    def causal(self) -> bool:
        """Whether an output depends on nothing that comes after it."""
        return not self.bidirectional

    @property
    def output_features(self) -> int:
        """The size of the output's last axis."""
        return self.features

    def forward(
        self,
        x: Float[Tensor, "B L H"],
        lengths: Int[Tensor, " B"] | Sequence[int] | None = None,
        mask: Bool[Tensor, "B L"] | None = None,
        rate: float = 1.0,
    ) -> Float[Tensor, "B L H"]:
        """The whole sequence at once. Positions outside `lengths` or `mask` are left out."""
        require_sequence(x, self.features)
        require_rate(rate)
        mask = position_mask(x, lengths, mask)
        if mask is None:
            return self._attend(*self._project(x), is_causal=self.causal)
        # Behind the real positions, padding is the future that a causal attention does not see.
        x, places = move_to_front(x, mask)
        visible = None
        if not self.causal:
            # A sequence of padding alone sees one: an average over nothing is not a number.
            counts = mask.sum(dim=1, keepdim=True).clamp(min=1)
            visible = (torch.arange(x.shape[1], device=x.device) < counts)[:, None, None]
        return take(self._attend(*self._project(x), visible, self.causal), places)

    def prefill(
        self,
        x: Float[Tensor, "B L H"],
        state: State | None = None,
        rate: float = 1.0,
        lengths: Int[Tensor, " B"] | Sequence[int] | None = None,
    ) -> tuple[Float[Tensor, "B L H"], State]:
        """A chunk of the sequence: its outputs and the state after it. Lengths that differ are refused."""
        require_sequence(x, self.features)
        require_rate(rate)
        refuse_lengths(
            padded_lengths(x, lengths),
            "a Transformer's state has an entry for every position, so that of a batch has one length",
        )
        if state is None:
            state = self.initial_state(x.shape[0])
        self.require_own_state(state, x.shape[0])
        (old_keys, old_values), length = state, x.shape[1]
        seen = old_keys.shape[2]
        query, key, value = self._project(x, seen)
        # Under autocast they are kept in half precision, as they are used.
        keys = torch.cat([old_keys.to(key.dtype), key], dim=2)
        values = torch.cat([old_values.to(value.dtype), value], dim=2)
        if seen == 0:
            y = self._attend(query, keys, values, is_causal=True)
        else:
            y = self._attend(query, keys, values, _past(length, seen, x.device) if length > 1 else None)
        return y, (keys, values)

    def step(
        self, x_t: Float[Tensor, "B H"], state: State, rate: float = 1.0
    ) -> tuple[Float[Tensor, "B H"], State]:
        """One position: its output and the next state, which is one position longer."""
        require_vector(x_t, self.features)
        self.require_own_state(state, x_t.shape[0])
        y, state = self.prefill(x_t[:, None], state, rate)
        return y[:, 0], state

    def initial_state(self, batch_size: int) -> State:
        """The state before the first position: no keys and no values."""
        require_causal(self.causal)
        require_at_least("batch_size", batch_size, 1)
        # Somebody may have put modules without parameters in the place of ours.
        weight = next(self.parameters(), torch.empty(0))
        empty = weight.new_zeros(batch_size, self.heads, 0, self.projection // self.heads)
        return empty, empty.clone()

    def require_own_state(self, state: State, batch_size: int) -> None:
        """A state must fit this layer, which must have one at all, and this batch."""
        require_causal(self.causal)
        parts = state if isinstance(state, tuple | list) else [state]
        shapes = [tuple(part.shape) if isinstance(part, Tensor) else type(part).__name__ for part in parts]
        seen = shapes[0][2] if isinstance(parts[0], Tensor) and parts[0].ndim == 4 else "positions"
        shape = (batch_size, self.heads, seen, self.projection // self.heads)
        if shapes != [shape, shape]:
            raise ValueError(
                f"state is {', '.join(map(str, shapes))}; expected keys and values, {shape} each. Start "
                f"with initial_state(batch_size={batch_size}) and pass on what step or prefill returned."
            )

    def _project(self, x: Float[Tensor, "B L H"], seen: int = 0) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values; what is compared is turned by its position first."""
        query, key, value = self.query_key_value(x).unflatten(2, (3, self.heads, -1)).unbind(2)
        positions = torch.arange(seen, seen + x.shape[1], device=x.device)
        turns = _turns(positions, query.shape[3])
        # Half precision would turn too coarsely.
        turns = turns.to(torch.promote_types(query.dtype, torch.float32))
        query, key = _rotate(query, turns), _rotate(key, turns)
        return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)

    def _attend(
        self,
        query: Float[Tensor, "B heads L D"],
        keys: Float[Tensor, "B heads S D"],
        values: Float[Tensor, "B heads S D"],
        visible: Bool[Tensor, "*B #L S"] | None = None,
        is_causal: bool = False,
    ) -> Float[Tensor, "B L H"]:
        dropout = self.config.attention_dropout if self.training else 0.0
        is_fused = self.config.attention == "fused"
        attend: Any = F.scaled_dot_product_attention if is_fused else materialised_attention
        y = attend(query, keys, values, visible, dropout, is_causal)
        return cast("Tensor", self.output(y.transpose(1, 2).flatten(2)))

    def extra_repr(self) -> str:
        """The options that are not visible as submodules."""
        text = f"features={self.features}, heads={self.heads}"
        text += ", bidirectional=True" if self.bidirectional else ""
        return text + (", attention='materialised'" if self.config.attention == "materialised" else "")


def materialised_attention(
    query: Float[Tensor, "B heads L D"],
    keys: Float[Tensor, "B heads S D"],
    values: Float[Tensor, "B heads S D"],
    visible: Bool[Tensor, "*B #L S"] | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
) -> Float[Tensor, "B heads L D"]:
    """What PyTorch's fused attention computes, by way of the whole matrix of weights."""
    # Fewer numbers to divide than there are scores.
    scores = query / query.shape[3] ** 0.5 @ keys.transpose(2, 3)
    if is_causal:
        visible = _past(query.shape[2], keys.shape[2] - query.shape[2], query.device)
    if visible is not None:
        scores = scores.masked_fill(~visible, -math.inf)
    weights = scores.softmax(-1)
    return (F.dropout(weights, dropout) if dropout else weights) @ values


def _past(length: int, seen: int, device: torch.device) -> Bool[Tensor, "L S"]:
    """Which of `seen` + `length` positions each of the last `length` sees: itself and those before it."""
    return torch.ones(length, seen + length, dtype=torch.bool, device=device).tril(seen)


def _turns(positions: Int[Tensor, " L"], size: int) -> Float[Tensor, "2 L 1 D/2"]:
    """Cosine and sine of the angle by which each position turns each pair of columns."""
    # float64, because float32 could not tell far positions apart.
    pairs = torch.arange(0, size, 2, dtype=widest_dtype(positions.device), device=positions.device)
    angles = positions[..., None, None] * _LONGEST_TURN ** (-pairs / size)
    return torch.stack([angles.cos(), angles.sin()])


def _rotate(
    x: Float[Tensor, "B L heads D"], turns: Float[Tensor, "2 L 1 D/2"]
) -> Float[Tensor, "B L heads D"]:
    first, second = x.chunk(2, dim=-1)
    cosine, sine = turns
    return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1).to(x.dtype)


def _require_even_heads(name: str, columns: int, heads: int) -> None:
    if columns % (2 * heads) == 0:
        return
    fitting = [str(count) for count in range(1, columns + 1) if columns % (2 * count) == 0]
    advice = f"heads one of {', '.join(fitting)}" if fitting else f"an even number of {name}"
    raise ValueError(
        f"heads is {heads} and {name} is {columns}: each head gets {name}/heads columns, which must be "
        f"a whole and even number, because positions turn them in pairs. Choose {advice}, or "
        f"{2 * heads * max(1, round(columns / (2 * heads)))} {name}."
    )
