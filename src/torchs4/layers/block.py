"""The deep layer: a state-space layer with norm, activation, dropout, mixing of features and residual."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, Unpack, get_args

import torch.nn.functional as F
from torch import Tensor, nn

from torchs4 import ops
from torchs4.configuration import merge_options, require_choice, require_probability
from torchs4.layers.fused_steps import FusedSteps, StepParts
from torchs4.layers.hooks import are_untouched, is_plain, run_hooked
from torchs4.layers.inputs import position_mask, require_sequence, require_vector
from torchs4.layers.norms import NORM_KINDS, NormKind, build_norm, normalise, usual_norm
from torchs4.layers.padded_chunks import padded_lengths, with_lengths
from torchs4.layers.padding import zero_padding
from torchs4.layers.placement import drawn_on_cpu
from torchs4.layers.registry import LAYERS, LayerConfig
from torchs4.layers.s4 import S4, S4Config
from torchs4.layers.s4d import S4D
from torchs4.layers.signatures import lists_options

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from jaxtyping import Bool, Float, Int

Activation = Literal["gelu", "relu", "silu", "none"]
Mixing = Literal["glu", "linear", "none"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "relu": F.relu,
    "silu": F.silu,
    "none": lambda x: x,
}


@dataclass(frozen=True)
class S4BlockConfig:
    """Options of a block.

    layer: what is inside, by its configuration (S4Config, LSTMConfig …) or, among options, by its name.
    norm: "layer", "batch", "scalar" (a layer norm with only two weights, as in some imported ones) or "none".
    activation: "gelu", "relu", "silu" or "none".
    dropout: share of values that training drops.
    residual: add the block's input to its output.
    pre_norm: normalise the input of the block instead of its output.
    tied_dropout: drop whole features of a sequence instead of single positions.
    mixing: what mixes the features: "glu" (a gated linear unit), "linear" or "none".
    """

    layer: LayerConfig = field(default_factory=S4Config, metadata={"choices": LAYERS})
    norm: NormKind = "layer"
    pre_norm: bool = True
    activation: Activation = "gelu"
    dropout: float = 0.0
    tied_dropout: bool = False
    mixing: Mixing = "glu"
    residual: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.layer, type) or not hasattr(self.layer, "build"):
            known = LAYERS.get(self.layer) if isinstance(self.layer, str) else None
            raise ValueError(
                f"layer is {self.layer!r}; expected a layer's configuration, such as "
                f"{'S4Config(state_size=64) or S4DConfig()' if known is None else f'{known.__name__}()'}."
            )
        require_choice("norm", self.norm, NORM_KINDS)
        require_choice("activation", self.activation, ACTIVATIONS)
        require_choice("mixing", self.mixing, get_args(Mixing))
        require_probability("dropout", self.dropout)


class S4BlockOptions(TypedDict, total=False):
    """S4BlockConfig's fields, as keyword arguments that an editor completes."""

    layer: LayerConfig
    norm: NormKind
    pre_norm: bool
    activation: Activation
    dropout: float
    tied_dropout: bool
    mixing: Mixing
    residual: bool


class SequenceDropout(nn.Module):
    """Dropout on (B, L, H) or, for one step, (B, H); tied: one mask for all positions of a sequence."""

    def __init__(self, probability: float, tied: bool) -> None:
        super().__init__()
        self.probability = probability
        self.tied = tied

    @property
    def is_awake(self) -> bool:
        """Whether it drops anything now."""
        return self.training and self.probability > 0

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_awake:
            return x
        if self.tied and x.ndim == 3:
            return x * self.scales(x)[:, None]
        return ops.dropout(x, self.probability)

    def scales(self, x: Float[Tensor, "B L H"]) -> Float[Tensor, "B H"]:
        """What a tied dropout multiplies the features of each sequence by: 0, or enough to make up for it."""
        return F.dropout(x.new_ones(x.shape[0], x.shape[2]), self.probability)


