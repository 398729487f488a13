"""Chunks: the recurrence from a state to the next one as matrix products, over as many levels as blocks have
digits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from torchs4.ops.dtypes import kernel_dtype
from torchs4.ops.forms import ChunkOperators
from torchs4.ops.portable.discretization import output_row
from torchs4.ops.portable.ladder import climb, repeat, written_out
from torchs4.ops.portable.recomputing import recomputed

if TYPE_CHECKING:
    from jaxtyping import Float


def modal_chunk_operators(
    decay: Float[Tensor, "H n 2"],
    growth: Float[Tensor, "H n 2"],
    p: Float[Tensor, "R H n 2"],
    q: Float[Tensor, "R H n 2"],
    b: Float[Tensor, "H n 2"],
    C: Float[Tensor, "M H n 2"],
    block: int,
) -> ChunkOperators:
    """The operators of a discrete DPLR system, in the kernel's precision. Differentiable."""
    operators = recomputed(_operators, decay, growth, p, q, b, C, block)
    return ChunkOperators(*(operator.to(kernel_dtype(C)) for operator in operators))


def _operators(
    decay: Tensor, growth: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, block: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    levels = (block - 1).bit_length()
    change = written_out(-decay, p, output_row(q))
    rungs = climb(change, written_out(growth, p, output_row(q)), block.bit_length())
    reach = repeat(b.flatten(-2)[:, None, None], [rung.mT for rung in rungs[:levels]], block)[:, :, 0]
    rows = output_row(C.to(decay.dtype)).transpose(0, 1)
    sight = repeat((rows + rows @ change)[:, None], rungs[:levels], block)
    response = torch.einsum("hmn,htn->mht", rows, reach)
    return reach, sight.permute(2, 0, 1, 3), response, _power(rungs, block).mT


def _power(rungs: list[Tensor], exponent: int) -> Tensor:
    """Ā^exponent - 1, from (1 + E)(1 + F) - 1 = E + F + E F."""
    result = None
    for bit, rung in enumerate(rungs):
        if exponent >> bit & 1:
            result = rung if result is None else torch.baddbmm(result + rung, result, rung)
    if result is None:
        raise ValueError(f"block is {exponent}; a block has at least one sample.")
    return result


def chunk_pass(
    reach: Float[Tensor, "H T N"],
    sight: Float[Tensor, "M H T N"],
    response: Float[Tensor, "M H T"],
    change: Float[Tensor, "H N N"],
    skip: Float[Tensor, "M H"],
    u: Float[Tensor, "B L H"],
    state: Float[Tensor, "B H N"],
) -> tuple[Float[Tensor, "M B L H"], Float[Tensor, "B H N"]]:
    """The outputs and the state after the last block; the signal is zero after its end. Differentiable."""
    y, final = recomputed(_pass, reach, sight, response, change, skip, u, state)
    return y, final


def _pass(
    reach: Tensor, sight: Tensor, response: Tensor, change: Tensor, skip: Tensor, u: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    batch, length, H = u.shape
    M, _, block, _ = sight.shape
    blocks = -(-length // block)
    u = F.pad(u.to(reach.dtype), (0, 0, 0, blocks * block - length))
    # (H, blocks·B, T): one matrix product per feature, for all blocks of time and all sequences at once.
    rows = u.view(batch, blocks, block, H).permute(3, 1, 0, 2).reshape(H, blocks * batch, block)
    arriving = (rows @ reach.flip(1)).unflatten(1, (blocks, batch))
    starts, final = _starts(state.to(reach.dtype).transpose(0, 1), arriving, change)
    y = starts.flatten(1, 2) @ sight.mT + rows @ _toeplitz(response, skip)
    y = y.view(M, H, blocks, batch, block).permute(0, 3, 2, 4, 1).flatten(2, 3)[:, :, :length]
    return y, final.transpose(0, 1)


def _starts(
    state: Float[Tensor, "H B N"], arriving: Float[Tensor, "H J B N"], change: Float[Tensor, "H N N"]
) -> tuple[Float[Tensor, "H J B N"], Float[Tensor, "H B N"]]:
    """The state before each block, and that after the last one: blocks in pairs, and pairs like blocks."""
    pairs = arriving.shape[1] // 2
    if pairs == 0:
        return state[:, None], _after(state[:, None], change, arriving)[:, 0]
    first, second = arriving[:, 0 : 2 * pairs : 2], arriving[:, 1 : 2 * pairs : 2]
    both = _after(first, change, second)
    even, final = _starts(state, both, torch.baddbmm(change, change, change, beta=2))
    starts = torch.stack([even, _after(even, change, first)], dim=2).flatten(1, 2)
    if arriving.shape[1] > 2 * pairs:
        starts = torch.cat([starts, final[:, None]], dim=1)
        final = _after(final[:, None], change, arriving[:, -1:])[:, 0]
    return starts, final


def _after(states: Tensor, change: Tensor, arriving: Tensor) -> Float[Tensor, "H J B N"]:
    """A block later: what is left of the states, and what has arrived."""
    flat = states.flatten(1, 2)
    return torch.baddbmm(flat, flat, change).view_as(states) + arriving


def _toeplitz(response: Float[Tensor, "M H T"], skip: Float[Tensor, "M H"]) -> Float[Tensor, "M H T T"]:
    """What each sample of a block adds to the outputs from it on."""
    lag = torch.arange(response.shape[-1], device=response.device)
    lag = lag[None, :] - lag[:, None]
    with_skip = torch.cat([response[..., :1] + skip[..., None], response[..., 1:]], dim=-1)
    return torch.where(lag >= 0, with_skip[..., lag.clamp(min=0)], 0)
