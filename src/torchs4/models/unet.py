"""A U-Net over time: levels that see longer and longer steps, and give back what they found.

Axes: B batch, L positions, H features, p positions that a level makes one of, F frames.
Frame j of a level sees the positions up to and including number j·p: it is there as soon as that position is,
and serves positions j·p … j·p + p - 1. So no level is later than it has to be, and none sees the future.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from torchs4.layers.block import S4Block, S4BlockConfig, mixed
from torchs4.layers.feed_forward import FeedForward
from torchs4.layers.hooks import run_hooked
from torchs4.layers.inputs import position_mask, require_padding_at_end, require_sequence, require_vector
from torchs4.layers.norms import build_norm, normalise
from torchs4.layers.padded_chunks import padded_lengths, refuse_lengths
from torchs4.layers.precision import unrounded
from torchs4.models.positions import Positions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Bool, Float, Int

    State = dict[str, tuple[Any, ...]]

_ENTRIES = ("blocks", "windows", "held", "position")


class Stage(nn.Module):
    """Blocks of one width, a feed-forward after each: (B, L, H) to (B, L, H)."""

    def __init__(self, features: int, num_layers: int, block: S4BlockConfig, feed_forward: int) -> None:
        super().__init__()
        self.features = features
        self.blocks = nn.ModuleList(S4Block(features, block) for _ in range(num_layers))
        self.feed_forwards = nn.ModuleList(
            FeedForward(features, feed_forward, block) for _ in range(num_layers)
        )

    def forward(
        self, x: Float[Tensor, "B L H"], mask: Bool[Tensor, "B L"] | None, rate: float
    ) -> Float[Tensor, "B L H"]:
        """Whole sequences."""
        for block, feed_forward in self.pairs():
            x = feed_forward(block(x, mask=mask, rate=rate), mask)
        return x

    def stream(
        self, x: Float[Tensor, "B L H"], states: tuple[Any, ...], rate: float
    ) -> tuple[Float[Tensor, "B L H"], tuple[Any, ...]]:
        """A chunk; one of a single position steps, which is cheaper."""
        is_step = x.shape[1] == 1
        x = x[:, 0] if is_step else x
        new_states = []
        for (block, feed_forward), old in zip(self.pairs(), states, strict=True):
            x, new = run_hooked(block, block.step if is_step else block.prefill, x, old, rate)
            x = feed_forward(x)
            new_states.append(new)
        return x[:, None] if is_step else x, tuple(new_states)

    def initial_state(self, batch_size: int) -> tuple[Any, ...]:
        """The state before the first position."""
        return tuple(block.initial_state(batch_size) for block, _ in self.pairs())

    def pairs(self) -> list[tuple[S4Block, FeedForward]]:
        """The blocks and what follows each."""
        return list(
            zip(
                cast("list[S4Block]", self.blocks), cast("list[FeedForward]", self.feed_forwards), strict=True
            )
        )


class Level(nn.Module):
    """What is around a coarser level: blocks on the way down and up, and the maps to it and back."""

    def __init__(self, pool: int, features: int, inner: int, *stage: Any) -> None:
        super().__init__()
        self.pool = pool
        self.down = Stage(features, *stage)
        self.gather = nn.Linear(pool * features, inner)
        self.spread = nn.Linear(inner, pool * features)
        self.up = Stage(features, *stage)

    def frames(
        self, window: Float[Tensor, "B p-1 H"], x: Float[Tensor, "B L H"], count: int
    ) -> Float[Tensor, "B F h"]:
        """The frames that become due in a chunk which `count` positions and their last ones come before."""
        first = -count % self.pool
        due = -(-(x.shape[1] - first) // self.pool)
        series = torch.cat([window, x], dim=1)[:, first : first + due * self.pool]
        frames = mixed(self.gather, series.unflatten(1, (due, self.pool)).flatten(2))
        return unrounded(frames, x)

    def unfold(self, frames: Float[Tensor, "B F h"]) -> Float[Tensor, "B F*p H"]:
        """What frames say to each of the positions that they serve."""
        return mixed(self.spread, frames).unflatten(-1, (self.pool, -1)).flatten(1, 2)


class UNet(nn.Module):
    """Blocks at several lengths of step, (B, L, H) to (B, L, H), causal if the blocks' layers are.

    `num_layers` blocks, then `pools[0]` positions become one of the next width, and so on down to the
    coarsest level; back up, each level adds what the coarser one says and has as many blocks once more.
    The state is a dictionary. Sequences of a batch stand at the same position.
    """

    def __init__(
        self,
        widths: Sequence[int],
        pools: Sequence[int],
        num_layers: int,
        block: S4BlockConfig,
        feed_forward: int = 2,
    ) -> None:
        super().__init__()
        self.features = widths[0]
        stage = num_layers, block, feed_forward
        self.levels = nn.ModuleList(
            Level(pool, width, inner, *stage)
            for pool, width, inner in zip(pools, widths[:-1], widths[1:], strict=True)
        )
        self.centre = Stage(widths[-1], *stage)
        self.norm = build_norm(block.norm, self.features)
        # The finest level's are enough: coarser levels get them with its frames.
        needs_positions = getattr(self.centre.pairs()[0][0].layer, "needs_positions", False)
        self.positions = Positions(self.features) if needs_positions else None
        self.period = math.prod(pools)

    def forward(
        self,
        x: Float[Tensor, "B L H"],
        lengths: Int[Tensor, " B"] | Sequence[int] | None = None,
        mask: Bool[Tensor, "B L"] | None = None,
        rate: float = 1.0,
    ) -> Float[Tensor, "B L H"]:
        """The whole sequence at once; padding may be at the end only."""
        require_sequence(x, self.features)
        mask = position_mask(x, lengths, mask)
        if mask is not None:
            require_padding_at_end(mask)
        if self.positions is not None:
            x = self.positions(x, mask)
        skips = []
        for level in self._levels():
            x = level.down(x, mask, rate)
            skips.append((x, mask))
            x = level.frames(x.new_zeros(x.shape[0], level.pool - 1, x.shape[2]), x, 0)
            mask = None if mask is None else mask[:, :: level.pool]
        x = self.centre(x, mask, rate)
        for level, (skip, mask) in zip(reversed(self._levels()), reversed(skips), strict=True):
            x = level.up(skip + level.unfold(x)[:, : skip.shape[1]], mask, rate)
        return normalise(self.norm, x, mask)

    def prefill(
        self,
        x: Float[Tensor, "B L H"],
        state: State | None = None,
        rate: float = 1.0,
        lengths: Int[Tensor, " B"] | Sequence[int] | None = None,
    ) -> tuple[Float[Tensor, "B L H"], State]:
        """A chunk of the sequence: its outputs and the state after it."""
        require_sequence(x, self.features)
        refuse_lengths(
            padded_lengths(x, lengths),
            "in a U-Net, sequences at different positions cannot go on together",
        )
        old = self.initial_state(x.shape[0]) if state is None else self._checked_state(state)
        count = self._position(old)
        memory = _Memory(*(list(old[name]) for name in _ENTRIES[:3]))
        position = old["position"][0] + x.shape[1]
        if self.positions is not None:
            x, _ = self.positions.go_on(x, old["position"][0])
        y = self._stream(0, x, memory, count, rate)
        new = tuple(memory.blocks), tuple(memory.windows), tuple(memory.held), (position,)
        return normalise(self.norm, y), dict(zip(_ENTRIES, new, strict=True))

    def step(
        self, x_t: Float[Tensor, "B H"], state: State, rate: float = 1.0
    ) -> tuple[Float[Tensor, "B H"], State]:
        """One position: its output and the next state. Coarser levels step only when a frame is due."""
        require_vector(x_t, self.features)
        y, state = self.prefill(x_t[:, None], state, rate)
        return y[:, 0], state

    def _stream(
        self, number: int, x: Float[Tensor, "B L H"], memory: _Memory, count: int, rate: float
    ) -> Float[Tensor, "B L H"]:
        """A chunk through a level and all that are coarser, after `count` positions of that level."""
        blocks, levels, length = memory.blocks, self._levels(), x.shape[1]
        if number == len(levels):
            x, blocks[number] = self.centre.stream(x, blocks[number], rate)
            return x
        level = levels[number]
        x, blocks[number] = level.down.stream(x, blocks[number], rate)
        window, held = memory.windows[number], memory.held[number]
        memory.windows[number] = torch.cat([window, x], dim=1)[:, length:]
        waiting = -count % level.pool
        # Until a frame is due, the one before it has told what it knew.
        told = held[:, level.pool - waiting :][:, :length]
        if waiting < length:
            frames = level.frames(window, x, count)
            served = level.unfold(self._stream(number + 1, frames, memory, -(-count // level.pool), rate))
            memory.held[number] = served[:, -level.pool :]
            told = torch.cat([told, served], dim=1)[:, :length]
        way_up = 2 * len(levels) - number
        x, blocks[way_up] = level.up.stream(x + told, blocks[way_up], rate)
        return x

    @property
    def causal(self) -> bool:
        """Whether an output depends on nothing that comes after it."""
        return all(block.causal for stage in self._stages() for block, _ in stage.pairs())

    def initial_state(self, batch_size: int) -> State:
        """The state before the first position.

        blocks: of every stage, in the order in which a signal goes through them. windows: the last positions
        of each level, of which its next frame will be made. held: what its last frame told. position: how
        many positions there were, as far as it matters.
        """
        empty = self._levels()[0].gather.weight.new_zeros
        widths = [level.down.features for level in self._levels()]
        pools = [level.pool for level in self._levels()]
        return {
            "blocks": tuple(stage.initial_state(batch_size) for stage in self._stages()),
            "windows": tuple(
                empty(batch_size, pool - 1, width) for pool, width in zip(pools, widths, strict=True)
            ),
            "held": tuple(empty(batch_size, pool, width) for pool, width in zip(pools, widths, strict=True)),
            "position": (empty(batch_size, dtype=torch.int64),),
        }

    def _levels(self) -> list[Level]:
        return cast("list[Level]", list(self.levels))

    def _stages(self) -> list[Stage]:
        levels = self._levels()
        return [
            *(level.down for level in levels),
            self.centre,
            *(level.up for level in reversed(levels)),
        ]

    def _position(self, state: State) -> int:
        (position,) = state["position"]
        # Only when frames are due matters here.
        first = int(position[0]) % self.period
        if bool(((position - first) % self.period != 0).any()):
            raise ValueError(
                f"The sequences of this state are at different positions ({position.tolist()}): in a U-Net, "
                f"frames are due at different times. Step sequences together that began together."
            )
        return first

    def _checked_state(self, state: Any) -> State:
        if not isinstance(state, dict) or set(state) != set(_ENTRIES):
            # A bidirectional U-Net has no state at all, and says so here.
            self.initial_state(1)
            raise ValueError(
                f"state is {type(state).__name__}; expected what initial_state, prefill or step returned: a "
                f"dictionary with the entries {', '.join(map(repr, _ENTRIES))}."
            )
        levels = len(self._levels())
        sizes = dict(zip(_ENTRIES, (2 * levels + 1, levels, levels, 1), strict=True))
        for name, size in sizes.items():
            if len(state[name]) != size:
                raise ValueError(
                    f"state has {len(state[name])} entries in {name!r}; this U-Net has {size}. It belongs to "
                    f"another model: start with initial_state(batch_size)."
                )
        return state


class _Memory(NamedTuple):
    """A state while it changes, level by level."""

    blocks: list[Any]
    windows: list[Tensor]
    held: list[Tensor]
