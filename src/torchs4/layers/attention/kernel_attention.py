"""Attention whose weights are products of features: what was seen fits into a memory of constant size.

Position i weighs position j by φ(q_i)·φ(k_j), so the sum over j of φ(k_j) (v_j, 1)ᵀ is all that has to be
kept. Axes: B sequences, L positions, M features of φ, D columns of a head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torchs4.configuration import require_at_least, require_whole
from torchs4.layers.attention.attention_layer import AttentionLayer
from torchs4.layers.inputs import (
    require_causal,
    require_rate,
    require_sequence,
    require_state,
    require_vector,
)
from torchs4.layers.padded_chunks import padded_lengths
from torchs4.layers.precision import full_precision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float, Int

    State = tuple[Float[Tensor, "B heads M D+1"], Float[Tensor, "B heads"]]

# Within blocks of so many positions products are made of pairs, between them of the memory.
_BLOCK = 64
# The logarithm of nothing, far below that of any feature, in every number format.
_NOTHING = -1e30


@dataclass(frozen=True)
class KernelAttentionConfig:
    """What attentions with feature maps share.

    heads: how many attentions work side by side, each on projection/heads columns.
    bidirectional: every position sees the future too; such a layer cannot stream.
    projection: columns of queries, of keys and of values; None is as many as there are features.
    """

    heads: int = 4
    bidirectional: bool = False
    projection: int | None = None

    def __post_init__(self) -> None:
        require_whole("heads", self.heads, 1)
        if self.projection is not None:
            require_whole("projection", self.projection, 1)


class KeyFeatures(NamedTuple):
    """φ(k) = values · exp(log_scale), so that no size of keys is too large or too small for a number."""

    values: Float[Tensor, "B heads L M"]
    log_scale: Float[Tensor, "B heads L"]


class KernelAttention(AttentionLayer):
    """Linear attention. Subclasses give features of queries and keys.

    Causal, its state is a memory of constant size: sums over everything seen, and their scale.
    """

    def _build(self, features: int) -> None:
        projection = self.config.projection
        self._build_projections(features, features if projection is None else projection)

    def _query_features(self, query: Float[Tensor, "B heads L D"]) -> Float[Tensor, "B heads L M"]:
        """Positive numbers; a factor for each position makes no difference."""
        raise NotImplementedError

    def _key_features(self, key: Float[Tensor, "B heads L D"]) -> KeyFeatures:
        raise NotImplementedError

    @property
    def _num_features(self) -> int:
        raise NotImplementedError

    # The scale of an empty memory: any key has more weight.
    _empty_scale = _NOTHING

    def _mix(self, x: Float[Tensor, "B L H"], counts: Int[Tensor, " B"] | None) -> Float[Tensor, "B L H"]:
        if self.causal:
            # Padding is behind the real positions, where nobody sees it.
            return self._run(x, self.initial_state(len(x)), None)[0]
        projected = self._project(x)
        with full_precision(x):
            query, keys, value = self._prepared(projected, counts)
            largest = keys.log_scale.amax(2, keepdim=True)
            key = keys.values * (keys.log_scale - largest).exp()[..., None]
            y = _averaged(query @ (key.transpose(2, 3) @ value))
        return self._joined(y.to(x.dtype))

    def prefill(
        self,
        x: Float[Tensor, "B L H"],
        state: State | None = None,
        rate: float = 1.0,
        lengths: Int[Tensor, " B"] | Sequence[int] | None = None,
    ) -> tuple[Float[Tensor, "B L H"], State]:
        """A chunk of the sequence: its outputs and the state after it, or after so many of its positions."""
        require_sequence(x, self.features)
        require_rate(rate)
        if state is None:
            state = self.initial_state(x.shape[0])
        self.require_own_state(state, x.shape[0])
        counts = padded_lengths(x, lengths)
        if counts is not None:
            x = x.masked_fill(torch.arange(x.shape[1], device=x.device)[:, None] >= counts[:, None, None], 0)
        return self._run(x, state, counts)

    def step(
        self, x_t: Float[Tensor, "B H"], state: State, rate: float = 1.0
    ) -> tuple[Float[Tensor, "B H"], State]:
        """One position: its output and the next state, in time and memory that do not grow."""
        require_vector(x_t, self.features)
        require_rate(rate)
        self.require_own_state(state, x_t.shape[0])
        y, state = self._run(x_t[:, None], state, None)
        return y[:, 0], state

    def initial_state(self, batch_size: int) -> State:
        """The state before the first position: an empty memory."""
        require_causal(self.causal)
        require_at_least("batch_size", batch_size, 1)
        memory = self._weight.new_zeros(
            batch_size,
            self.heads,
            self._num_features,
            self.projection // self.heads + 1,
            dtype=self._state_dtype,
        )
        return memory, memory.new_full((batch_size, self.heads), self._empty_scale)

    def require_own_state(self, state: State, batch_size: int) -> None:
        """A state must fit this layer, which must have one at all, and this batch."""
        require_causal(self.causal)
        if not isinstance(state, tuple | list) or len(state) != 2:
            raise ValueError(
                f"state is {type(state).__name__}; expected two tensors, memory and scale. Start with "
                f"initial_state(batch_size={batch_size}) and pass on what step or prefill returned."
            )
        shape = (batch_size, self.heads, self._num_features, self.projection // self.heads + 1)
        require_state(state[0], shape, self._state_dtype)
        require_state(state[1], shape[:2], self._state_dtype)

    @property
    def _weight(self) -> Tensor:
        # Somebody may have put modules without parameters in the place of ours.
        return next(self.parameters(), torch.zeros(0))

    @property
    def _state_dtype(self) -> torch.dtype:
        # Long sums in half precision would forget everything.
        return torch.promote_types(self._weight.dtype, torch.float32)

    def _prepared(
        self, projected: tuple[Tensor, Tensor, Tensor], counts: Int[Tensor, " B"] | None
    ) -> tuple[Tensor, KeyFeatures, Float[Tensor, "B heads L D+1"]]:
        """Features of queries and keys, and values with a one behind them, whose sum will divide."""
        query, key, value = (part.to(torch.promote_types(part.dtype, torch.float32)) for part in projected)
        keys = self._key_features(key)
        if counts is not None:
            padding = torch.arange(key.shape[2], device=key.device) >= counts[:, None, None]
            keys = KeyFeatures(
                keys.values.masked_fill(padding[..., None], 0), keys.log_scale.masked_fill(padding, _NOTHING)
            )
        return self._query_features(query), keys, F.pad(value, (0, 1), value=1.0)

    def _run(
        self, x: Float[Tensor, "B L H"], state: State, counts: Int[Tensor, " B"] | None
    ) -> tuple[Float[Tensor, "B L H"], State]:
        projected = self._project(x)
        with full_precision(x):
            query, keys, value = self._prepared(projected, counts)
            outputs = []
            for start in range(0, x.shape[1], _BLOCK):
                block = slice(start, start + _BLOCK)
                y, state = _run_block(
                    query[:, :, block],
                    keys.values[:, :, block],
                    keys.log_scale[:, :, block],
                    value[:, :, block],
                    state,
                )
                outputs.append(y)
            y = _averaged(torch.cat(outputs, dim=2))
        return self._joined(y.to(x.dtype)), state


def _run_block(
    query: Float[Tensor, "B heads w M"],
    key: Float[Tensor, "B heads w M"],
    log_scale: Float[Tensor, "B heads w"],
    value: Float[Tensor, "B heads w D+1"],
    state: State,
) -> tuple[Float[Tensor, "B heads w D+1"], State]:
    """Sums up to each position, relative to the largest scale up to it, and the memory after the last."""
    memory, scale = state
    # A later key, however large, changes nothing before it: not even the rounding.
    largest = torch.maximum(log_scale.cummax(2).values, scale[..., None])
    later = torch.ones(query.shape[2], query.shape[2], dtype=torch.bool, device=query.device).triu(1)
    relative = (log_scale[:, :, None] - largest[..., None]).masked_fill(later, _NOTHING).exp()
    y = (query @ key.transpose(2, 3) * relative) @ value
    y = y + (scale[..., None] - largest).exp()[..., None] * (query @ memory)
    last = largest[..., -1]
    key = key * (log_scale - last[..., None]).exp()[..., None]
    return y, ((scale - last).exp()[..., None, None] * memory + key.transpose(2, 3) @ value, last)


def _averaged(sums: Float[Tensor, "B heads L D+1"]) -> Float[Tensor, "B heads L D"]:
    """Weighted sums divided by the sum of the weights, which stands behind them."""
    # Where hardly anything is seen, gradients would divide by the square of what is.
    weights = sums[..., -1:].clamp(min=torch.finfo(sums.dtype).tiny ** 0.5)
    return sums[..., :-1] / weights
