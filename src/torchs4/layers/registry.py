"""The one table of layers, from names to configurations. A layer of your own joins it by `register_layer`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Bool, Float, Int
    from torch import Tensor


class Layer(Protocol):
    """What a block wants of the layer inside it: a module with these verbs, which agree with each other.

    output_features: the size of the output's last axis.
    causal: whether an output depends on nothing that comes after it. One that is not refuses to stream.
    A layer with an attribute `needs_positions = True` does not know where a position is: a stack of such
    layers adds positions to what goes in.
    """

    output_features: int
    causal: bool

    def __call__(
        self,
        x: Float[Tensor, "B L H"],
        lengths: Int[Tensor, " B"] | None = None,
        mask: Bool[Tensor, "B L"] | None = None,
        rate: float = 1.0,
    ) -> Float[Tensor, "B L O"]:
        """The whole sequence at once. Positions outside `lengths` or `mask` change nothing elsewhere."""

    def prefill(
        self, x: Float[Tensor, "B L H"], state: Any = None, rate: float = 1.0
    ) -> tuple[Float[Tensor, "B L O"], Any]:
        """A chunk of the sequence: its outputs and the state after it.

        One that takes `lengths` too leaves each sequence in the state after its own last position.
        """

    def step(
        self, x_t: Float[Tensor, "B H"], state: Any, rate: float = 1.0
    ) -> tuple[Float[Tensor, "B O"], Any]:
        """One position: its output and the next state."""

    def initial_state(self, batch_size: int) -> Any:
        """The state before the first position: a tensor, or tuples and dictionaries of them."""


class LayerConfig(Protocol):
    """A frozen dataclass that builds its layer; S4Config, S4DConfig and LSSLConfig are such."""

    def build(self, features: int) -> Any:
        """The layer for that many features."""


LAYERS: dict[str, type] = {}

Kind = TypeVar("Kind", bound=type)


def register_layer(name: str) -> Callable[[Kind], Kind]:
    """Put a configuration into the table, so that models, files and the command line know its layer.

    A decorator for a frozen dataclass with defaults for all fields and a method `build(features)`.
    """

    def register(kind: Kind) -> Kind:
        if not (isinstance(kind, type) and dataclasses.is_dataclass(kind) and hasattr(kind, "build")):
            raise ValueError(
                f"{kind!r} is no layer's configuration: it must be a dataclass with build(features)."
            )
        if not kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
            raise ValueError(f"{kind.__name__} can be changed: make it @dataclass(frozen=True).")
        # A notebook's cell may run twice; another class of the same name would make files ambiguous.
        others = {n: k for n, k in LAYERS.items() if n != name}
        if name in LAYERS and LAYERS[name].__qualname__ != kind.__qualname__:
            raise ValueError(f"The name {name!r} is taken by {LAYERS[name].__name__}; choose another.")
        if any(other.__name__ == kind.__name__ for other in others.values()):
            raise ValueError(
                f"A layer's configuration named {kind.__name__} is registered already; rename it."
            )
        LAYERS[name] = kind
        return kind

    return register
