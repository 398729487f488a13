"""The first powers of a discrete DPLR system Ā = a - p q from its structure: no matrix is multiplied by
itself, which would multiply its rounding too.

Powers of the modes are exact in polar form. With them all rows q Ā^i at once solve one triangular system,
q Ā^i + Σ_{j<i} (q a^(i-1-j) p) q Ā^j = q a^i, and everything else is made of them by products:

    Ā^i b = a^i b - Σ_{j<i} a^(i-1-j) p (q Ā^j b)        Ā^m = a^m - Σ_{i<m} a^(m-1-i) p (q Ā^i)

Axes: H features, n modes, N = 2n, R rank, M output channels, m powers. States hold the real parts of all
modes, then their imaginary parts; a row that reads 2·Re Σ c x is [2 Re c, -2 Im c].
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torchs4.ops.portable.pairs import Pair
from torchs4.ops.portable.polar import PolarModes

if TYPE_CHECKING:
    from jaxtyping import Float

    from torchs4.ops.portable.discretization import PolarSystem

# Below it a device would wait for launches longer than for the work.
_LEAST_FIRST_POWERS = 64


class FirstPowers(NamedTuple):
    """What the first m powers of Ā make of p, q and b.

    changes: a^i - 1, which keeps the digits of slow modes.
    drives: a^i p. readers: q Ā^i. series: q Ā^i b. columns: Ā^i b.
    triangle: q a^(i-1-j) p below its diagonal, which counts as ones.
    """

    changes: Pair
    drives: Float[Tensor, "H m*R N"]
    triangle: Float[Tensor, "H m*R m*R"]
    readers: Float[Tensor, "H m*R N"]
    series: Float[Tensor, "H m R"]
    columns: Float[Tensor, "H m N"]

    def correction(self, exponent: int) -> Float[Tensor, "H N N"]:
        """Ā^exponent - a^exponent, for an exponent up to m."""
        R = self.series.shape[-1]
        drives, readers = self.drives[:, : exponent * R], self.readers[:, : exponent * R]
        nothing = drives.new_zeros(1, 1, 1)
        return torch.baddbmm(nothing, _latest_first(drives, exponent).mT, readers, beta=0, alpha=-1)

    def rows(self, C: Float[Tensor, "M H n 2"]) -> Float[Tensor, "H m M N"]:
        """C Ā^i."""
        free = row(_moved(Pair.of(C, C.dtype), self.changes)).permute(1, 2, 0, 3)
        seen = _seen(rows_of(C), self.drives, *self.series.shape[1:])
        return free - (_below(seen) @ self.readers).view_as(free)

    def backward(
        self,
        system: PolarSystem,
        columns_grad: Float[Tensor, "H m N"],
        correction_grad: Float[Tensor, "H N N"],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """The gradients of log_size, turns, p, q and b from those of `columns` and of `correction(m)`."""
        _, m, R = self.series.shape
        b, q = column(Pair.of(system.b, system.b.dtype)), rows_of(system.q)
        readers_grad = -(_latest_first(self.drives, m) @ correction_grad)
        drives_grad = _latest_first(-(self.readers @ correction_grad.mT), m)
        drives_grad = torch.baddbmm(drives_grad, _below(self.series[:, None]).mT, columns_grad, alpha=-1)
        series_grad = -_below_backward(columns_grad @ self.drives.mT, m, 1, R)[:, 0]
        readers_grad = readers_grad + series_grad.flatten(1)[..., None] * b[:, None]
        rows_grad = torch.linalg.solve_triangular(
            self.triangle.mT, readers_grad, upper=True, unitriangular=True
        )
        seen_grad = -_below_backward(rows_grad @ self.readers.mT, m, R, R).flatten(2)
        drives_grad = torch.baddbmm(drives_grad, seen_grad.mT, q)
        # b, p and q, each times the powers of the modes. Gradients of rows are turned into those of columns.
        p_grad, q_grad = (x.unflatten(1, (m, R)).permute(2, 0, 1, 3) for x in (drives_grad, rows_grad))
        grads = [Pair(*x.chunk(2, dim=-1)) for x in (columns_grad[None], p_grad, q_grad)]
        grads[2] = Pair(2 * grads[2].re, -2 * grads[2].im)
        grad = Pair(*(torch.cat(parts) for parts in zip(*grads, strict=True)))
        sources = Pair.of(torch.cat([system.b[None], system.p, system.q]), system.b.dtype)
        total, log_size_grad, turns_grad = _moved_backward(grad, sources, self.changes)
        b_grad, p_grad, q_grad = total.stacked().split([1, R, R])
        b_grad = b_grad[0] + pairs_of_column((self.readers.mT @ series_grad.flatten(1)[..., None])[..., 0])
        q_grad = q_grad + pairs_of_row(seen_grad @ self.drives).transpose(0, 1)
        return log_size_grad, turns_grad, p_grad, q_grad, b_grad


def count_of_first_powers(state_size: int, rank: int, length: int) -> int:
    """How many powers come from the structure: a power of two, or all where they are fewer.

    As many as a matrix has rows cost no more than two products of matrices; few cost next to nothing.
    """
    fitting = 1 << (state_size // max(rank, 1)).bit_length() - 1
    return min(max(fitting, _LEAST_FIRST_POWERS), length)


def first_powers(system: PolarSystem, count: int) -> FirstPowers:
    """The first `count` powers. Differentiable."""
    R, dtype = len(system.p), system.b.dtype
    changes = PolarModes(*system[:3]).changes(count)
    p, q, b = (Pair.of(x, dtype) for x in (system.p, system.q, system.b))
    drives = column(_moved(p, changes)).permute(1, 2, 0, 3).flatten(1, 2)
    free_rows = row(_moved(q, changes)).permute(1, 2, 0, 3).flatten(1, 2)
    triangle = _below(_seen(rows_of(system.q), drives, count, R))
    readers = torch.linalg.solve_triangular(triangle, free_rows, upper=False, unitriangular=True)
    series = (readers @ column(b)[..., None]).view(len(drives), count, R)
    # What powers change is summed up first, and b added last: slow systems keep their digits.
    free = column(_times_each(b, changes))
    columns = column(b)[:, None] + torch.baddbmm(free, _below(series[:, None]), drives, alpha=-1)
    return FirstPowers(changes, drives, triangle, readers, series, columns)


def column(x: Pair) -> Float[Tensor, "... N"]:
    """Modes as a state holds them."""
    return torch.cat(x, dim=-1)


def row(c: Pair) -> Float[Tensor, "... N"]:
    """What reads 2·Re Σ c x from a state."""
    return torch.cat([2 * c.re, -2 * c.im], dim=-1)


def rows_of(C: Float[Tensor, "M H n 2"]) -> Float[Tensor, "H M N"]:
    """The rows of all channels."""
    return row(Pair.of(C, C.dtype)).transpose(0, 1)


def pairs_of_column(grad: Float[Tensor, "... N"]) -> Float[Tensor, "... n 2"]:
    """The adjoint of `column`."""
    return torch.stack(grad.chunk(2, dim=-1), dim=-1)


def pairs_of_row(grad: Float[Tensor, "... N"]) -> Float[Tensor, "... n 2"]:
    """The adjoint of `row`."""
    re, im = grad.chunk(2, dim=-1)
    return torch.stack([2 * re, -2 * im], dim=-1)


def toeplitz(series: Float[Tensor, "... m"]) -> Float[Tensor, "... m m"]:
    """The number i - j of the series in row j and column i, zeros left of the diagonal.

    Written so often after one another that each row begins one further to the left: no index is needed, whose
    backward pass would add up one by one.
    """
    m = series.shape[-1]
    rows = F.pad(series, (0, m))[..., None, :].expand(*series.shape[:-1], m, 2 * m)
    return rows.flatten(-2)[..., : m * (2 * m - 1)].unflatten(-1, (m, 2 * m - 1))[..., :m]


def toeplitz_backward(grad: Float[Tensor, "... m m"]) -> Float[Tensor, "... m"]:
    """The adjoint of `toeplitz`: sums along diagonals."""
    m = grad.shape[-1]
    rows = F.pad(F.pad(grad, (0, m - 1)).flatten(-2), (0, m)).unflatten(-1, (m, 2 * m))
    return rows.sum(-2)[..., :m]


def _below(series: Float[Tensor, "H K m R"]) -> Float[Tensor, "H m*K m*R"]:
    """The number i - 1 - j of each series in the block of row i and column j < i."""
    H, K, m, R = series.shape
    later = F.pad(series[:, :, : m - 1].transpose(2, 3), (1, 0))
    return toeplitz(later).permute(0, 4, 1, 3, 2).reshape(H, m * K, m * R)


def _below_backward(grad: Float[Tensor, "H m*K m*R"], m: int, K: int, R: int) -> Float[Tensor, "H K m R"]:
    later = toeplitz_backward(grad.view(len(grad), m, K, m, R).permute(0, 2, 4, 3, 1))
    return F.pad(later[..., 1:], (0, 1)).transpose(2, 3)


def _seen(
    rows: Float[Tensor, "H K N"], drives: Float[Tensor, "H m*R N"], m: int, R: int
) -> Float[Tensor, "H K m R"]:
    """What each row c sees of the drives: c a^i p."""
    return (rows @ drives.mT).view(*rows.shape[:2], m, R)


def _latest_first(x: Float[Tensor, "H m*R N"], m: int) -> Float[Tensor, "H m*R N"]:
    return x.unflatten(1, (m, x.shape[1] // m)).flip(1).flatten(1, 2)


def _times_each(x: Pair, changes: Pair) -> Pair:
    """(K, H, m, n): each of K vectors times each change."""
    return Pair(x.re[..., None, :], x.im[..., None, :]).times(changes)


def _moved(x: Pair, changes: Pair) -> Pair:
    """(K, H, m, n): each of K vectors times each power."""
    return Pair(x.re[..., None, :], x.im[..., None, :]).plus(_times_each(x, changes))


def _moved_backward(grad: Pair, sources: Pair, changes: Pair) -> tuple[Pair, Tensor, Tensor]:
    """The gradients of the vectors in `_moved`, and of the modes' log_size and turns.

    Of x a^i with a = exp(s + 2πi t) the slopes are i·x a^i and 2πi·i·x a^i: two sums over powers are enough.
    """
    back = grad.plus(grad.times(changes.conj()))
    exponents = torch.arange(changes.re.shape[1], dtype=changes.re.dtype, device=changes.re.device)
    weights = torch.stack([torch.ones_like(exponents), exponents])
    (total_re, moment_re), (total_im, moment_im) = ((weights @ part).unbind(-2) for part in back)
    slope = Pair(moment_re, moment_im).times(sources.conj())
    return Pair(total_re, total_im), slope.re.sum(0), 2 * math.pi * slope.im.sum(0)
