"""Sequences cut into blocks of equal size, with what is missing in the last one made up for and left out.

Axes: B sequences, n blocks of w positions, D columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor


def cut(x: Float[Tensor, "*B L D"], size: int) -> Float[Tensor, "*B n w D"]:
    """Blocks of a sequence; zeros fill the last one."""
    return F.pad(x, (0, 0, 0, -x.shape[-2] % size)).unflatten(-2, (-1, size))


def joined(blocks: Float[Tensor, "*B n w D"], length: int) -> Float[Tensor, "*B L D"]:
    """The sequence again, without what filled its last block."""
    return blocks.flatten(-3, -2)[..., :length, :]


def real_in_blocks(
    length: int, size: int, counts: Int[Tensor, " B"] | None, device: torch.device
) -> Bool[Tensor, "B n w"]:
    """Which positions of the blocks are real; with counts None there is one row for all sequences."""
    positions = torch.arange(length + -length % size, device=device).unflatten(0, (-1, size))
    if counts is None:
        return (positions < length)[None]
    return positions < counts[:, None, None]


def never_empty(visible: Bool[Tensor, "*B S"]) -> Bool[Tensor, "*B S"]:
    """Where nothing may be seen, as behind a sequence's end, the first: a mean over nothing is no number."""
    first = torch.arange(visible.shape[-1], device=visible.device) == 0
    return visible | (first & ~visible.any(-1, keepdim=True))


def each_block_alone(x: Float[Tensor, "B heads n w D"]) -> Float[Tensor, "B*n heads w D"]:
    """Blocks as a batch, which is what fused attention takes."""
    return x.transpose(1, 2).flatten(0, 1)


def blocks_of_batch(x: Float[Tensor, "B*n heads w D"], blocks: int) -> Float[Tensor, "B heads n w D"]:
    """And back."""
    return x.unflatten(0, (-1, blocks)).transpose(1, 2)