class S4Block(nn.Module):
    """norm → layer → activation → dropout → mixing → dropout → residual, (B, L, H) to (B, L, H).

    `S4Block(256, layer=S4Config(state_size=64), norm="batch")`, with S4BlockConfig's fields as options.
    """

    @lists_options(S4BlockConfig)
    def __init__(
        self,
        features: int,
        config: S4BlockConfig | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Unpack[S4BlockOptions],
    ) -> None:
        with drawn_on_cpu(self, device, dtype):
            super().__init__()
            self.config = config = merge_options(S4BlockConfig, config, options)
            self.features = features
            self.layer = config.layer.build(features)
            self.norm = build_norm(config.norm, features)
            self.dropout = SequenceDropout(config.dropout, config.tied_dropout)
            self.mixing = self._build_mixing(config.mixing)
            kind = config.pre_norm, config.activation, config.mixing, config.residual
            self._is_usual = kind == (True, "gelu", "glu", True)
            self._fused_steps = FusedSteps()

    def _build_mixing(self, kind: Mixing) -> nn.Linear | nn.Identity:
        given = self.layer.output_features
        if kind != "none":
            return nn.Linear(given, (2 if kind == "glu" else 1) * self.features)
        if given != self.features:
            raise ValueError(
                f"mixing is 'none', but the layer gives {given} features where the block has "
                f"{self.features}: choose 'glu' or 'linear'."
            )
        return nn.Identity()

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
        x = zero_padding(x, mask)
        y = normalise(self.norm, x, mask) if self.config.pre_norm else x
        y = self._finish(x, self.layer(y, mask=mask, rate=rate))
        return y if self.config.pre_norm else normalise(self.norm, y, mask)

    def prefill(
        self,
        x: Float[Tensor, "B L H"],
        state: Any = None,
        rate: float = 1.0,
        lengths: Int[Tensor, " B"] | Sequence[int] | None = None,
    ) -> tuple[Float[Tensor, "B L H"], Any]:
        """A chunk of the sequence: its outputs and the state after it, or after so many of its positions."""
        require_sequence(x, self.features)
        counts = padded_lengths(x, lengths)
        mask = position_mask(x, counts, None)
        verb = with_lengths(self.layer.prefill, counts)
        return self._stream(verb, zero_padding(x, mask), state, rate, mask)

    def step(
        self, x_t: Float[Tensor, "B H"], state: Any, rate: float = 1.0
    ) -> tuple[Float[Tensor, "B H"], Any]:
        """One position: its output and the next state."""
        require_vector(x_t, self.features)
        prepared = self._fused_steps.prepare([self.step_parts()], x_t, rate)
        if prepared is not None:
            self.layer.require_own_state(state, x_t.shape[0])
            y, (state,) = prepared.step(x_t, [state])
            return y, state
        return self._stream(self.layer.step, x_t, state, rate)

    def train(self, mode: bool = True) -> Self:
        """Training or, by `eval`, evaluation; steps are made ready anew."""
        self._fused_steps.forget()
        return super().train(mode)

    def initial_state(self, batch_size: int) -> Any:
        """The state before the first position."""
        return self.layer.initial_state(batch_size)

    @property
    def causal(self) -> bool:
        """Whether an output depends on nothing that comes after it."""
        return bool(self.layer.causal)

    def step_parts(self) -> StepParts | None:
        """What a usual block that only predicts steps through; None for others."""
        if not self._is_usual:
            return None
        # Every step asks, and attributes of modules are slow.
        modules: dict[str, Any] = self._modules
        outer, layer, dropout, mixing = (modules[name] for name in ("norm", "layer", "dropout", "mixing"))
        if type(self) is not S4Block or type(layer) not in (S4, S4D) or type(mixing) is not nn.Linear:
            return None
        if type(dropout) is not SequenceDropout or dropout.is_awake:
            return None
        norm = usual_norm(outer)
        if norm is None or mixing._parameters.get("bias") is None:
            return None
        return StepParts(norm, layer, mixing) if are_untouched(self, layer, dropout, mixing) else None

    def _stream(
        self,
        verb: Callable[[Any, Any, float], tuple[Any, Any]],
        x: Tensor,
        state: Any,
        rate: float,
        mask: Bool[Tensor, "B L"] | None = None,
    ) -> tuple[Tensor, Any]:
        """A chunk or one position, by the layer's verb for it."""
        y = normalise(self.norm, x, mask) if self.config.pre_norm else x
        y, state = run_hooked(self.layer, verb, y, state, rate)
        y = self._finish(x, y)
        return (y if self.config.pre_norm else normalise(self.norm, y, mask)), state

    def _finish(self, x: Tensor, y: Tensor) -> Tensor:
        """Everything after the layer that treats positions one by one."""
        config, dropout = self.config, self.dropout
        mixing: Any = self.mixing
        y = dropout(ACTIVATIONS[config.activation](y))
        are_ours = is_plain(mixing, nn.Linear) and is_plain(dropout, SequenceDropout)
        is_usual = config.mixing == "glu" and config.residual and x.ndim == 3
        if are_ours and is_usual and mixing.bias is not None and (dropout.tied or not dropout.is_awake):
            # At most a factor comes between the gates and the residual: one pass does it all.
            scales = dropout.scales(x) if dropout.is_awake else None
            return ops.gated_residual(ops.linear(y, mixing.weight), mixing.bias, x, scales)
        y = mixed(mixing, y)
        if config.mixing == "glu":
            y = F.glu(y, dim=-1)
        y = dropout(y)
        return x + y if config.residual else y


def mixed(linear: nn.Linear, x: Float[Tensor, "B *L I"]) -> Float[Tensor, "B *L O"]:
    """What a linear layer gives, by the library that is fast on this processor."""
    return ops.linear(x, linear.weight, linear.bias) if is_plain(linear, nn.Linear) else linear(x)
