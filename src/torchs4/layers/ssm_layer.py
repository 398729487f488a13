"""What S4, S4D and LSSL share: one state-space model per feature, seen as convolution, chunks or steps."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypedDict

import torch
from torch import Tensor, nn

from torchs4 import ops
from torchs4.configuration import require_at_least
from torchs4.layers.inputs import (
    position_mask,
    require_causal,
    require_rate,
    require_sequence,
    require_state,
    require_vector,
)
from torchs4.layers.padded_chunks import BLOCK, padded_lengths, pass_each_to_its_end
from torchs4.layers.padding import zero_padding
from torchs4.layers.precision import full_precision
from torchs4.layers.weight_cache import WeightCache, weight_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxtyping import Bool, Float, Int

_LONGEST_BLOCK = 96
# Blocks need no kernel, whose cost the sequences of a batch share: only few of them gain.
_FEW = 2


@dataclass(frozen=True)
class SSMConfig:
    """Options that every state-space layer has.

    state_size: numbers that each feature remembers of the past (N).
    min_step_size, max_step_size: Δ starts log-uniform between them, one per feature. A feature with step size
        Δ remembers about 1/Δ samples.
    per_feature: one A and B for each feature instead of one for all. Δ and C are always one per feature.
    channels: outputs per feature; the layer's output has channels·features columns.
    bidirectional: a second kernel looks at the future; such a layer cannot stream.
    train_state_matrix, train_input_matrix, train_step_size: whether A, B and Δ are trained or stay fixed.
    """

    state_size: int = 64
    min_step_size: float = 0.001
    max_step_size: float = 0.1
    per_feature: bool = False
    channels: int = 1
    bidirectional: bool = False
    train_state_matrix: bool = True
    train_input_matrix: bool = True
    train_step_size: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.state_size, int):
            raise ValueError(f"state_size is {self.state_size!r}; it must be a whole number.")
        require_at_least("state_size", self.state_size, 1)
        require_at_least("channels", self.channels, 1)
        low, high = self.min_step_size, self.max_step_size
        if not (0 < low <= high < math.inf):
            raise ValueError(
                f"Step sizes range from min_step_size={low} to max_step_size={high}; they must satisfy "
                f"0 < min ≤ max < ∞. The usual range is 0.001 to 0.1."
            )

    @property
    def output_rows(self) -> int:
        """How many rows C has for each feature: one per channel and direction."""
        return self.channels * (2 if self.bidirectional else 1)


class SSMOptions(TypedDict, total=False):
    """SSMConfig's fields, as keyword arguments that an editor completes."""

    state_size: int
    min_step_size: float
    max_step_size: float
    per_feature: bool
    channels: int
    bidirectional: bool
    train_state_matrix: bool
    train_input_matrix: bool
    train_step_size: bool


