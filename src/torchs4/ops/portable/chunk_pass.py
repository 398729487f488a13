"""Chunks: the recurrence from a state to the next one as matrix products, over as many levels as blocks have
digits.

Axes: H features, J blocks of T samples, B sequences, M output channels, N state size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torchs4.ops.portable.first_powers import toeplitz, toeplitz_backward

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float


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
    course = _course(reach, change, u, state)
    # Sums are made in place: signals are large, and memory that is new costs as much as the product.
    y = (course.rows @ _echo(response, skip)).baddbmm_(course.starts, _side_by_side(sight).mT)
    y = y.unflatten(2, (len(sight), -1)).permute(2, 0, 1, 3).unflatten(2, (-1, len(u)))
    return y.permute(0, 3, 2, 4, 1).flatten(2, 3)[:, :, : u.shape[1]], course.final.transpose(0, 1)


def chunk_pass_backward(
    grad: Float[Tensor, "M B L H"],
    final_grad: Float[Tensor, "B H N"],
    reach: Float[Tensor, "H T N"],
    sight: Float[Tensor, "M H T N"],
    response: Float[Tensor, "M H T"],
    change: Float[Tensor, "H N N"],
    skip: Float[Tensor, "M H"],
    u: Float[Tensor, "B L H"],
    state: Float[Tensor, "B H N"],
) -> list[Tensor]:
    """The gradients of all inputs: the states again, then the same levels from the last block on."""
    M, H, block, _ = sight.shape
    batch, length, _ = u.shape
    rows, starts, _, powers = _course(reach, change, u, state)
    y_grad = torch.cat([_rows(channel, block, reach.dtype) for channel in grad], dim=-1)
    leaving = (y_grad @ _side_by_side(sight)).unflatten(1, (-1, batch)).flip(1)
    after, state_grad = _starts(
        final_grad.transpose(0, 1).contiguous(), leaving, [power.mT for power in powers]
    )
    after = after.flip(1).flatten(1, 2)
    response_grad = toeplitz_backward((rows.mT @ y_grad).unflatten(2, (M, block)).permute(2, 0, 1, 3))
    sight_grad = (y_grad.mT @ starts).unflatten(1, (M, block)).transpose(0, 1)
    u_grad = (y_grad @ _echo(response, skip).mT).baddbmm_(after, reach.flip(1).mT)
    u_grad = u_grad.view(H, -1, batch, block).permute(2, 1, 3, 0).flatten(1, 2)[:, :length]
    results = [
        (rows.mT @ after).flip(1),
        sight_grad,
        response_grad,
        starts.mT @ after,
        response_grad[..., 0],
        u_grad,
        state_grad.transpose(0, 1),
    ]
    inputs = (reach, sight, response, change, skip, u, state)
    return [result.to(x.dtype, copy=True) for result, x in zip(results, inputs, strict=True)]


class _Course(NamedTuple):
    """What is known of a chunk before its outputs: samples, the state before each block and the last."""

    rows: Float[Tensor, "H J*B T"]
    starts: Float[Tensor, "H J*B N"]
    final: Float[Tensor, "H B N"]
    powers: list[Float[Tensor, "H N N"]]


def _course(reach: Tensor, change: Tensor, u: Tensor, state: Tensor) -> _Course:
    rows = _rows(u, reach.shape[1], reach.dtype)
    arriving = (rows @ reach.flip(1)).unflatten(1, (-1, len(u)))
    powers = [change]
    for _ in range(arriving.shape[1].bit_length() - 1):
        # Two blocks change a state by 2 E + E² if one does by E.
        powers.append(torch.baddbmm(powers[-1], powers[-1], powers[-1], beta=2))
    starts, final = _starts(state.to(reach.dtype).transpose(0, 1).contiguous(), arriving, powers)
    return _Course(rows, starts.flatten(1, 2), final, powers)


def _rows(u: Float[Tensor, "B L H"], block: int, dtype: torch.dtype) -> Float[Tensor, "H J*B T"]:
    """One matrix per feature, for all blocks of time and all sequences at once."""
    blocks = -(-u.shape[1] // block)
    padded = F.pad(u.to(dtype), (0, 0, 0, blocks * block - u.shape[1]))
    return padded.unflatten(1, (blocks, block)).permute(3, 1, 0, 2).flatten(1, 2)


def _starts(
    state: Float[Tensor, "H B N"], arriving: Float[Tensor, "H J B N"], powers: Sequence[Tensor]
) -> tuple[Float[Tensor, "H J B N"], Float[Tensor, "H B N"]]:
    """The state before each block, and that after the last one: blocks in pairs, and pairs like blocks."""
    change, pairs = powers[0], arriving.shape[1] // 2
    if pairs == 0:
        return state[:, None], _after(state[:, None], change, arriving)[:, 0]
    first, second = arriving[:, 0 : 2 * pairs : 2], arriving[:, 1 : 2 * pairs : 2]
    even, final = _starts(state, _after(first, change, second), powers[1:])
    starts = torch.stack([even, _after(even, change, first)], dim=2).flatten(1, 2)
    if arriving.shape[1] > 2 * pairs:
        starts = torch.cat([starts, final[:, None]], dim=1)
        final = _after(final[:, None], change, arriving[:, -1:])[:, 0]
    return starts, final


def _after(states: Tensor, change: Tensor, arriving: Tensor) -> Float[Tensor, "H J B N"]:
    """A block later: what is left of the states, and what has arrived."""
    return (states + arriving).flatten(1, 2).baddbmm_(states.flatten(1, 2), change).view_as(states)


def _side_by_side(sight: Float[Tensor, "M H T N"]) -> Float[Tensor, "H M*T N"]:
    return sight.transpose(0, 1).flatten(1, 2)


def _echo(response: Float[Tensor, "M H T"], skip: Float[Tensor, "M H"]) -> Float[Tensor, "H T M*T"]:
    """What each sample of a block adds to the outputs of all channels from it on."""
    with_skip = torch.cat([response[..., :1] + skip[..., None], response[..., 1:]], dim=-1)
    return toeplitz(with_skip).permute(1, 2, 0, 3).flatten(2, 3)
