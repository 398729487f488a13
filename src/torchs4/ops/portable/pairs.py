"""Complex numbers as two real tensors, and products that lose nothing: what every device can do."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

# Splits a number into two halves of its digits: 2^⌈digits/2⌉ + 1.
_SPLITTERS = {torch.float32: 4097.0, torch.float64: 134217729.0}


class Pair(NamedTuple):
    """Complex numbers."""

    re: Tensor
    im: Tensor

    @classmethod
    def of(cls, pairs: Float[Tensor, "*shape 2"], dtype: torch.dtype) -> Pair:
        """From real pairs on the last axis."""
        return cls(*pairs.to(dtype).unbind(-1))

    def stacked(self) -> Float[Tensor, "*shape 2"]:
        """Back to real pairs on the last axis."""
        return torch.stack([self.re, self.im], dim=-1)

    def conj(self) -> Pair:
        """With the other sign of the imaginary part."""
        return Pair(self.re, -self.im)

    def reciprocal(self) -> Pair:
        """One over each number."""
        size = self.re.square() + self.im.square()
        return Pair(self.re / size, -self.im / size)

    def times(self, other: Pair) -> Pair:
        """The product."""
        return Pair(
            self.re * other.re - self.im * other.im,
            self.re * other.im + self.im * other.re,
        )

    def scaled(self, factor: Tensor | float) -> Pair:
        """The product with a real number."""
        return Pair(self.re * factor, self.im * factor)

    def at(self, index: int) -> Pair:
        """Those at one place of the second axis."""
        return Pair(self.re[:, index], self.im[:, index])

    def plus(self, other: Pair) -> Pair:
        """The sum."""
        return Pair(self.re + other.re, self.im + other.im)


def pair_sum(v: Pair, w: Pair) -> Tensor:
    """The real sum of products over all modes, 2·Re Σ v w, from the stored half of them.

    Sums of products, not matrix products: ranks are small, a compiler fuses it, and autocast leaves it alone.
    """
    return 2 * (v.re * w.re - v.im * w.im).sum(-1)


def exact_product(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """a·b rounded, and what rounding left out (Dekker). The second part has no gradient: it is a constant."""
    product = a * b
    with torch.no_grad():
        a_high, a_low = _halves(a)
        b_high, b_low = _halves(b)
        rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, rest


def rounding_of_multiple(a: Tensor, factor: Tensor | int) -> Tensor:
    """What rounding left out of a·factor, for factors of at most half the digits. Without gradient."""
    with torch.no_grad():
        high, low = _halves(a)
        return (high * factor - a * factor) + low * factor


def exact_sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """A + b rounded, and what rounding left out (Knuth). The second part has no gradient."""
    total = a + b
    with torch.no_grad():
        added = total - a
        rest = (a - (total - added)) + (b - added)
    return total, rest


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    spread = _SPLITTERS[x.dtype] * x
    high = spread - (spread - x)
    return high, x - high