class SSMLayer(nn.Module, ABC):
    """Maps (B, L, H) to (B, L, channels·H) with an independent linear system for each feature.

    `forward`, `prefill` in any chunks and `step` give the same outputs. Nothing has to be set up between
    training and stepping: what is derived from the weights is recomputed when they change.

    The system's own weights (A, B, C, Δ and what else `ssm_parameters` names) stay in float32 when a model
    is cast to half precision: a frequency that is a little off is far off after some hundred samples. The
    skip D is cast like any weight, and outputs have the input's dtype.
    """

    def __init__(self, features: int, config: SSMConfig) -> None:
        super().__init__()
        require_at_least("features", features, 1)
        self.features = features
        self.state_size = config.state_size
        self.channels = config.channels
        self.bidirectional = config.bidirectional
        self.D = nn.Parameter(torch.randn(config.channels, features))
        log_step_size = torch.empty(features, dtype=system_dtype()).uniform_(
            math.log(config.min_step_size), math.log(config.max_step_size)
        )
        self.log_step_size = real_parameter(log_step_size, config.train_step_size)
        self._cache = WeightCache()

    @property
    def causal(self) -> bool:
        """Whether an output depends on nothing that comes after it."""
        return not self.bidirectional

    @property
    def output_features(self) -> int:
        """The size of the output's last axis."""
        return self.channels * self.features

    # The names of the system's own parameters.
    _system_names: tuple[str, ...] = ()
    # From how many samples per sequence on training by blocks is faster than by a kernel; None is never.
    _blocks_pay_from: int | None = None

    def ssm_parameters(self) -> dict[str, nn.Parameter]:
        """The system's own parameters by name: they train with their own rate and without decay."""
        return dict(zip(self._system_names, self.system_weights(), strict=True))

    def system_weights(self) -> list[nn.Parameter]:
        """The system's own parameters."""
        return [weight_of(self, name) for name in self._system_names]

    @abstractmethod
    def _kernel(self, length: int, rate: float) -> Float[Tensor, "M H L"]: ...

    @abstractmethod
    def _recurrence(self, rate: float) -> tuple[Any, Float[Tensor, "M H N"]]:
        """The discrete system in the form that `_advance` takes, and its output rows."""

    @abstractmethod
    def _advance(
        self, system: Any, C: Tensor, u: Float[Tensor, "B H"], state: Float[Tensor, "B H N"]
    ) -> tuple[Float[Tensor, "B M H"], Float[Tensor, "B H N"]]:
        """One step, skip included."""

    @abstractmethod
    def chunk_operators(self, block: int, rate: float) -> ops.ChunkOperators:
        """What a block of so many samples does to outputs and state, computed anew."""

    def kernel(self, length: int, rate: float = 1.0) -> Float[Tensor, "M H L"]:
        """The convolution kernels, one per output channel and feature; backward ones come last."""
        require_rate(rate)
        if length < 1:
            raise ValueError(f"length is {length}; a kernel has at least one sample.")
        with full_precision(self.D):
            # A copy: writing into it must not change what the layer remembers.
            return self._cached_kernel(length, rate).clone()

    def forward(
        self,
        x: Float[Tensor, "B L H"],
        lengths: Int[Tensor, " B"] | Sequence[int] | None = None,
        mask: Bool[Tensor, "B L"] | None = None,
        rate: float = 1.0,
    ) -> Float[Tensor, "B L O"]:
        """The whole sequence at once. Positions outside `lengths` or `mask` count as zero."""
        require_sequence(x, self.features)
        require_rate(rate)
        mask = position_mask(x, lengths, mask)
        x = zero_padding(x, mask)
        with full_precision(x):
            if self._blocks_beat_convolution(x):
                state = self.initial_state(x.shape[0])
                y, _ = self._pass_blocks("blocks", BLOCK, x.to(state.dtype), state, rate)
                return y.flatten(-2).to(x.dtype)
            kernel = self._cached_kernel(x.shape[1], rate)
            forward, backward = kernel.chunk(2) if self.bidirectional else (kernel, None)
            y = ops.long_convolution(x, forward, backward, self.D)
            return y.flatten(-2).to(x.dtype)

    def prefill(
        self,
        x: Float[Tensor, "B L H"],
        state: Float[Tensor, "B H N"] | None = None,
        rate: float = 1.0,
        lengths: Int[Tensor, " B"] | Sequence[int] | None = None,
    ) -> tuple[Float[Tensor, "B L O"], Float[Tensor, "B H N"]]:
        """A chunk of the sequence: its outputs and the state after it. Differentiable, state included.

        lengths: how many positions of each sequence are real; the state is the one after the last of them.
        """
        require_sequence(x, self.features)
        require_rate(rate)
        state = self._checked_state(state, x.shape[0])
        counts = padded_lengths(x, lengths)
        if counts is not None:
            return self._prefill_padded(x, counts, state, rate)
        length = x.shape[1]
        block = _block_size(length)
        rest = length % block
        with full_precision(x):
            u = x.to(state.dtype)
            y, state = self._pass_blocks("blocks", block, u[:, : length - rest], state, rate)
            if rest:
                last, state = self._pass_blocks("rest", rest, u[:, length - rest :], state, rate)
                y = torch.cat([y, last], dim=1)
            return y.flatten(-2).to(x.dtype), state

    def _prefill_padded(
        self, x: Tensor, lengths: Int[Tensor, " B"], state: Tensor, rate: float
    ) -> tuple[Tensor, Tensor]:
        u = zero_padding(x, position_mask(x, lengths, None))
        with full_precision(x):
            y, state = pass_each_to_its_end(
                lambda block, part, old: self._pass_blocks("blocks", block, part, old, rate),
                u.to(state.dtype),
                lengths,
                state,
            )
            return y.flatten(-2).to(x.dtype), state

    def step(
        self, x_t: Float[Tensor, "B H"], state: Float[Tensor, "B H N"], rate: float = 1.0
    ) -> tuple[Float[Tensor, "B O"], Float[Tensor, "B H N"]]:
        """One position: its output and the next state, in time and memory that do not grow."""
        require_vector(x_t, self.features)
        self.require_own_state(state, x_t.shape[0])
        with full_precision(x_t):
            system, C = self.recurrence(rate)
            y, state = self._advance(system, C, x_t.to(state.dtype), state)
            return y.flatten(-2).to(x_t.dtype), state

    def recurrence(self, rate: float) -> tuple[Any, Float[Tensor, "M H N"]]:
        """The discrete system that moves a state one step on, and its output rows."""
        require_rate(rate)
        require_causal(self.causal)
        return self._cache.get("recurrence", rate, self.system_weights(), lambda: self._recurrence(rate))

    def initial_state(self, batch_size: int) -> Float[Tensor, "B H N"]:
        """The state before the first sample: zeros, in the weights' place and at least float32."""
        require_causal(self.causal)
        require_at_least("batch_size", batch_size, 1)
        return self.D.new_zeros(batch_size, self.features, self.state_size, dtype=ops.kernel_dtype(self.D))

    def train(self, mode: bool = True) -> Self:
        """Training or, by `eval`, evaluation; what was derived from the weights is derived anew."""
        self._cache.forget()
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # Everything that moves or casts a module comes through here.
        own = [weight for name in self._system_names if (weight := self._parameters.get(name)) is not None]
        exact = [*own, *(weight.grad for weight in own if weight.grad is not None)]

        def without_rounding(x: Tensor) -> Tensor:
            moved = fn(x)
            if moved.dtype.itemsize < torch.float32.itemsize and any(x is kept for kept in exact):
                return x.to(moved.device, torch.float32)
            return moved

        return super()._apply(without_rounding, recurse)

    def _cached_kernel(self, length: int, rate: float) -> Float[Tensor, "M H L"]:
        return self._cache.get(
            "kernel", (length, rate), self.system_weights(), lambda: self._kernel(length, rate)
        )

    def _blocks_beat_convolution(self, x: Tensor) -> bool:
        """Whether x are so few and so long sequences to train on that making their kernel would not pay."""
        if not torch.is_grad_enabled() or torch.compiler.is_compiling():
            # A kernel that is remembered costs nothing, and a graph must not depend on lengths.
            return False
        if self._blocks_pay_from is None or self.bidirectional or ops.implementation_on(x.device) != "cpu":
            return False
        batch, length, _ = x.shape
        return batch <= _FEW and length >= batch * self._blocks_pay_from

    def _pass_blocks(
        self, slot: str, block: int, u: Tensor, state: Tensor, rate: float
    ) -> tuple[Float[Tensor, "B L M H"], Float[Tensor, "B H N"]]:
        operators = self._cache.get(
            slot, (block, rate), self.system_weights(), lambda: self.chunk_operators(block, rate)
        )
        return ops.chunk_pass(operators, self.D, u, state)

    def _step_sizes(self, rate: float) -> Float[Tensor, " H"]:
        return self.log_step_size.exp() * rate

    def _checked_state(self, state: Tensor | None, batch_size: int) -> Tensor:
        if state is None:
            return self.initial_state(batch_size)
        self.require_own_state(state, batch_size)
        return state

    def require_own_state(self, state: Tensor, batch_size: int) -> None:
        """A state must fit this layer, which must have one at all, and this batch."""
        require_causal(self.causal)
        shape = (batch_size, self.features, self.state_size)
        require_state(state, shape, ops.kernel_dtype(self.D))

    def extra_repr(self) -> str:
        """The options that are not visible as submodules."""
        text = f"features={self.features}, state_size={self.state_size}"
        if self.channels > 1:
            text += f", channels={self.channels}"
        return text + (", bidirectional=True" if self.bidirectional else "")


def system_dtype() -> torch.dtype:
    """What a system's weights start in: PyTorch's default, but no half precision."""
    return torch.promote_types(torch.get_default_dtype(), torch.float32)


def real_parameter(value: Tensor, trained: bool) -> nn.Parameter:
    """A weight of the system from a float64 starting value."""
    return nn.Parameter(value.to(system_dtype()).contiguous(), requires_grad=trained)


def _block_size(length: int) -> int:
    """The samples of a chunk's blocks: if possible so many that whole blocks fill the chunk."""
    if length <= _LONGEST_BLOCK:
        return length
    fitting = [size for size in range(BLOCK - 24, _LONGEST_BLOCK + 1, 8) if length % size == 0]
    return min(fitting, key=lambda size: abs(size - BLOCK), default=BLOCK)
