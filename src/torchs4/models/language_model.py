"""A language model: which token comes next, among as many as a language has words."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from torchs4.configuration import FROM_DATA, require_whole
from torchs4.layers.block import SequenceDropout
from torchs4.layers.inputs import position_mask
from torchs4.layers.precision import unrounded
from torchs4.layers.signatures import lists_options
from torchs4.models.adaptive import AdaptiveTable, band_borders, band_widths
from torchs4.models.feed_forward_stack import FeedForwardStack
from torchs4.models.pooling import PoolingKind, build_pooling
from torchs4.models.sequence_model import SequenceModel, SequenceModelConfig
from torchs4.models.stack import BlockStack

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch
    from jaxtyping import Float, Int

    from torchs4.models.sequence_model import State


@dataclass(frozen=True)
class LanguageModelConfig(SequenceModelConfig):
    """Options of a LanguageModel: those of a SequenceModel, and its vocabulary and feed-forwards.

    cutoffs: where rarer tokens begin, which get narrower vectors: 20000 40000 200000. Tokens are numbered by
        how frequent they are. Those beyond the vocabulary count for nothing; without any, all are alike.
    division: how many times as narrow the vectors of each band of rarer tokens are.
    feed_forward: how many times as wide a feed-forward is inside; 0 leaves them out.
    feed_forward_every: a feed-forward follows so many blocks, and the last ones.
    """

    output_size: int = field(default=1, metadata=FROM_DATA)
    pooling: PoolingKind = "none"
    cutoffs: tuple[int, ...] = ()
    division: int = 4
    feed_forward: int = 4
    feed_forward_every: int = 2

    def __post_init__(self) -> None:
        if self.vocabulary_size is not None and self.output_size == 1:
            # A language model predicts what it reads.
            object.__setattr__(self, "output_size", self.vocabulary_size)
        super().__post_init__()
        # A list, as JSON has it, would make the configuration unhashable.
        object.__setattr__(self, "cutoffs", tuple(self.cutoffs))
        band_borders(self.vocabulary_size or 1, self.cutoffs, self.division)
        require_whole("feed_forward", self.feed_forward, 0)
        require_whole("feed_forward_every", self.feed_forward_every, 1)
        if self.vocabulary_size is not None and self.output_size != self.vocabulary_size:
            raise ValueError(
                f"output_size is {self.output_size}, vocabulary_size {self.vocabulary_size}: a language "
                f"model predicts the tokens that it reads. Leave output_size out."
            )
        if self.pooling != "none":
            raise ValueError(
                f"pooling is {self.pooling!r}: a language model predicts at every position. Leave it out, or "
                f"choose a SequenceModel."
            )
        if self.stem:
            raise ValueError(f"stem is {self.stem}: a language model reads every token. Leave it out.")
        if self.feed_forward and not (self.block.pre_norm and self.block.residual):
            raise ValueError(
                "Blocks between feed-forwards normalise before they compute and add to what they got: leave "
                "pre_norm and residual True, or choose feed_forward 0."
            )

    def least_weights(self) -> int:
        """How many weights such a model has at least."""
        table = 0
        if self.vocabulary_size is not None:
            bands = list(pairwise(band_borders(self.vocabulary_size, self.cutoffs, self.division)))
            widths = band_widths(self.features, len(bands), self.division)
            table = sum((stop - start) * width for (start, stop), width in zip(bands, widths, strict=True))
        state_size = getattr(self.block.layer, "state_size", 0)
        groups = -(-self.num_layers // self.feed_forward_every) if self.feed_forward else 0
        return table + self.features * (
            self.num_layers * (self.features + state_size) + 2 * groups * self.feed_forward * self.features
        )


class LanguageModel(SequenceModel):
    """How likely each token is to come next, from tokens (B, L): logarithms, (B, L, vocabulary_size).

    `LanguageModel(vocabulary_size=10_000, cutoffs=(2000,), features=256, num_layers=4)`. It has the verbs of
    a SequenceModel. Input and output share one table of vectors. Training need not hold all logarithms at
    once: `token_losses` gives those of the tokens that came.
    """

    config_class = LanguageModelConfig
    config: LanguageModelConfig

    @lists_options(LanguageModelConfig)
    def __init__(
        self,
        config: LanguageModelConfig | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        super().__init__(config, device=device, dtype=dtype, **options)

    def _build(self, config: LanguageModelConfig) -> None:  # type: ignore[override]
        if config.vocabulary_size is None:
            raise ValueError("vocabulary_size is missing: say how many tokens a language model is to know.")
        # Both ends are one table, which stands in one place.
        self.encoder = self.head = nn.Identity()
        self.table = AdaptiveTable(config.vocabulary_size, config.features, config.cutoffs, config.division)
        self.dropout = SequenceDropout(config.block.dropout, config.block.tied_dropout)
        self.stem = None
        self.stack = self._build_stack(config)
        if not self.stack.causal:
            raise ValueError(
                f"{type(config.block.layer).__name__} sees the future here (bidirectional is True), where a "
                f"language model would find its answers. Set bidirectional to False, or choose another layer."
            )
        self.pooling = build_pooling("none", config.features)
        self.input_scaling = self.output_scaling = None

    def _build_stack(self, config: LanguageModelConfig) -> FeedForwardStack | BlockStack:
        if not config.feed_forward:
            return BlockStack(config.features, config.num_layers, config.block)
        return FeedForwardStack(
            config.features, config.num_layers, config.block, config.feed_forward, config.feed_forward_every
        )

    def token_losses(
        self,
        x: Int[Tensor, "B L"],
        targets: Int[Tensor, "B L"],
        lengths: Int[Tensor, " B"] | Sequence[int] | None = None,
        rate: float = 1.0,
    ) -> Float[Tensor, "B L"]:
        """For whole sequences, the negative logarithm of how likely each target was held to be."""
        self._require_sequence(x)
        self._require_targets(x, targets)
        mask = position_mask(x, lengths, None)
        hidden = self.stack(self._encoded(x), mask=mask, rate=rate)
        return self.table.losses(self.dropout(hidden), targets)

    def prefill_losses(
        self, x: Int[Tensor, "B L"], targets: Int[Tensor, "B L"], state: State | None = None
    ) -> tuple[Float[Tensor, "B L"], State]:
        """The same for a chunk, and the state after it."""
        self._require_sequence(x)
        self._require_targets(x, targets)
        state = self.initial_state(x.shape[0]) if state is None else self._checked_state(state, x.shape[0])
        hidden, blocks = self.stack.prefill(self._encoded(x), state["blocks"])
        return self.table.losses(self.dropout(hidden), targets), {**state, "blocks": blocks}

    def write(
        self, x_t: Int[Tensor, " B"], state: State, generator: torch.Generator | None = None
    ) -> tuple[Int[Tensor, " B"], State]:
        """One token further: the next token of each text, drawn, and the next state.

        As likely as `step` says, but without how likely all others are: of rare bands, only those that are
        drawn from are looked at.
        """
        self._require_position(x_t)
        state = self._checked_state(state, x_t.shape[0])
        hidden, blocks = self.stack.step(self._encoded(x_t), state["blocks"])
        return self.table.draw(self.dropout(hidden), generator), {**state, "blocks": blocks}

    def _require_targets(self, x: Tensor, targets: Tensor) -> None:
        if targets.shape != x.shape:
            raise ValueError(
                f"targets have shape {tuple(targets.shape)} and x {tuple(x.shape)}: each position asks for "
                f"one token, the one that comes next. Read tokens[:, :-1] and ask for tokens[:, 1:]."
            )
        self._require_tokens(targets, "targets")

    def _encoded(self, x: Tensor) -> Tensor:
        return self.dropout(unrounded(self.table.embed(x), self._weight()))

    def _predicted(self, pooled: Tensor) -> Tensor:
        return self.table.log_probabilities(self.dropout(pooled))
