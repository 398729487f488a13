"""Powers of a discrete DPLR system by doubling: matrix products alone, as many as the length has digits.

Of Ā^m = a^m + F only F is squared: a^m comes from the modes' polar form, exact at every level, so that
rounding does not grow with the angle that modes have turned by. And Ā^m - 1 is kept, not Ā^m: where a system
is slow, single precision then rounds what a power changes, not what it leaves. With c = a^m - 1 and
E = Ā^m - 1 = c + F the next correction is Ā^2m - a^2m = (2 + c) F + F E.

States as in `first_powers`. Rows that read a state are moved by E, states by its transpose.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from torchs4.ops.portable.pairs import Pair

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

    from torchs4.ops.portable.polar import PolarModes


# How often rows are moved by the last rung: another rung would take more launches, and far more arithmetic.
_MOST_MOVES = 16


def climb(
    modes: PolarModes, correction: Float[Tensor, "H N N"], first: int, levels: int
) -> list[Float[Tensor, "H N N"]]:
    """Ā^(first·2^k) - 1 for k below `levels`, from Ā^first - a^first."""
    rungs: list[Tensor] = []
    changes = modes.change(_exponents(modes, first, levels))
    for level in range(levels):
        change = changes.at(level)
        rungs.append(plus_modes(correction, change))
        if level < levels - 1:
            twice = _two_and(change, correction) @ correction
            correction = twice.baddbmm_(correction, rungs[-1])
    return rungs


def climb_backward(
    grads: Sequence[Tensor | None], rungs: Sequence[Tensor], modes: PolarModes, first: int
) -> tuple[Float[Tensor, "H N N"], Float[Tensor, "H n"], Float[Tensor, "H n"]]:
    """The adjoint of `climb`: the gradients of the correction, and of the modes' log_size and turns.

    Uses up the gradients of the rungs.
    """
    if not rungs:
        H, n = modes.turns.shape
        return (
            modes.turns.new_zeros(H, 2 * n, 2 * n),
            torch.zeros_like(modes.turns),
            torch.zeros_like(modes.turns),
        )
    exponents = _exponents(modes, first, len(rungs))
    changes = modes.change(exponents)
    modes_grads: list[Pair] = []
    correction_grad = torch.empty(0)
    for level in range(len(rungs) - 1, -1, -1):
        rung, grad, change = rungs[level], grads[level], changes.at(level)
        grad = torch.zeros_like(rung) if grad is None else grad
        modes_grad = _modes_backward(grad)
        if level < len(rungs) - 1:
            # All of it belongs to this function: sums are made in place.
            correction = plus_modes(rung, change.scaled(-1))
            grad = grad.baddbmm_(correction.mT, correction_grad)
            modes_grad = _modes_backward(grad).plus(_modes_backward(correction_grad @ correction.mT))
            grad = grad.baddbmm_(_two_and(change, correction).mT, correction_grad)
            grad = grad.baddbmm_(correction_grad, rung.mT)
        modes_grads.insert(0, modes_grad)
        correction_grad = grad
    # Of a^m = exp(m·(s + 2πi t)) the slopes are m·a^m and 2πi·m·a^m.
    grads_of_powers = Pair(*(torch.stack(parts, dim=1) for parts in zip(*modes_grads, strict=True)))
    slope = grads_of_powers.times(Pair(1 + changes.re, changes.im).conj()).scaled(exponents)
    return correction_grad, slope.re.sum(1), 2 * math.pi * slope.im.sum(1)


def plus_modes(matrix: Float[Tensor, "H N N"], modes: Pair) -> Float[Tensor, "H N N"]:
    """The sum of a matrix and of modes written out, each as [[re, -im], [im, re]]."""
    result = matrix.clone()
    _mode_blocks(result).add_(torch.stack([modes.re, -modes.im, modes.im, modes.re], 1).unflatten(1, (2, 2)))
    return result


def count_of_rungs(first: int, count: int) -> int:
    """How many rungs `repeat` wants to make `count` rows of the `first` ones."""
    if count <= first:
        return 0
    levels = (-(-count // first) - 1).bit_length()
    return max(1, levels + 1 - (_MOST_MOVES - 1).bit_length())


def repeat(
    rows: Float[Tensor, "H k X N"], rungs: Sequence[Tensor], count: int
) -> Float[Tensor, "H count X N"]:
    """The rows, then the rows times Ā^k, times Ā^2k, … where the first rung is Ā^k - 1."""
    for rung in rungs[:-1]:
        rows = torch.cat([rows, _moved(rows, rung)], dim=1)
    parts, step = [rows], rows.shape[1]
    for have in range(step, count, step):
        parts.append(_moved(parts[-1][:, : count - have], rungs[-1]))
    return torch.cat(parts, dim=1)[:, :count]


def repeat_backward(
    grad: Float[Tensor, "H count X N"],
    rows: Float[Tensor, "H count X N"],
    first: int,
    rungs: Sequence[Tensor],
) -> tuple[Float[Tensor, "H k X N"], list[Tensor]]:
    """The adjoint of `repeat`: the gradients of its `first` rows and of the rungs, from what it returned."""
    grads = []
    for level in range(len(rungs) - 1, -1, -1):
        step, count = first << level, grad.shape[1]
        parts = list(F.pad(grad, (0, 0, 0, 0, 0, -count % step)).split(step, dim=1))
        for part in range(len(parts) - 1, 0, -1):
            parts[part - 1] = parts[part - 1] + _moved(parts[part], rungs[level].mT)
        moved = torch.cat(parts[1:], dim=1)[:, : count - step].flatten(1, 2)
        grads.append(rows[:, : count - step].flatten(1, 2).mT @ moved)
        grad = parts[0]
    return grad, grads[::-1]


def _exponents(modes: PolarModes, first: int, levels: int) -> Float[Tensor, "levels 1"]:
    """What the modes are raised to at each level, made on their device."""
    level = torch.arange(levels, device=modes.turns.device)
    return torch.bitwise_left_shift(torch.full_like(level, first), level).to(modes.turns.dtype)[:, None]


def _moved(rows: Float[Tensor, "H k X N"], rung: Float[Tensor, "H N N"]) -> Float[Tensor, "H k X N"]:
    flat = rows.flatten(1, 2)
    return torch.baddbmm(flat, flat, rung).view_as(rows)


def _two_and(change: Pair, like: Float[Tensor, "H N N"]) -> Float[Tensor, "H N N"]:
    """2 + c written out: as a matrix it costs one product, otherwise many passes."""
    return plus_modes(torch.zeros_like(like), Pair(2 + change.re, change.im))


def _mode_blocks(matrix: Float[Tensor, "H N N"]) -> Float[Tensor, "H 2 2 n"]:
    """A view of what connects each mode's parts with each other."""
    return matrix.unflatten(2, (2, -1)).unflatten(1, (2, -1)).diagonal(dim1=2, dim2=4)


def _modes_backward(grad: Float[Tensor, "H N N"]) -> Pair:
    """The gradient of the modes in `plus_modes`."""
    blocks = _mode_blocks(grad)
    return Pair(blocks[:, 0, 0] + blocks[:, 1, 1], blocks[:, 1, 0] - blocks[:, 0, 1])
