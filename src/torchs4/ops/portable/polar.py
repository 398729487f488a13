"""Discrete modes by their size and angle: what powers of them need.

After 65,536 samples an angle that was off by one rounding would be off by 1/100 of a turn. So angles come in
two parts, from formulas that lose nothing. Only values need that care: slopes are the usual ones.

Axes: H features, n stored modes.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from torchs4.ops.portable.pairs import Pair, exact_product, exact_sum, rounding_of_multiple

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Float

    from torchs4.ssm import Discretization

# 1 / 2π: as much of it as the precision holds, and the rest.
_PER_RADIAN = {
    torch.float32: (0.15915493667125702, 0.5 / math.pi - 0.15915493667125702),
    torch.float64: (0.5 / math.pi, 0.0),
}
# A mode that dies at once has the size 0, and its logarithm times no samples would not be a number.
_LEAST_SQUARE = 1e-34
# Directions from which angles are measured: the rest is below π / 64, where few terms of a series are enough.
_DIRECTIONS = 64


def _table() -> list[list[float]]:
    """Cosine and sine of every direction, rounded to single precision, and what rounding left out."""
    angles = [2 * math.pi * k / _DIRECTIONS for k in range(_DIRECTIONS)]
    exact = [[math.cos(angle) for angle in angles], [math.sin(angle) for angle in angles]]
    rounded = [list(struct.unpack(f"{_DIRECTIONS}f", struct.pack(f"{_DIRECTIONS}f", *row))) for row in exact]
    rest = [[e - r for e, r in zip(*rows, strict=True)] for rows in zip(exact, rounded, strict=True)]
    return [*rounded, *rest]


_TABLE = _table()


class PolarModes(NamedTuple):
    """Discrete modes a = exp(log_size + 2πi·(turns + turns_rest))."""

    log_size: Float[Tensor, "H n"]
    turns: Float[Tensor, "H n"]
    turns_rest: Float[Tensor, "H n"]

    def power(self, exponent: Tensor | int) -> Pair:
        """The modes to a power, or to each of several (k, 1) as (H, k, n)."""
        modes = self if isinstance(exponent, int) else PolarModes(*(part[:, None] for part in self))
        size, angle = (modes.log_size * exponent).exp(), modes._angle(exponent)
        return Pair(size * angle.cos(), size * angle.sin())

    def change(self, exponent: Tensor | int) -> Pair:
        """What `power` gives, minus one, with all its digits where the modes are slow."""
        modes = self if isinstance(exponent, int) else PolarModes(*(part[:, None] for part in self))
        log_size, angle = modes.log_size * exponent, modes._angle(exponent)
        # 1 - cos is 2 sin² of half the angle.
        return Pair(
            torch.expm1(log_size) * angle.cos() - 2 * torch.sin(angle / 2).square(),
            log_size.exp() * angle.sin(),
        )

    def powers(self, count: int, step: int = 1) -> Pair:
        """Those to 0, step, 2·step, … as (H, count, n): products of two factors, each of few values."""
        near, far = self._near_and_far(self.power, count, step)
        return Pair(*(x.flatten(1, 2)[:, :count] for x in far.times(near)))

    def changes(self, count: int) -> Pair:
        """The first powers minus one, as (H, count, n)."""
        near, far = self._near_and_far(self.change, count, 1)
        # (1 + x)(1 + y) - 1 = x + y + x y
        return Pair(*(x.flatten(1, 2)[:, :count] for x in far.plus(near).plus(far.times(near))))

    def _near_and_far(self, function: Callable[[Tensor], Pair], count: int, step: int) -> tuple[Pair, Pair]:
        few = 1 << ((count - 1).bit_length() + 1) // 2
        many = -(-count // few)
        numbers = torch.arange(max(few, many), dtype=self.turns.dtype, device=self.turns.device)[:, None]
        both = function(torch.cat([step * numbers[:few], few * step * numbers[:many]]))
        return Pair(*(x[:, None, :few] for x in both)), Pair(*(x[:, few:, None] for x in both))

    def _angle(self, exponent: Tensor | int) -> Tensor:
        scaled, rest = self.turns * exponent, self.turns_rest * exponent
        if isinstance(exponent, Tensor) or exponent & (exponent - 1):
            # Only a power of two leaves all digits as they are; these are such a power times a small number.
            rest = rest + rounding_of_multiple(self.turns, exponent)
        # Whole turns are left out, which is exact.
        return 2 * math.pi * ((scaled - scaled.detach().round()) + rest)


def polar_modes(A: Pair, step: Float[Tensor, "H 1"], method: Discretization) -> PolarModes:
    """The modes of a diagonal A under either rule. Differentiable."""
    if method == "bilinear":
        return PolarModes(_bilinear_log_size(A.scaled(step / 2)), *_bilinear_turns(A, step / 2))
    if method != "zoh":
        raise ValueError(f"discretization is {method!r}; choose 'bilinear' or 'zoh'.")
    angle, angle_rest = exact_product(A.im, step.expand_as(A.im))
    return PolarModes(A.re * step, *_in_turns(angle, angle_rest))


def _bilinear_log_size(z: Pair) -> Float[Tensor, "H n"]:
    """log|a| of a = (1 + z)/(1 - z)."""
    square = (1 - z.re).square() + z.im.square()
    # Of two formulas the one that keeps its digits: near 1, or near 0.
    loss = 4 * z.re / square
    ratio = (((1 + z.re).square() + z.im.square()) / square).clamp(min=_LEAST_SQUARE)
    return torch.where(loss > -0.5, torch.log1p(loss.clamp(min=-0.5)), ratio.log()) / 2


def _bilinear_turns(A: Pair, half_step: Tensor) -> tuple[Tensor, Tensor]:
    """The angle of a = (1 + z)/(1 - z), that of (1 + z)(1 - z̄) = 1 - |z|² + 2i·Im z, in two parts."""
    z = A.scaled(half_step)
    x, y = 1 - z.re.square() - z.im.square(), 2 * z.im
    # A mode that dies at once points nowhere.
    x = torch.where((x == 0) & (y == 0), 1, x)
    slope = torch.atan2(y, x) * (0.5 / math.pi)
    if slope.dtype == torch.float64:
        # Digits enough as it is.
        return slope, torch.zeros_like(slope)
    with torch.no_grad():
        # Real and imaginary parts at once: on a device small operations cost their launches.
        parts, parts_rest = exact_product(torch.stack(A), half_step.expand(2, *A.re.shape))
        squares, squares_rest = exact_product(parts, parts)
        (re, im), (re_rest, im_rest) = parts, parts_rest
        (re_square, im_square), (re_square_rest, im_square_rest) = squares, squares_rest
        x, rest = exact_sum(torch.ones_like(re), -im_square)
        x, other_rest = exact_sum(x, -re_square)
        rest = rest + other_rest - re_square_rest - im_square_rest - 2 * (re * re_rest + im * im_rest)
        x = torch.where((x == 0) & (im == 0), 1, x)
        turns, turns_rest = _angle((x, rest), (2 * im, 2 * im_rest))
    # The value of the first, the slope of the second.
    return turns + (slope - slope.detach()), turns_rest


def _angle(x: tuple[Tensor, Tensor], y: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The angle of (x, y) in turns, both given and returned in two parts."""
    nearest = torch.round(torch.atan2(y[0], x[0]) * (_DIRECTIONS * 0.5 / math.pi))
    cosine, sine = _directions(nearest, x[0])
    # Turned back by the nearest direction, only a small angle with the first axis is left.
    along, along_rest, across, across_rest = _turned_back(x, y, cosine, sine)
    tangent = across / along
    product, product_rest = exact_product(tangent, along)
    rest = ((across - product) - product_rest + across_rest - tangent * along_rest) / along
    square = tangent.square()
    rest = rest - tangent * square * (1 / 3 - square * (1 / 5 - square * (1 / 7 - square / 9)))
    small, small_rest = _in_turns(tangent, rest)
    turns, turns_rest = exact_sum(nearest / _DIRECTIONS, small)
    return turns, turns_rest + small_rest


