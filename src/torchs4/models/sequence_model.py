"""A whole network: encoder, stack of blocks, pooling, head."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import torch
from torch import Tensor, nn

from torchs4.configuration import FROM_DATA, merge_options, require_choice, require_config, require_whole
from torchs4.description import Scaling
from torchs4.layers.block import S4BlockConfig
from torchs4.layers.inputs import (
    position_mask,
    require_dtype,
    require_padding_at_end,
    require_positions,
    require_sequence,
    require_tensor,
    require_vector,
)
from torchs4.layers.padded_chunks import padded_lengths, refuse_lengths
from torchs4.layers.padding import zero_padding
from torchs4.layers.placement import drawn_on_cpu
from torchs4.layers.precision import unrounded
from torchs4.layers.signatures import lists_options
from torchs4.models.pooling import POOLING_KINDS, PoolingKind, build_pooling
from torchs4.models.pretrained import PretrainedModel
from torchs4.models.scaling import ColumnScaling
from torchs4.models.stack import BlockStack
from torchs4.models.stem import Stem

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Bool, Float, Int

    from torchs4.models.feed_forward_stack import FeedForwardStack
    from torchs4.models.unet import UNet

    State = dict[str, Any]


@dataclass(frozen=True)
class SequenceModelConfig:
    """Options of a SequenceModel.

    output_size: numbers per prediction: classes, or values to regress.
    input_features: columns of a real input; ignored when vocabulary_size is given.
    vocabulary_size: number of tokens, for inputs (B, L) of integers.
    features: width of the network (H).
    num_layers: how many blocks.
    block: the configuration of each block.
    pooling: "mean", "last" or "shares" (of each feature, how many positions are above each of eight values)
        for one prediction per sequence, "none" for one per position.
    stem: strides of convolutions before the blocks, which shorten long raw signals: 4 4 makes one frame of 16
        samples. A prediction for each position then stays the same until the next frame.
    names: of the numbers of a prediction: classes, columns or tokens.
    input_names: of the columns of an input, or of its tokens.
    sample_rate: positions per second of the data that it was made for.
    input_scaling, output_scaling: from the data's units to the network's and back; the model applies both.
    """

    output_size: int = field(default=10, metadata=FROM_DATA)
    input_features: int = field(default=1, metadata=FROM_DATA)
    vocabulary_size: int | None = field(default=None, metadata=FROM_DATA)
    features: int = 128
    num_layers: int = field(default=4, metadata={"option_name": "layers"})
    block: S4BlockConfig = field(default_factory=S4BlockConfig)
    pooling: PoolingKind = "mean"
    stem: tuple[int, ...] = ()
    names: tuple[str, ...] = field(default=(), metadata=FROM_DATA)
    input_names: tuple[str, ...] = field(default=(), metadata=FROM_DATA)
    sample_rate: float | None = field(default=None, metadata=FROM_DATA)
    input_scaling: Scaling | None = field(default=None, metadata=FROM_DATA)
    output_scaling: Scaling | None = field(default=None, metadata=FROM_DATA)

    def __post_init__(self) -> None:
        for name in ("output_size", "input_features", "features", "num_layers"):
            require_whole(name, getattr(self, name), 1)
        if self.vocabulary_size is not None:
            require_whole("vocabulary_size", self.vocabulary_size, 1)
        require_config("block", self.block, S4BlockConfig)
        require_choice("pooling", self.pooling, POOLING_KINDS)
        # A list would make the configuration unhashable.
        object.__setattr__(self, "stem", tuple(self.stem))
        for stride in self.stem:
            require_whole("stem", stride, 1)
        object.__setattr__(self, "names", tuple(self.names))
        if self.names and len(self.names) != self.output_size:
            raise ValueError(
                f"There are {len(self.names)} names for {self.output_size} outputs; give one for each."
            )
        if self.input_scaling is not None:
            self.input_scaling.require_columns(self.input_features)
        if self.output_scaling is not None:
            self.output_scaling.require_columns(self.output_size)


class SequenceModelOptions(TypedDict, total=False):
    """The fields of SequenceModelConfig, for editors and type checkers."""

    output_size: int
    input_features: int
    vocabulary_size: int | None
    features: int
    num_layers: int
    block: S4BlockConfig
    pooling: PoolingKind
    stem: tuple[int, ...]
    names: tuple[str, ...]
    input_names: tuple[str, ...]
    sample_rate: float | None
    input_scaling: Scaling | None
    output_scaling: Scaling | None


class SequenceModel(PretrainedModel[SequenceModelConfig]):
    """Predicts from sequences of real vectors (B, L, input_features) or of tokens (B, L).

    `SequenceModel(output_size=10, num_layers=4)`, with SequenceModelConfig's fields as options. With pooling,
    prefill and step return the prediction from everything seen so far; after the last position it is what
    the whole-sequence call returns.
    """

    config_class = SequenceModelConfig

    @lists_options(SequenceModelConfig)
    def __init__(
        self,
        config: SequenceModelConfig | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Unpack[SequenceModelOptions],
    ) -> None:
        super().__init__()
        self.config = config = merge_options(self.config_class, config, options)
        with drawn_on_cpu(self, device, dtype):
            self._build(config)

    def _build(self, config: SequenceModelConfig) -> None:
        features = config.features
        self.encoder: nn.Module = nn.Identity()
        if config.vocabulary_size is not None:
            self.encoder = nn.Embedding(config.vocabulary_size, features)
        elif not config.stem:
            self.encoder = nn.Linear(config.input_features, features)
        self.stem: Stem | None = None
        if config.stem:
            columns = config.input_features if config.vocabulary_size is None else features
            self.stem = Stem(columns, features, config.stem)
        self.stack: Any = self._build_stack(config)
        self.pooling = build_pooling(config.pooling, features)
        self.head: nn.Module = nn.Linear(self.pooling.width(features), config.output_size)
        self.input_scaling = None if config.input_scaling is None else ColumnScaling(config.input_scaling)
        self.output_scaling = None if config.output_scaling is None else ColumnScaling(config.output_scaling)

    def _build_stack(self, config: Any) -> BlockStack | FeedForwardStack | UNet:
        return BlockStack(config.features, config.num_layers, config.block)

    @property
    def causal(self) -> bool:
        """Whether a prediction depends on nothing that comes after it, so that the model can stream."""
        return self.stack.causal

    def forward(
        self,
        x: Float[Tensor, "B L F"] | Int[Tensor, "B L"],
        lengths: Int[Tensor, " B"] | Sequence[int] | None = None,
        mask: Bool[Tensor, "B L"] | None = None,
        rate: float = 1.0,
    ) -> Float[Tensor, "B ... O"]:
        """The prediction for whole sequences: (B, output_size), or (B, L, output_size) without pooling.

        lengths: how many positions of each sequence are real; the others count for nothing.
        mask: the same as a boolean (B, L), for padding at the start or holes.
        rate: step size of the input relative to training: 2.0 when every second sample is left out.
        """
        return self._predicted(self.pooled(x, lengths, mask, rate))

    def pooled(
        self,
        x: Float[Tensor, "B L F"] | Int[Tensor, "B L"],
        lengths: Int[Tensor, " B"] | Sequence[int] | None = None,
        mask: Bool[Tensor, "B L"] | None = None,
        rate: float = 1.0,
    ) -> Float[Tensor, "B ... P"]:
        """What the head reads of whole sequences: vectors that describe them, for a head of your own."""
        self._require_sequence(x)
        mask = position_mask(x, lengths, mask)
        if self.config.vocabulary_size is None:
            x = zero_padding(x, mask)
        encoded = self._encoded(x)
        if self.stem is None:
            return self.pooling(self.stack(encoded, mask=mask, rate=rate), mask)
        at_rate = self.stem.at_rate(rate)
        if mask is not None:
            require_padding_at_end(mask)
            encoded, mask = zero_padding(encoded, mask), mask[:, :: at_rate.stride]
        y = self.pooling(self.stack(self.stem(encoded, at_rate), mask=mask, rate=at_rate.rate), mask)
        if self.config.pooling == "none":
            y = y.repeat_interleave(at_rate.stride, dim=1)[:, : x.shape[1]]
        return y

    def prefill(
        self,
        x: Float[Tensor, "B L F"] | Int[Tensor, "B L"],
        state: State | None = None,
        rate: float = 1.0,
        lengths: Int[Tensor, " B"] | Sequence[int] | None = None,
    ) -> tuple[Float[Tensor, "B ... O"], State]:
        """A chunk of the sequences: the prediction after it and the state.

        lengths: how many positions of each sequence are real; prediction and state are those after the last
            of them. A Transformer and a model with a stem take chunks without padding only.
        """
        self._require_sequence(x)
        state = self.initial_state(x.shape[0]) if state is None else self._checked_state(state, x.shape[0])
        counts = padded_lengths(x, lengths)
        mask = position_mask(x, counts, None)
        if self.config.vocabulary_size is None:
            x = zero_padding(x, mask)
        encoded = self._encoded(x)
        if self.stem is None:
            y, blocks = self.stack.prefill(encoded, state["blocks"], rate, counts)
            pooled, pooling = self.pooling.prefill(y, state["pooling"], mask)
            return self._predicted(pooled), {"blocks": blocks, "pooling": pooling}
        refuse_lengths(counts, "with a stem, sequences at different positions cannot go on together")
        return self._prefill_frames(self.stem, encoded, state, rate)

    def _prefill_frames(
        self, stem: Stem, encoded: Tensor, state: State, rate: float
    ) -> tuple[Float[Tensor, "B ... O"], State]:
        at_rate = stem.at_rate(rate)
        waiting = -stem.position(state["stem"]) % at_rate.stride
        y, stem_state = stem.prefill(encoded, state["stem"], at_rate)
        blocks = state["blocks"]
        if y.shape[1]:
            y, blocks = self.stack.prefill(y, blocks, at_rate.rate)
        pooled, pooling = self.pooling.prefill(y, state["pooling"])
        (held,) = state["held"]
        if self.config.pooling == "none":
            # Until a frame is due, the one before it stands.
            pooled = torch.cat(
                [held[:, None].expand(-1, waiting, -1), y.repeat_interleave(at_rate.stride, dim=1)], dim=1
            )[:, : encoded.shape[1]]
        new: State = {"blocks": blocks, "pooling": pooling, "stem": stem_state}
        new["held"] = (y[:, -1] if y.shape[1] else held,)
        return self._predicted(pooled), new

    def step(
        self, x_t: Float[Tensor, "B F"] | Int[Tensor, " B"], state: State, rate: float = 1.0
    ) -> tuple[Float[Tensor, "B O"], State]:
        """One position: the prediction after it and the next state."""
        self._require_position(x_t)
        state = self._checked_state(state, x_t.shape[0])
        encoded = self._encoded(x_t)
        if self.stem is not None:
            prediction, state = self._prefill_frames(self.stem, encoded[:, None], state, rate)
            return prediction[:, 0] if self.config.pooling == "none" else prediction, state
        y, blocks = self.stack.step(encoded, state["blocks"], rate)
        pooled, pooling = self.pooling.prefill(y[:, None], state["pooling"])
        prediction = self._predicted(pooled[:, 0] if self.config.pooling == "none" else pooled)
        return prediction, {"blocks": blocks, "pooling": pooling}

    def period(self, rate: float = 1.0) -> int:
        """After how many positions a stream is in the same phase again: samples per frame of a stem."""
        return 1 if self.stem is None else self.stem.at_rate(rate).stride

    def initial_state(self, batch_size: int) -> State:
        """The state before the first position: a dictionary of tuples of tensors."""
        state: State = {"blocks": self.stack.initial_state(batch_size)}
        empty = self._weight().new_zeros(batch_size, self.config.features)
        state["pooling"] = self.pooling.initial_state(empty)
        if self.stem is not None:
            state["stem"], state["held"] = self.stem.initial_state(empty), (empty,)
        return state

    def _weight(self) -> Tensor:
        """One that tells the model's place and dtype, even if the head was wrapped or replaced."""
        head = self.head
        return head.weight if type(head) is nn.Linear else next(self.stack.parameters())

    def _encoded(self, x: Tensor) -> Tensor:
        encoded = self.encoder(x if self.input_scaling is None else self.input_scaling.to_network(x))
        return unrounded(encoded, self._weight())

    def _predicted(self, pooled: Tensor) -> Tensor:
        prediction = self.head(pooled)
        return prediction if self.output_scaling is None else self.output_scaling.to_data(prediction)

    def _require_sequence(self, x: Tensor) -> None:
        if self.config.vocabulary_size is None:
            require_sequence(x, self.config.input_features)
            require_dtype(x, self._weight())
            return
        require_tensor("x", x)
        if x.ndim != 2:
            raise ValueError(f"x has shape {tuple(x.shape)}; expected tokens of shape (batch, length).")
        require_positions(x)
        self._require_tokens(x)

    def _require_position(self, x_t: Tensor) -> None:
        if self.config.vocabulary_size is None:
            require_vector(x_t, self.config.input_features)
            require_dtype(x_t, self._weight())
            return
        if x_t.ndim != 1:
            raise ValueError(f"x_t has shape {tuple(x_t.shape)}; expected tokens of shape (batch,).")
        self._require_tokens(x_t)

    def _require_tokens(self, x: Tensor, name: str = "x") -> None:
        size = self.config.vocabulary_size
        if x.dtype not in (torch.int64, torch.int32):
            raise ValueError(
                f"{name} has dtype {x.dtype}; expected tokens as int64 or int32. Try {name}.long()."
            )
        # Reading values would split a compiled graph or wait for a GPU, which checks them by itself.
        if x.device.type == "cpu" and not torch.compiler.is_compiling():
            low, high = int(x.min()), int(x.max())
            if low < 0 or high >= size:  # type: ignore[operator]
                raise ValueError(
                    f"Tokens are between {low} and {high}, but the model knows 0 to {size - 1} "  # type: ignore[operator]
                    f"(vocabulary_size={size})."
                )

    def _checked_state(self, state: State, batch_size: int) -> State:
        entries = {"blocks", "pooling"} if self.stem is None else {"blocks", "pooling", "stem", "held"}
        if not isinstance(state, dict) or set(state) != entries:
            # A bidirectional model has no state at all, and says so here.
            self.initial_state(1)
            raise ValueError(
                f"state is {type(state).__name__}; expected what initial_state, prefill or step returned: "
                f"a dictionary with the entries {', '.join(map(repr, sorted(entries)))}. "
                f"Start with initial_state(batch_size={batch_size})."
            )
        expected = self.pooling.state_size
        if len(state["pooling"]) != expected:
            raise ValueError(
                f"state has {len(state['pooling'])} tensors for pooling; this model has {expected}. "
                f"Start with initial_state(batch_size={batch_size})."
            )
        for tensor in (*state["pooling"], *state.get("stem", ())):
            if tensor.shape[0] != batch_size:
                raise ValueError(
                    f"state belongs to a batch of {tensor.shape[0]}, the input to a batch of {batch_size}. "
                    f"Start with initial_state(batch_size={batch_size})."
                )
        return state
