"""A whole network: encoder, stack of blocks, pooling, head."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from torchs4.layers.block import S4BlockConfig
from torchs4.layers.inputs import (
    position_mask,
    require_dtype,
    require_positions,
    require_sequence,
    require_tensor,
    require_vector,
)
from torchs4.layers.options import merge_options, require_at_least, require_choice, require_config
from torchs4.models.pooling import POOLING_KINDS, PoolingKind, build_pooling
from torchs4.models.pretrained import PretrainedModel
from torchs4.models.stack import BlockStack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Bool, Float, Int

    State = dict[str, tuple[Any, ...]]


@dataclass(frozen=True)
class SequenceModelConfig:
    """Options of a SequenceModel.

    output_size: numbers per prediction: classes, or values to regress.
    input_features: columns of a real input; ignored when vocabulary_size is given.
    vocabulary_size: number of tokens, for inputs (B, L) of integers.
    features: width of the network (H).
    pooling: "mean" or "last" for one prediction per sequence, "none" for one per position.
    """

    output_size: int = 10
    input_features: int = 1
    vocabulary_size: int | None = None
    features: int = 128
    num_layers: int = 4
    block: S4BlockConfig = field(default_factory=S4BlockConfig)
    pooling: PoolingKind = "mean"

    def __post_init__(self) -> None:
        for name in ("output_size", "input_features", "features", "num_layers"):
            require_at_least(name, getattr(self, name), 1)
        if self.vocabulary_size is not None:
            require_at_least("vocabulary_size", self.vocabulary_size, 1)
        require_config("block", self.block, S4BlockConfig)
        require_choice("pooling", self.pooling, POOLING_KINDS)


class SequenceModel(PretrainedModel[SequenceModelConfig]):
    """Predicts from sequences of real vectors (B, L, input_features) or of tokens (B, L).

    `SequenceModel(output_size=10, num_layers=4)`, with SequenceModelConfig's fields as options. With pooling,
    prefill and step return the prediction from everything seen so far; after the last position it is what
    the whole-sequence call returns.
    """

    config_class = SequenceModelConfig

    def __init__(self, config: SequenceModelConfig | None = None, **options: Any) -> None:
        super().__init__()
        self.config = config = merge_options(SequenceModelConfig, config, options)
        self.encoder: nn.Module
        if config.vocabulary_size is None:
            self.encoder = nn.Linear(config.input_features, config.features)
        else:
            self.encoder = nn.Embedding(config.vocabulary_size, config.features)
        self.stack = BlockStack(config.features, config.num_layers, config.block)
        self.pooling = build_pooling(config.pooling)
        self.head = nn.Linear(config.features, config.output_size)

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
        self._require_sequence(x)
        mask = position_mask(x, lengths, mask)
        y = self.stack(self.encoder(x), mask=mask, rate=rate)
        return self.head(self.pooling(y, mask))

    def prefill(
        self,
        x: Float[Tensor, "B L F"] | Int[Tensor, "B L"],
        state: State | None = None,
        rate: float = 1.0,
    ) -> tuple[Float[Tensor, "B ... O"], State]:
        """A chunk of the sequences: the prediction after it and the state."""
        self._require_sequence(x)
        state = self.initial_state(x.shape[0]) if state is None else self._checked_state(state, x.shape[0])
        y, blocks = self.stack.prefill(self.encoder(x), state["blocks"], rate)
        pooled, pooling = self.pooling.prefill(y, state["pooling"])
        return self.head(pooled), {"blocks": blocks, "pooling": pooling}

    def step(
        self, x_t: Float[Tensor, "B F"] | Int[Tensor, " B"], state: State, rate: float = 1.0
    ) -> tuple[Float[Tensor, "B O"], State]:
        """One position: the prediction after it and the next state."""
        self._require_position(x_t)
        state = self._checked_state(state, x_t.shape[0])
        y, blocks = self.stack.step(self.encoder(x_t), state["blocks"], rate)
        pooled, pooling = self.pooling.prefill(y[:, None], state["pooling"])
        prediction = self.head(pooled[:, 0] if self.config.pooling == "none" else pooled)
        return prediction, {"blocks": blocks, "pooling": pooling}

    def initial_state(self, batch_size: int) -> State:
        """The state before the first position: a dictionary of tuples of tensors."""
        blocks = self.stack.initial_state(batch_size)
        empty = self.head.weight.new_zeros(batch_size, self.config.features)
        return {"blocks": blocks, "pooling": self.pooling.initial_state(empty)}

    def _require_sequence(self, x: Tensor) -> None:
        if self.config.vocabulary_size is None:
            require_sequence(x, self.config.input_features)
            require_dtype(x, self.head.weight)
            return
        require_tensor("x", x)
        if x.ndim != 2:
            raise ValueError(f"x has shape {tuple(x.shape)}; expected tokens of shape (batch, length).")
        require_positions(x)
        self._require_tokens(x)

    def _require_position(self, x_t: Tensor) -> None:
        if self.config.vocabulary_size is None:
            require_vector(x_t, self.config.input_features)
            require_dtype(x_t, self.head.weight)
            return
        if x_t.ndim != 1:
            raise ValueError(f"x_t has shape {tuple(x_t.shape)}; expected tokens of shape (batch,).")
        self._require_tokens(x_t)

    def _require_tokens(self, x: Tensor) -> None:
        size = self.config.vocabulary_size
        if x.dtype not in (torch.int64, torch.int32):
            raise ValueError(f"x has dtype {x.dtype}; expected tokens as int64 or int32. Try x.long().")
        # Reading values would split a compiled graph or wait for a GPU, which checks them by itself.
        if x.device.type == "cpu" and not torch.compiler.is_compiling():
            low, high = int(x.min()), int(x.max())
            if low < 0 or high >= size:  # type: ignore[operator]
                raise ValueError(
                    f"Tokens are between {low} and {high}, but the model knows 0 to {size - 1} "  # type: ignore[operator]
                    f"(vocabulary_size={size})."
                )

    def _checked_state(self, state: State, batch_size: int) -> State:
        if not isinstance(state, dict) or set(state) != {"blocks", "pooling"}:
            # A bidirectional model has no state at all, and says so here.
            self.initial_state(1)
            raise ValueError(
                f"state is {type(state).__name__}; expected what initial_state, prefill or step returned: "
                f"a dictionary with the entries 'blocks' and 'pooling'. "
                f"Start with initial_state(batch_size={batch_size})."
            )
        expected = self.pooling.state_size
        if len(state["pooling"]) != expected:
            raise ValueError(
                f"state has {len(state['pooling'])} tensors for pooling; this model has {expected}. "
                f"Start with initial_state(batch_size={batch_size})."
            )
        for tensor in state["pooling"]:
            if tensor.shape[0] != batch_size:
                raise ValueError(
                    f"state belongs to a batch of {tensor.shape[0]}, the input to a batch of {batch_size}. "
                    f"Start with initial_state(batch_size={batch_size})."
                )
        return state
