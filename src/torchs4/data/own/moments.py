"""Mean, deviation and range of each channel, gathered piece by piece: what a scaling is made of.

Axes: N numbers of a channel, d channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torchs4.description import Scaling

if TYPE_CHECKING:
    from jaxtyping import Float64, Shaped
    from numpy import ndarray

# Below it, single precision has no exact numbers to divide by.
_SMALLEST_SCALE = float(np.finfo(np.float32).tiny)


class Moments(NamedTuple):
    """What is known of some numbers: how many, their mean, the sum of squared deviations, and their range."""

    size: int
    mean: Float64[ndarray, " d"]
    squares: Float64[ndarray, " d"]
    low: Float64[ndarray, " d"]
    high: Float64[ndarray, " d"]

    @classmethod
    def of(cls, values: Shaped[ndarray, "N d"]) -> Moments:
        """The moments of at least one number per channel."""
        numbers = values.astype(np.float64, copy=False)
        mean = numbers.mean(axis=0)
        return cls(
            len(numbers),
            mean,
            np.square(numbers - mean).sum(axis=0),
            numbers.min(axis=0),
            numbers.max(axis=0),
        )

    def with_others(self, others: Moments) -> Moments:
        """The moments of both together (Chan's rule: no difference of large sums)."""
        size = self.size + others.size
        apart = others.mean - self.mean
        return Moments(
            size,
            self.mean + apart * (others.size / size),
            self.squares + others.squares + np.square(apart) * (self.size * others.size / size),
            np.minimum(self.low, others.low),
            np.maximum(self.high, others.high),
        )

    def scaling(self) -> Scaling:
        """To mean 0 and deviation 1; a channel that never changes is only shifted."""
        deviation = np.sqrt(self.squares / self.size)
        is_constant = (self.low == self.high) | (deviation < _SMALLEST_SCALE)
        scale = np.where(is_constant, 1.0, deviation)
        return Scaling(_as_floats(self.mean), _as_floats(scale))


def _as_floats(values: Any) -> tuple[float, ...]:
    return tuple(map(float, values))
