"""What goes into a model and what comes out: the words that data, tasks and models share.

Axes: B examples of a batch, L positions, d numbers per position, D documents per example.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from torchs4.configuration import require_whole

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Bool, Int, Shaped
    from torch import Tensor


class Batch(NamedTuple):
    """Inputs (B, L, d) of numbers or (B, L) of tokens, what is asked about them, and how much is real.

    y: a class (B), values (B, k), or for each position a token (B, L) or values (B, L, k).
    lengths: None when every input is full. With two documents per example, inputs are (B, 2, L) and lengths
        (B, 2).
    asked: which positions are asked about, when not all of the real ones are.
    """

    x: Shaped[Tensor, "B ..."]
    y: Shaped[Tensor, "B ..."]
    lengths: Int[Tensor, "B ..."] | None = None
    asked: Bool[Tensor, "B L"] | None = None

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """The batch with something done to all of its tensors."""
        lengths = None if self.lengths is None else change(self.lengths)
        return Batch(
            change(self.x), change(self.y), lengths, None if self.asked is None else change(self.asked)
        )


@dataclass(frozen=True)
class Scaling:
    """A person's units and a network's: the network reads (value - shift) / scale, one of each per column."""

    shift: tuple[float, ...]
    scale: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.shift) != len(self.scale) or not self.shift:
            raise ValueError(
                f"A scaling has {len(self.shift)} shifts and {len(self.scale)} scales; it needs one of each "
                f"for every column."
            )
        for value in self.scale:
            if not 0 < value < float("inf"):
                raise ValueError(f"A scale is {value!r}; it must be positive and finite.")

    def require_columns(self, columns: int) -> None:
        """Refuse to scale another number of columns."""
        if len(self.shift) != columns:
            raise ValueError(
                f"A scaling of {len(self.shift)} columns cannot scale {columns}; give one for each."
            )


@dataclass(frozen=True)
class InputDescription:
    """What a model gets to read.

    kind: "values" (size numbers at each position) or "tokens" (numbers from 0 to size - 1; 0 is padding where
        there is any).
    length: of the longest input.
    documents: inputs per example.
    image: height and width, when positions are the pixels of a picture row by row.
    channels: positions of each pixel, when its colours come one after the other.
    sample_rate: positions per second, where that means something.
    scaling: from the data's units to those of the network; None where the data come ready.
    names: of the numbers at each position, or of the tokens, where they have some.
    """

    kind: Literal["values", "tokens"]
    size: int
    length: int
    documents: int = 1
    image: tuple[int, int] | None = None
    channels: int = 1
    sample_rate: float | None = None
    scaling: Scaling | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class OutputDescription:
    """What a model is asked for.

    size: numbers per prediction.
    per_position: a prediction for every position instead of one for the whole input.
    causal: a prediction may see nothing that comes after its position.
    names: of the numbers: classes, or columns.
    scaling: from the data's units to those of the network, for values.
    horizon: of a forecast: so many positions at the end are asked for.
    continues: of a forecast: which number of the input each number goes on with.
    mixtures: of a density: the numbers describe so many logistic distributions.
    """

    size: int
    per_position: bool = False
    causal: bool = False
    names: tuple[str, ...] = ()
    scaling: Scaling | None = None
    horizon: int = 0
    continues: tuple[int, ...] = ()
    mixtures: int = 0

    def __post_init__(self) -> None:
        require_whole("size", self.size, 1)
        if self.names and len(self.names) != self.size:
            raise ValueError(f"There are {len(self.names)} names for {self.size} outputs; give one for each.")
