"""Groups of blocks, a position-wise feed-forward after each group, and a final norm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from torch import Tensor, nn

from torchs4.layers.feed_forward import FeedForward
from torchs4.layers.hooks import run_hooked
from torchs4.layers.inputs import position_mask, require_sequence, require_vector
from torchs4.layers.norms import build_norm, normalise
from torchs4.layers.padded_chunks import padded_lengths, with_lengths
from torchs4.models.stack import BlockStack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Bool, Float, Int

    from torchs4.layers.block import S4Block, S4BlockConfig


class FeedForwardStack(nn.Module):
    """`num_layers` blocks, (B, L, H) to (B, L, H), with a feed-forward after every `every` and at the end.

    It has the verbs of a BlockStack. The state is the tuple of the groups' states: a feed-forward remembers
    nothing. The blocks of a group step in one call.
    """

    def __init__(
        self, features: int, num_layers: int, block: S4BlockConfig, widening: int = 4, every: int = 2
    ) -> None:
        super().__init__()
        self.features = features
        self.groups = nn.ModuleList(
            BlockStack(features, min(every, num_layers - done), block, begins=done == 0, ends=False)
            for done in range(0, num_layers, every)
        )
        self.feed_forwards = nn.ModuleList(FeedForward(features, widening, block) for _ in self.groups)
        self.norm = build_norm(block.norm, features)

    def forward(
        self,
        x: Float[Tensor, "B L H"],
        lengths: Int[Tensor, " B"] | Sequence[int] | None = None,
        mask: Bool[Tensor, "B L"] | None = None,
        rate: float = 1.0,
    ) -> Float[Tensor, "B L H"]:
        """The whole sequence at once."""
        require_sequence(x, self.features)
        mask = position_mask(x, lengths, mask)
        for group, feed_forward in self._pairs():
            x = feed_forward(group(x, mask=mask, rate=rate), mask)
        return normalise(self.norm, x, mask)

    def prefill(
        self,
        x: Float[Tensor, "B L H"],
        state: tuple[Any, ...] | None = None,
        rate: float = 1.0,
        lengths: Int[Tensor, " B"] | Sequence[int] | None = None,
    ) -> tuple[Float[Tensor, "B L H"], tuple[Any, ...]]:
        """A chunk of the sequence: its outputs and the state after it, or after so many of its positions."""
        require_sequence(x, self.features)
        counts = padded_lengths(x, lengths)
        mask = position_mask(x, counts, None)
        state = self.initial_state(x.shape[0]) if state is None else state
        new_states = []
        for (group, feed_forward), old in zip(self._pairs(), self._checked_state(state), strict=True):
            x, new = run_hooked(group, with_lengths(group.prefill, counts), x, old, rate)
            x = feed_forward(x, mask)
            new_states.append(new)
        return normalise(self.norm, x, mask), tuple(new_states)

    def step(
        self, x_t: Float[Tensor, "B H"], state: tuple[Any, ...], rate: float = 1.0
    ) -> tuple[Float[Tensor, "B H"], tuple[Any, ...]]:
        """One position: its output and the next state."""
        require_vector(x_t, self.features)
        new_states = []
        for (group, feed_forward), old in zip(self._pairs(), self._checked_state(state), strict=True):
            x_t, new = run_hooked(group, group.step, x_t, old, rate)
            x_t = feed_forward(x_t)
            new_states.append(new)
        return normalise(self.norm, x_t), tuple(new_states)

    @property
    def causal(self) -> bool:
        """Whether an output depends on nothing that comes after it."""
        return all(group.causal for group, _ in self._pairs())

    @property
    def blocks(self) -> list[S4Block]:
        """All blocks, in the order in which a signal goes through them."""
        return [cast("S4Block", block) for group, _ in self._pairs() for block in group.blocks]

    def initial_state(self, batch_size: int) -> tuple[Any, ...]:
        """The state before the first position."""
        return tuple(group.initial_state(batch_size) for group, _ in self._pairs())

    def _pairs(self) -> list[tuple[BlockStack, FeedForward]]:
        groups = cast("list[BlockStack]", list(self.groups))
        return list(zip(groups, cast("list[FeedForward]", list(self.feed_forwards)), strict=True))

    def _checked_state(self, state: Any) -> tuple[Any, ...]:
        if not isinstance(state, tuple | list) or len(state) != len(self.groups):
            # A bidirectional stack has no state at all, and says so here.
            self.initial_state(1)
            received = f"{len(state)} entries" if isinstance(state, tuple | list) else type(state).__name__
            raise ValueError(
                f"state is {received}; expected a tuple with one entry for each of the {len(self.groups)} "
                f"groups of blocks, as initial_state, prefill and step return it."
            )
        return tuple(state)
