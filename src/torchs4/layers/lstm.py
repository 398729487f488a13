"""LSTM, the recurrent network that state spaces are compared with: PyTorch's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from torchs4.configuration import merge_options, require_at_least, require_whole
from torchs4.layers.inputs import (
    position_mask,
    require_causal,
    require_rate,
    require_sequence,
    require_state,
    require_vector,
)
from torchs4.layers.padded_chunks import padded_lengths
from torchs4.layers.padding import move_to_front, take
from torchs4.layers.placement import drawn_on_cpu
from torchs4.layers.precision import full_precision
from torchs4.layers.registry import register_layer
from torchs4.layers.signatures import lists_options

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from jaxtyping import Bool, Float, Int

    State = tuple[Float[Tensor, "B N"], Float[Tensor, "B N"]]


@register_layer("lstm")
@dataclass(frozen=True)
class LSTMConfig:
    """Options of an LSTM layer.

    hidden_size: numbers in its state and in its output; None is as many as there are features.
    bidirectional: a second LSTM reads the future; the output is twice as wide and such a layer cannot stream.
    """

    hidden_size: int | None = None
    bidirectional: bool = False

    def __post_init__(self) -> None:
        if self.hidden_size is not None:
            require_whole("hidden_size", self.hidden_size, 1)

    def build(self, features: int) -> LSTM:
        """The layer that this describes."""
        return LSTM(features, self)


class LSTMOptions(TypedDict, total=False):
    """LSTMConfig's fields, as keyword arguments that an editor completes."""

    hidden_size: int | None
    bidirectional: bool


class LSTM(nn.Module):
    """PyTorch's LSTM, (B, L, H) to (B, L, hidden_size): `LSTM(256)`, with LSTMConfig's fields as options.

    Its state is two tensors of constant size. An LSTM counts samples and knows no time, so `rate` changes
    nothing: a model trained at one sampling rate does not fit another. Positions outside a mask are left out,
    wherever they are.
    """

    @lists_options(LSTMConfig)
    def __init__(
        self,
        features: int,
        config: LSTMConfig | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Unpack[LSTMOptions],
    ) -> None:
        with drawn_on_cpu(self, device, dtype):
            super().__init__()
            self.config = config = merge_options(LSTMConfig, config, options)
            require_at_least("features", features, 1)
            self.features = features
            self.hidden_size = features if config.hidden_size is None else config.hidden_size
            self.bidirectional = config.bidirectional
            self.lstm = nn.LSTM(
                features, self.hidden_size, batch_first=True, bidirectional=config.bidirectional
            )

    @property
    def causal(self) -> bool:
        """Whether an output depends on nothing that comes after it."""
        return not self.bidirectional

    @property
    def output_features(self) -> int:
        """The size of the output's last axis."""
        return self.hidden_size * (2 if self.bidirectional else 1)

    def forward(
        self,
        x: Float[Tensor, "B L H"],
        lengths: Int[Tensor, " B"] | Sequence[int] | None = None,
        mask: Bool[Tensor, "B L"] | None = None,
        rate: float = 1.0,
    ) -> Float[Tensor, "B L O"]:
        """The whole sequence at once. Positions outside `lengths` or `mask` are left out."""
        require_sequence(x, self.features)
        require_rate(rate)
        mask = position_mask(x, lengths, mask)
        with full_precision(x):
            u = x.to(self._weight.dtype)
            y = self.lstm(u)[0] if mask is None else self._without_padding(u, mask)
            return y.to(x.dtype)

    def prefill(
        self,
        x: Float[Tensor, "B L H"],
        state: State | None = None,
        rate: float = 1.0,
        lengths: Int[Tensor, " B"] | Sequence[int] | None = None,
    ) -> tuple[Float[Tensor, "B L O"], State]:
        """A chunk of the sequence: its outputs and the state after it, or after so many of its positions."""
        require_sequence(x, self.features)
        require_rate(rate)
        if state is None:
            state = self.initial_state(x.shape[0])
        self.require_own_state(state, x.shape[0])
        hidden, cell = state
        counts = padded_lengths(x, lengths)
        with full_precision(x):
            u: Any = x.to(self._weight.dtype)
            if counts is not None:
                u = pack_padded_sequence(u, counts.cpu(), batch_first=True, enforce_sorted=False)
            # PyTorch's states have an axis of layers and directions in front.
            y, (hidden, cell) = self.lstm(u, (hidden[None], cell[None]))
            if counts is not None:
                y, _ = pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])
            return y.to(x.dtype), (hidden[0], cell[0])

    def step(
        self, x_t: Float[Tensor, "B H"], state: State, rate: float = 1.0
    ) -> tuple[Float[Tensor, "B O"], State]:
        """One position: its output and the next state, in time and memory that do not grow."""
        require_vector(x_t, self.features)
        self.require_own_state(state, x_t.shape[0])
        y, state = self.prefill(x_t[:, None], state, rate)
        return y[:, 0], state

    def initial_state(self, batch_size: int) -> State:
        """The state before the first position: a hidden vector and a cell of zeros."""
        require_causal(self.causal)
        require_at_least("batch_size", batch_size, 1)
        empty = self._weight.new_zeros(batch_size, self.hidden_size)
        return empty, empty.clone()

    def require_own_state(self, state: State, batch_size: int) -> None:
        """A state must fit this layer, which must have one at all, and this batch."""
        require_causal(self.causal)
        if not isinstance(state, tuple | list) or len(state) != 2:
            raise ValueError(
                f"state is {type(state).__name__}; expected two tensors, hidden vector and cell. Start "
                f"with initial_state(batch_size={batch_size}) and pass on what step or prefill returned."
            )
        for part in state:
            require_state(part, (batch_size, self.hidden_size), self._weight.dtype)

    @property
    def _weight(self) -> Tensor:
        return cast("Tensor", self.lstm.weight_hh_l0)

    def _without_padding(
        self, x: Float[Tensor, "B L H"], mask: Bool[Tensor, "B L"]
    ) -> Float[Tensor, "B L O"]:
        """Every sequence as if it stood alone."""
        x, places = move_to_front(x, mask)
        if self.bidirectional:
            # The other direction would read the padding first. A sequence of padding alone counts as one.
            lengths = mask.sum(dim=1).clamp(min=1).cpu()
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            y, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=x.shape[1])
        else:
            y = self.lstm(x)[0]
        return take(y, places)

    def extra_repr(self) -> str:
        """The options that are not visible as submodules."""
        return f"features={self.features}"
