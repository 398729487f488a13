"""What all attentions of the Long Range Arena share: options, heads, projections, padding, errors.

Axes: B sequences, L positions, H features, D = H / heads columns of a head.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from torch import Tensor, nn

from torchs4.configuration import merge_options, require_at_least, require_whole
from torchs4.layers.inputs import position_mask, require_rate, require_sequence
from torchs4.layers.padding import move_to_front, take
from torchs4.layers.placement import drawn_on_cpu
from torchs4.layers.signatures import with_options_listed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import NoReturn

    from jaxtyping import Bool, Float, Int

# Positions for which weights are made where nobody says how long sequences are: enough for most of the
# Long Range Arena.
USUAL_LONGEST = 4096
# What can stream, for the errors of what cannot.
_CAUSAL = "'transformer', 'linear-transformer' or 'performer'"


@dataclass(frozen=True)
class WholeSequenceConfig:
    """What the configurations of attentions that see the whole sequence share.

    bidirectional: True, always: every position sees the future, and such a layer cannot stream.
    """

    bidirectional: bool = True

    def __post_init__(self) -> None:
        if not self.bidirectional:
            name = type(self).__name__.removesuffix("Config")
            raise ValueError(
                f"{name} cannot be causal: positions see what comes after them, so bidirectional is always "
                f"True. Those that can be built with bidirectional=False are {_CAUSAL}, 's4' and its kin."
            )


@dataclass(frozen=True)
class HeadsConfig(WholeSequenceConfig):
    """What those with several heads share.

    heads: how many attentions work side by side, each on features/heads columns.
    """

    heads: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        require_whole("heads", self.heads, 1)


class AttentionLayer(nn.Module):
    """Maps (B, L, H) to (B, L, H). Subclasses say in `_build` what they are made of, in `_mix` what they do.

    Positions outside a mask are left out, wherever they are: a padded sequence gets what it gets alone. An
    attention counts positions and knows no time, so `rate` changes nothing.
    """

    config_class: ClassVar[type]
    config: Any
    # These attentions do not know where a position is: whoever stacks them tells by `Positions`.
    needs_positions = True

    def __init__(
        self,
        features: int,
        config: Any = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Any,
    ) -> None:
        with drawn_on_cpu(self, device, dtype):
            super().__init__()
            self.config = merge_options(self.config_class, config, options)
            require_whole("features", features, 1)
            self.features = features
            self._build(features)

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "config_class" in vars(cls):
            # Each shows its own options, though all are built by the same code.
            signature = inspect.signature(AttentionLayer.__init__)
            own = [parameter for name, parameter in signature.parameters.items() if name != "self"]
            shown: Any = cls
            shown.__signature__ = with_options_listed(signature.replace(parameters=own), cls.config_class)

    def _build(self, features: int) -> None:
        """Queries, keys, values and output, as most of them have."""
        self._build_projections(features, features)

    def _build_projections(self, features: int, projection: int) -> None:
        self.heads = self.config.heads
        self.projection = projection
        require_dividing_heads("features" if projection == features else "projection", projection, self.heads)
        self.query_key_value = nn.Linear(features, 3 * projection)
        self.output = nn.Linear(projection, features)

    def _mix(self, x: Float[Tensor, "B L H"], counts: Int[Tensor, " B"] | None) -> Float[Tensor, "B L H"]:
        """Every position's mixture. counts: how many positions of each sequence are real; None for all."""
        raise NotImplementedError

    @property
    def causal(self) -> bool:
        """Whether an output depends on nothing that comes after it."""
        return not self.config.bidirectional

    @property
    def output_features(self) -> int:
        """The size of the output's last axis."""
        return self.features

    def forward(
        self,
        x: Float[Tensor, "B L H"],
        lengths: Int[Tensor, " B"] | Sequence[int] | None = None,
        mask: Bool[Tensor, "B L"] | None = None,
        rate: float = 1.0,
    ) -> Float[Tensor, "B L H"]:
        """The whole sequence at once. Positions outside `lengths` or `mask` are left out."""
        require_sequence(x, self.features)
        require_rate(rate)
        mask = position_mask(x, lengths, mask)
        if mask is None:
            return self._mix(x, None)
        x, places = move_to_front(x, mask)
        # A sequence of padding alone counts as one: an average over nothing is not a number.
        return take(self._mix(x, mask.sum(dim=1).clamp(min=1)), places)

    def prefill(
        self, x: Float[Tensor, "B L H"], state: Any = None, rate: float = 1.0
    ) -> tuple[Float[Tensor, "B L H"], Any]:
        """Chunks need a layer that can be causal: this one refuses."""
        self._refuse_to_stream()

    def step(
        self, x_t: Float[Tensor, "B H"], state: Any, rate: float = 1.0
    ) -> tuple[Float[Tensor, "B H"], Any]:
        """Steps need a layer that can be causal: this one refuses."""
        self._refuse_to_stream()

    def initial_state(self, batch_size: int) -> Any:
        """A state needs a layer that can be causal: this one refuses."""
        self._refuse_to_stream()

    def _refuse_to_stream(self) -> NoReturn:
        raise ValueError(
            f"{type(self).__name__} is bidirectional and needs the whole sequence: it has no state, no "
            f"prefill and no step. Call the layer itself, or choose one that can be built with "
            f"bidirectional=False: {_CAUSAL}, 's4' or one of its kin."
        )

    def _project(self, x: Float[Tensor, "B L H"]) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (B, heads, L, D) each."""
        query, key, value = split_heads(self.query_key_value(x), 3 * self.heads).chunk(3, dim=1)
        return query, key, value

    def _joined(self, y: Float[Tensor, "B heads L D"]) -> Float[Tensor, "B L H"]:
        return cast("Tensor", self.output(join_heads(y)))

    def extra_repr(self) -> str:
        """The options that are not visible as submodules."""
        return f"features={self.features}, {self.config}"


def split_heads(x: Float[Tensor, "B L H"], heads: int) -> Float[Tensor, "B heads L D"]:
    """Columns side by side become heads."""
    return x.unflatten(2, (heads, -1)).transpose(1, 2)


def join_heads(y: Float[Tensor, "B heads L D"]) -> Float[Tensor, "B L H"]:
    """Heads become columns side by side."""
    return y.transpose(1, 2).flatten(2)


def visible_keys(length: int, counts: Int[Tensor, " B"] | None) -> Bool[Tensor, "B 1 1 L"] | None:
    """Which positions are real, in the shape that an attention wants; None when all of them are."""
    if counts is None:
        return None
    return (torch.arange(length, device=counts.device) < counts[:, None])[:, None, None]


def zero_after(x: Float[Tensor, "B heads L D"], counts: Int[Tensor, " B"] | None) -> Tensor:
    """Zeros behind each sequence's last real position."""
    if counts is None:
        return x
    return x.masked_fill(torch.arange(x.shape[2], device=x.device)[:, None] >= counts[:, None, None, None], 0)


