"""Powers of a discrete DPLR system by doubling: matrix products alone, as many as the length has digits.

Ā^(2^k) - 1 is kept, not Ā^(2^k): where a system is slow, single precision then rounds what a power changes,
not what it leaves. With E = Ā^m - 1 the next one is 2E + E², and the first one, Ā² - 1 = (Ā - 1)(Ā + 1), is
made of two factors that both have all their digits.

States are rows here: E stands for what acts on row vectors that read a state, its transpose on states.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float


def written_out(
    modes: Float[Tensor, "H n 2"], p: Float[Tensor, "R H n 2"], q: Float[Tensor, "R H N"]
) -> Float[Tensor, "H N N"]:
    """The matrix of modes minus p q on interleaved states."""
    re, im = modes.unbind(-1)
    turns = torch.stack([re, -im, im, re], dim=1).unflatten(1, (2, 2))
    rotation = torch.diag_embed(turns).permute(0, 3, 1, 4, 2).flatten(3).flatten(1, 2)
    if p.shape[0] == 0:
        return rotation
    return rotation - torch.einsum("rhn,rhm->hnm", p.flatten(-2), q)


def climb(
    change: Float[Tensor, "H N N"], opposite: Float[Tensor, "H N N"], levels: int
) -> list[Float[Tensor, "H N N"]]:
    """Ā^(2^k) - 1 for k below `levels`, from Ā - 1 and Ā + 1."""
    rungs = [change]
    for level in range(1, levels):
        last = rungs[-1]
        rungs.append(last @ opposite if level == 1 else torch.baddbmm(last, last, last, beta=2))
    return rungs


def climb_backward(
    grads: Sequence[Tensor], rungs: Sequence[Tensor], opposite: Tensor
) -> tuple[Tensor, Tensor]:
    """The adjoint of `climb`: the gradients of Ā - 1 and Ā + 1 from those of all rungs."""
    total, opposite_grad = grads[-1], torch.zeros_like(opposite)
    for level in range(len(rungs) - 1, 0, -1):
        last = rungs[level - 1]
        if level == 1:
            opposite_grad = last.mT @ total
            total = torch.baddbmm(grads[0], total, opposite.mT)
        else:
            total = torch.baddbmm(torch.baddbmm(grads[level - 1] + 2 * total, total, last.mT), last.mT, total)
    return total, opposite_grad


def repeat(
    rows: Float[Tensor, "H k X N"], rungs: Sequence[Tensor], count: int
) -> Float[Tensor, "H count X N"]:
    """The rows, then the rows times Ā^k, times Ā^2k, … where the first rung is Ā^k - 1."""
    for rung in rungs:
        more = rows[:, : count - rows.shape[1]]
        rows = torch.cat([rows, _moved(more, rung)], dim=1)
    return rows


def repeat_backward(
    grad: Float[Tensor, "H count X N"],
    rows: Float[Tensor, "H count X N"],
    first: int,
    rungs: Sequence[Tensor],
) -> tuple[Float[Tensor, "H k X N"], list[Tensor]]:
    """The adjoint of `repeat`: the gradients of its `first` rows and of the rungs, from what it returned."""
    grads = []
    for level in range(len(rungs) - 1, -1, -1):
        have = first << level
        kept, moved = grad[:, :have], grad[:, have:]
        count = moved.shape[1]
        sources, flat = rows[:, :count].flatten(1, 2), moved.flatten(1, 2)
        grads.append(sources.mT @ flat)
        back = _moved(moved, rungs[level].mT)
        grad = torch.cat([kept[:, :count] + back, kept[:, count:]], dim=1)
    return grad, grads[::-1]


def _moved(rows: Float[Tensor, "H k X N"], rung: Float[Tensor, "H N N"]) -> Float[Tensor, "H k X N"]:
    flat = rows.flatten(1, 2)
    return torch.baddbmm(flat, flat, rung).view_as(rows)
