"""Discrete modes by their size and angle: what powers of them need.

After 65,536 samples an angle that was off by one rounding would be off by 1/100 of a turn. So angles come in
two parts, from formulas that lose nothing. Only values need that care: slopes are the usual ones.

Axes: H features, n stored modes, M output channels.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from torchs4.ops.dtypes import kernel_dtype
from torchs4.ops.portable.discretization import hold
from torchs4.ops.portable.pairs import Pair, exact_product, exact_sum

if TYPE_CHECKING:
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
    """Discrete modes a = exp(log_size + 2πi·(turns + turns_rest)), and their weights C·b."""

    log_size: Float[Tensor, "H n"]
    turns: Float[Tensor, "H n"]
    turns_rest: Float[Tensor, "H n"]
    weights: Float[Tensor, "M H n 2"]


def power_system(
    A: Float[Tensor, "H n 2"],
    B: Float[Tensor, "H n 2"],
    C: Float[Tensor, "M H n 2"],
    dt: Float[Tensor, " H"],
    method: Discretization,
) -> PolarModes:
    """The modes of a diagonal system, whose powers are its kernel. Differentiable."""
    dtype = kernel_dtype(C)
    A_, step = Pair.of(A, dtype), dt.to(dtype)[:, None]
    if method == "bilinear":
        z = A_.scaled(step / 2)
        log_size = _bilinear_log_size(z)
        turns, turns_rest = _bilinear_turns(A_, step / 2)
        b = Pair.of(B, dtype).times(Pair(1 - z.re, -z.im).reciprocal()).scaled(step)
    else:
        _, _, b = hold(A, B, dt.to(dtype), method)
        log_size = A_.re * step
        angle, angle_rest = exact_product(A_.im, step.expand_as(A_.im))
        turns, turns_rest = _in_turns(angle, angle_rest)
    weights = Pair.of(C, dtype).times(b)
    return PolarModes(log_size, turns, turns_rest, weights.stacked())


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
        re, re_rest = exact_product(A.re, half_step.expand_as(A.re))
        im, im_rest = exact_product(A.im, half_step.expand_as(A.im))
        re_square, re_square_rest = exact_product(re, re)
        im_square, im_square_rest = exact_product(im, im)
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
    along, along_rest = _inner(x, cosine, y, sine)
    across, across_rest = _inner(y, cosine, (-x[0], -x[1]), sine)
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


def _inner(
    v: tuple[Tensor, Tensor], a: tuple[Tensor, Tensor], w: tuple[Tensor, Tensor], b: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    """v·a + w·b, all in two parts."""
    first, first_rest = exact_product(v[0], a[0])
    second, second_rest = exact_product(w[0], b[0])
    total, rest = exact_sum(first, second)
    return total, rest + first_rest + second_rest + (v[0] * a[1] + v[1] * a[0] + w[0] * b[1] + w[1] * b[0])


def _in_turns(angle: Tensor, angle_rest: Tensor) -> tuple[Tensor, Tensor]:
    per_radian, per_radian_rest = _PER_RADIAN[angle.dtype]
    turns, turns_rest = exact_product(angle, torch.full_like(angle, per_radian))
    return turns, turns_rest + (angle * per_radian_rest + angle_rest * per_radian).detach()