def mix_by_length(
    mix: Callable[[Float[Tensor, "b l H"]], Float[Tensor, "b l H"]],
    x: Float[Tensor, "B L H"],
    counts: Int[Tensor, " B"] | None,
) -> Float[Tensor, "B L H"]:
    """For what depends on how long a sequence is: those of equal length go together, without padding."""
    if counts is None:
        return mix(x)
    rows, pieces = [], []
    for length in counts.unique().tolist():
        of_this_length = (counts == length).nonzero()[:, 0]
        piece = mix(x[of_this_length, :length])
        rows.append(of_this_length)
        pieces.append(nn.functional.pad(piece, (0, 0, 0, x.shape[1] - length)))
    return torch.cat(pieces)[torch.cat(rows).argsort()]


def require_dividing_heads(name: str, columns: int, heads: int) -> None:
    """Each head gets as many columns as the others. name: of the option that says how many there are."""
    if columns % heads == 0:
        return
    fitting = [str(count) for count in range(1, columns + 1) if columns % count == 0]
    raise ValueError(
        f"heads is {heads} and {name} is {columns}: each head gets {name}/heads columns, which must be "
        f"a whole number. Choose heads one of {', '.join(fitting)}, or "
        f"{heads * max(1, round(columns / heads))} {name}."
    )


def longest_or_usual(max_length: int | None) -> int:
    """For how many positions there are weights."""
    return USUAL_LONGEST if max_length is None else max_length


def require_within(layer: str, length: int, longest: int) -> None:
    """Some attentions have weights for each position, and so a longest sequence."""
    require_at_least("length", length, 1)
    if length > longest:
        raise ValueError(
            f"x has {length:,} positions, but this {layer} has weights for {longest:,} (max_length). Build "
            f"it with max_length={length}, or cut the sequence."
        )
