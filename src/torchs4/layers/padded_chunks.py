"""Chunks whose sequences end at different positions: each is left in the state after its own last one."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchs4.layers.inputs import position_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from jaxtyping import Float, Int

# Samples per block of the chunk pass: about the size of a usual state, so that no product dominates.
BLOCK = 64
# What is left of a sequence goes in pieces of these sizes: a layer remembers what it needs for few.
_PIECES = (16, 4, 1)


def padded_lengths(x: Tensor, lengths: Int[Tensor, " B"] | Sequence[int] | None) -> Int[Tensor, " B"] | None:
    """How many positions of each sequence are real; None when all of them are."""
    mask = position_mask(x, lengths, None)
    return None if mask is None or bool(mask.all()) else mask.sum(dim=1)


def with_lengths(
    prefill: Callable[..., tuple[Any, Any]], lengths: Int[Tensor, " B"] | None
) -> Callable[[Any, Any, float], tuple[Any, Any]]:
    """A module's prefill, for sequences of these lengths."""
    if lengths is None:
        return prefill
    if "lengths" not in inspect.signature(prefill).parameters:
        owner = type(getattr(prefill, "__self__", prefill)).__name__
        raise ValueError(
            f"{owner}.prefill takes no lengths: it cannot tell the state after each sequence's own last "
            f"position. Prefill sequences of equal length together, or give it a parameter `lengths`."
        )
    return partial(prefill, lengths=lengths)


def refuse_lengths(lengths: Int[Tensor, " B"] | None, reason: str) -> None:
    """For what cannot hold states of different ages in one batch."""
    if lengths is not None:
        raise ValueError(
            f"lengths are {_shown(lengths.tolist())}: {reason}. Prefill sequences of equal length together."
        )


def pass_each_to_its_end(
    pass_blocks: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]],
    u: Float[Tensor, "B L H"],
    lengths: Int[Tensor, " B"],
    state: Float[Tensor, "B H N"],
) -> tuple[Float[Tensor, "B L M H"], Float[Tensor, "B H N"]]:
    """Outputs of padded sequences, and the state after each one's last real position.

    pass_blocks: outputs and state after as many samples as a multiple of its first argument. u: zeros where
        positions are padding.
    """
    length = u.shape[1]
    u = F.pad(u, (0, 0, 0, -length % BLOCK))
    blocks = lengths // BLOCK
    outputs, done, ends = [], 0, state
    # All sequences from the last whole block of one to that of the next; what comes after it is padding.
    for stop in sorted({*blocks.tolist(), u.shape[1] // BLOCK}):
        if stop > done:
            y, state = pass_blocks(BLOCK, u[:, done * BLOCK : stop * BLOCK], state)
            outputs.append(y)
        ends = torch.where((blocks == stop)[:, None, None], state, ends)
        done = stop
    # What each has left, in pieces of a few sizes.
    position = blocks * BLOCK
    for size in _PIECES:
        while bool((has_more := lengths - position >= size).any()):
            places = (position[:, None] + torch.arange(size, device=u.device)).clamp(max=u.shape[1] - 1)
            piece = u.gather(1, places[..., None].expand(-1, -1, u.shape[2]))
            _, moved = pass_blocks(size, piece, ends)
            ends = torch.where(has_more[:, None, None], moved, ends)
            position = position + size * has_more
    return torch.cat(outputs, dim=1)[:, :length], ends


def _shown(lengths: list[int]) -> str:
    return ", ".join(map(str, lengths[:5])) + (" …" if len(lengths) > 5 else "")
