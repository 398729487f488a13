"""Examples that are shown several times in an epoch, a little different each time.

Axes: B examples of a batch, L positions, d channels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from torchs4.configuration import require_at_least, require_probability, require_whole
from torchs4.data.sequences import Split

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float
    from numpy.typing import NDArray
    from torch import Tensor

    from torchs4.description import Batch, Scaling


@dataclass(frozen=True)
class Augmentation:
    """How training examples are changed. Answers stay the same, so only what must not matter may change.

    noise: deviation of what is added to every value, in deviations of its channel.
    stretch: amplitudes are multiplied by e to the power of a normal number with this deviation.
    warp: the speed at which an example is read differs by up to this share.
    shift: it begins earlier or later by up to this share of its length; ends go on as they are.
    gap: one part of up to this share of its length is replaced by the channel's mean.
    share: how many examples are changed at all; the others are shown as they are, so that nothing fine is
        lost that only they have.
    """

    noise: float = 0.0
    stretch: float = 0.0
    warp: float = 0.0
    shift: float = 0.0
    gap: float = 0.0
    share: float = 1.0

    def __post_init__(self) -> None:
        for name in ("noise", "stretch"):
            require_at_least(name, getattr(self, name), 0)
        for name in ("warp", "shift", "gap"):
            require_probability(name, getattr(self, name))
        if not 0 <= self.share <= 1:
            raise ValueError(f"share is {self.share}; it must be between 0 and 1.")


class AugmentedSplit(Split):
    """Every example of a split of values `repeats` times; with a generator, each time a little different."""

    def __init__(
        self, split: Split, augmentation: Augmentation, repeats: int = 1, scaling: Scaling | None = None
    ) -> None:
        require_whole("repeats", repeats, 1)
        self.augmentation = augmentation
        self._split = split
        self._repeats = repeats
        self._mean = torch.tensor(0.0 if scaling is None else scaling.shift)
        self._deviation = torch.tensor(1.0 if scaling is None else scaling.scale)

    def __len__(self) -> int:
        return self._repeats * len(self._split)

    @property
    def distinct(self) -> int:
        return self._split.distinct

    @property
    def lengths(self) -> NDArray[np.int64] | None:
        lengths = self._split.lengths
        return None if lengths is None else lengths.repeat(self._repeats)

    def batch(self, rows: NDArray[np.int64], generator: torch.Generator | None = None) -> Batch:
        batch = self._split.batch(rows // self._repeats)
        if generator is None or not batch.x.is_floating_point():
            return batch
        changed = self._changed(batch.x, batch.lengths, generator)
        is_chosen = torch.rand(len(batch.x), 1, 1, generator=generator) < self.augmentation.share
        return batch._replace(x=torch.where(is_chosen, changed, batch.x))

    def _changed(
        self, x: Float[Tensor, "B L d"], lengths: Tensor | None, generator: torch.Generator
    ) -> Float[Tensor, "B L d"]:
        change, count = self.augmentation, len(x)
        real = torch.full((count,), x.shape[1]) if lengths is None else lengths

        def drawn(*shape: int) -> Tensor:
            return torch.rand(count, *shape, generator=generator)

        if change.warp or change.shift:
            speed = 1 + change.warp * (2 * drawn() - 1)
            x = _read_at(x, real, speed, change.shift * (2 * drawn() - 1) * real)
        if change.stretch:
            factor = (change.stretch * torch.randn(count, 1, x.shape[2], generator=generator)).exp()
            x = self._mean + (x - self._mean) * factor
        if change.noise:
            x = x + change.noise * self._deviation * torch.randn(x.shape, generator=generator)
        if change.gap:
            size = change.gap * drawn() * real
            start = drawn() * (real - size)
            places = torch.arange(x.shape[1])
            missing = (places >= start[:, None]) & (places < (start + size)[:, None])
            x = torch.where(missing[..., None], self._mean, x)
        return x


def _read_at(
    x: Float[Tensor, "B L d"], lengths: Tensor, speed: Tensor, offset: Tensor
) -> Float[Tensor, "B L d"]:
    """Examples read at another speed, about their middle and moved by an offset; between samples, a line."""
    middle = ((lengths - 1) / 2)[:, None]
    places = middle + (torch.arange(x.shape[1]) - middle) * speed[:, None] + offset[:, None]
    places = torch.minimum(places.clamp(min=0), (lengths - 1)[:, None].to(places.dtype))
    left = places.floor().long().clamp(max=max(x.shape[1] - 2, 0))
    share = (places - left)[..., None]
    first = x.gather(1, left[..., None].expand(-1, -1, x.shape[2]))
    second = x.gather(1, (left + 1).clamp(max=x.shape[1] - 1)[..., None].expand(-1, -1, x.shape[2]))
    return first + (second - first) * share


def repeats_for(examples: int, batch_size: int, steps: int) -> int:
    """How often to show each example so that an epoch has at least so many steps."""
    return max(1, math.ceil(steps * batch_size / examples))
