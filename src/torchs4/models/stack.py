"""Blocks one after the other, with the final norm that pre-norm blocks need."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast

import torch
from torch import Tensor, nn

from torchs4.configuration import require_at_least
from torchs4.layers.block import S4Block, S4BlockConfig
from torchs4.layers.fused_steps import FusedSteps
from torchs4.layers.hooks import run_hooked
from torchs4.layers.inputs import position_mask, require_sequence, require_vector
from torchs4.layers.norms import build_norm, normalise, usual_norm
from torchs4.layers.padded_chunks import padded_lengths, with_lengths
from torchs4.layers.placement import drawn_on_cpu
from torchs4.models.graph_watch import GraphWatch
from torchs4.models.positions import Positions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Bool, Float, Int


class BlockStack(nn.Module):
    """`num_layers` equal blocks, (B, L, H) to (B, L, H). Its state is the tuple of the blocks' states.

    Where their layers do not know where a position is, positions are added first; how many have been is then
    the last entry of the state.

    begins: whether positions are added, if at all; not where other blocks came before.
    ends: whether what pre-norm blocks give is normalised; not where other blocks follow.
    """

    def __init__(
        self,
        features: int,
        num_layers: int,
        block: S4BlockConfig,
        *,
        begins: bool = True,
        ends: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        with drawn_on_cpu(self, device, dtype):
            super().__init__()
            require_at_least("num_layers", num_layers, 1)
            self.features = features
            self.blocks = nn.ModuleList(S4Block(features, block) for _ in range(num_layers))
            # Post-norm blocks have normalised their output already.
            self.norm = build_norm(block.norm if block.pre_norm and ends else "none", features)
            needs_positions = any(getattr(block.layer, "needs_positions", False) for block in self.blocks)
            self.positions = Positions(features) if begins and needs_positions else None
            self._fused_steps = FusedSteps()
            self._graph_watch = GraphWatch()

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
        if self.positions is not None:
            x = self.positions(x, mask)
        for block in self._ordered_blocks():
            x = block(x, mask=mask, rate=rate)
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
        old_states = self.initial_state(x.shape[0]) if state is None else self._checked_state(state)
        new_states: list[Any] = []
        old_states, seen = self._parted(old_states)
        if self.positions is not None:
            x, seen = self.positions.go_on(x, seen, counts)
        for block, old in zip(self._ordered_blocks(), old_states, strict=True):
            x, new = run_hooked(block, with_lengths(block.prefill, counts), x, old, rate)
            new_states.append(new)
        return normalise(self.norm, x, position_mask(x, counts, None)), self._whole(new_states, seen)

    def step(
        self, x_t: Float[Tensor, "B H"], state: tuple[Any, ...], rate: float = 1.0
    ) -> tuple[Float[Tensor, "B H"], tuple[Any, ...]]:
        """One position: its output and the next state."""
        require_vector(x_t, self.features)
        old_states, blocks = self._checked_state(state), self._ordered_blocks()
        # Somebody may have put another module in the place of a block.
        parts = [block.step_parts() if isinstance(block, S4Block) else None for block in blocks]
        final_norm = usual_norm(self.norm)
        prepared = self._fused_steps.prepare(parts, x_t, rate, final_norm)
        if prepared is not None:
            for block, old in zip(blocks, old_states, strict=True):
                block.layer.require_own_state(old, x_t.shape[0])
            y, states = prepared.step(x_t, old_states)
            return (normalise(self.norm, y) if final_norm is None else y), tuple(states)
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            self._graph_watch.saw(old_states)
        new_states = []
        old_states, seen = self._parted(old_states)
        if self.positions is not None:
            x, seen = self.positions.go_on(x_t[:, None], seen)
            x_t = x[:, 0]
        for block, old in zip(blocks, old_states, strict=True):
            x_t, new = run_hooked(block, block.step, x_t, old, rate)
            new_states.append(new)
        return normalise(self.norm, x_t), self._whole(new_states, seen)

    def train(self, mode: bool = True) -> Self:
        """Training or, by `eval`, evaluation; steps are made ready anew."""
        self._fused_steps.forget()
        return super().train(mode)

    @property
    def causal(self) -> bool:
        """Whether an output depends on nothing that comes after it."""
        return all(block.causal for block in self._ordered_blocks())

    def initial_state(self, batch_size: int) -> tuple[Any, ...]:
        """The state before the first position."""
        states = [block.initial_state(batch_size) for block in self._ordered_blocks()]
        seen = None if self.positions is None else self.positions.none_yet(batch_size, self._device())
        return self._whole(states, seen)

    def _ordered_blocks(self) -> list[S4Block]:
        return cast("list[S4Block]", list(self.blocks))

    def _device(self) -> torch.device:
        return next((weight.device for weight in self.parameters()), torch.device("cpu"))

    def _parted(self, state: tuple[Any, ...]) -> tuple[tuple[Any, ...], Any]:
        """The blocks' states, and how many positions have been, where that is kept."""
        return (state, None) if self.positions is None else (state[:-1], state[-1])

    def _whole(self, states: list[Any], seen: Tensor | None) -> tuple[Any, ...]:
        return tuple(states) if seen is None else (*states, seen)

    def _checked_state(self, state: Any) -> tuple[Any, ...]:
        entries = len(self.blocks) + (self.positions is not None)
        if not isinstance(state, tuple | list) or len(state) != entries:
            # A bidirectional stack has no state at all, and says so here.
            self.initial_state(1)
            received = f"{len(state)} entries" if isinstance(state, tuple | list) else type(state).__name__
            raise ValueError(
                f"state is {received}; expected a tuple with one entry for each of the {len(self.blocks)} "
                f"blocks{'' if self.positions is None else ' and one for the position'}, as initial_state, "
                f"prefill and step return it."
            )
        return tuple(state)