def _directions(number: Tensor, like: Tensor) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Cosine and sine of so many parts of a turn, in two parts each."""
    table = torch.tensor(_TABLE, dtype=like.dtype).to(like.device)
    cosine, sine, cosine_rest, sine_rest = table[:, number.long() % _DIRECTIONS]
    return (cosine, cosine_rest), (sine, sine_rest)


def _turned_back(
    x: tuple[Tensor, Tensor],
    y: tuple[Tensor, Tensor],
    cosine: tuple[Tensor, Tensor],
    sine: tuple[Tensor, Tensor],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sums x cos + y sin and y cos - x sin, all in two parts: four products at once."""
    one, one_rest = torch.stack([x[0], y[0], y[0], -x[0]]), torch.stack([x[1], y[1], y[1], -x[1]])
    other, other_rest = (torch.stack([c, s, c, s]) for c, s in zip(cosine, sine, strict=True))
    product, rest = exact_product(one, other)
    rest = rest + one * other_rest + one_rest * other
    total, total_rest = exact_sum(product[0::2], product[1::2])
    total_rest = total_rest + rest[0::2] + rest[1::2]
    return total[0], total_rest[0], total[1], total_rest[1]


def _in_turns(angle: Tensor, angle_rest: Tensor) -> tuple[Tensor, Tensor]:
    per_radian, per_radian_rest = _PER_RADIAN[angle.dtype]
    turns, turns_rest = exact_product(angle, torch.full_like(angle, per_radian))
    return turns, turns_rest + (angle * per_radian_rest + angle_rest * per_radian).detach()
