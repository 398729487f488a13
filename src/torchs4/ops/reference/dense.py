"""Systems whose transition Ā is written out: kernels by its powers, chunks from a state to the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

    from torchs4.ops.reference.discretization import DiscreteDPLR


class ChunkOperators(NamedTuple):
    """What carries a state over a block of T samples, and what the block's output is made of."""

    powers: tuple[Float[Tensor, "H N N"], ...]
    state_from_input: Float[Tensor, "H T N"]
    output_from_state: Float[Tensor, "H N M*T"]
    output_from_input: Float[Tensor, "H T M*T"]


def dense_transition(system: DiscreteDPLR) -> Float[Tensor, "H N N"]:
    """Ā written out as a real matrix on the interleaved state."""
    H, n, _ = system.a.shape
    real, imaginary = system.a.unbind(-1)
    turns = torch.stack([real, -imaginary, imaginary, real], dim=-1).view(H, n, 2, 2)
    apart = torch.eye(n, dtype=turns.dtype, device=turns.device)
    rotation = torch.einsum("hnij,nm->hnimj", turns, apart).reshape(H, 2 * n, 2 * n)
    return rotation - torch.einsum("rhn,rhm->hnm", system.p, system.q)


def dense_kernel(
    A_bar: Float[Tensor, "H N N"],
    B_bar: Float[Tensor, "H N"],
    C: Float[Tensor, "M H N"],
    length: int,
) -> Float[Tensor, "M H L"]:
    """C times the Krylov matrix (B̄, ĀB̄, …), which is formed whole: H·N·L numbers, as LSSL does it."""
    return torch.einsum("mhn,hnl->mhl", C, _krylov(_squarings(A_bar, length), B_bar, length))


def dense_step(
    A_bar: Float[Tensor, "H N N"],
    B_bar: Float[Tensor, "H N"],
    C: Float[Tensor, "M H N"],
    D: Float[Tensor, "M H"],
    u: Float[Tensor, "B H"],
    state: Float[Tensor, "B H N"],
) -> tuple[Float[Tensor, "B M H"], Float[Tensor, "B H N"]]:
    """One step with a written-out Ā."""
    new_state = torch.einsum("hnm,bhm->bhn", A_bar, state) + B_bar * u[..., None]
    return torch.einsum("mhn,bhn->bmh", C, new_state) + D * u[:, None], new_state


def chunk_operators(
    A_bar: Float[Tensor, "H N N"],
    B_bar: Float[Tensor, "H N"],
    C: Float[Tensor, "M H N"],
    block: int,
) -> ChunkOperators:
    """Prepare `chunk_pass` for blocks of `block` samples, a power of two."""
    if block < 1 or block & (block - 1):
        raise ValueError(f"block is {block}; it must be a power of two.")
    powers = _squarings(A_bar, block)
    reach = _krylov(powers, B_bar, block)
    # Rows C Ā, C Ā², …: a Krylov matrix of the transposed system.
    transposed = [power.mT for power in powers]
    first = torch.einsum("mhn,hnk->mhk", C, A_bar)
    sight = torch.stack([_krylov(transposed, row, block) for row in first], dim=2)
    response = torch.einsum("mhn,hnt->hmt", C, reach)
    lag = torch.arange(block, device=C.device)
    lag = lag[None, :] - lag[:, None]
    toeplitz = torch.where(lag >= 0, response[..., lag.clamp(min=0)], 0).movedim(1, 2)
    return ChunkOperators(tuple(powers), reach.flip(-1).mT, sight.flatten(2), toeplitz.flatten(2))


def chunk_pass(
    operators: ChunkOperators, u: Float[Tensor, "B L H"], state: Float[Tensor, "B H N"]
) -> tuple[Float[Tensor, "B L M H"], Float[Tensor, "B H N"]]:
    """The recurrence over a chunk of any length, block by block: the outputs and the state after it."""
    batch, length, H = u.shape
    block = operators.state_from_input.shape[1]
    blocks = -(-length // block)
    tail = length - (blocks - 1) * block
    padded = torch.nn.functional.pad(u, (0, 0, 0, blocks * block - length))
    # (H, blocks·B, T): one matrix product per feature, for all blocks of time and all sequences at once.
    padded = padded.view(batch, blocks, block, H).permute(3, 1, 0, 2).reshape(H, blocks * batch, block)

    across = operators.powers[-1].mT
    arriving = (padded[:, :-batch] @ operators.state_from_input).unflatten(1, (blocks - 1, batch))
    current = state.transpose(0, 1)
    starts = [current]
    for index in range(blocks - 1):
        current = torch.baddbmm(arriving[:, index], current, across)
        starts.append(current)
    y = torch.cat(starts, dim=1) @ operators.output_from_state
    y = torch.baddbmm(y, padded, operators.output_from_input)
    y = y.view(H, blocks, batch, -1, block).permute(2, 1, 4, 3, 0).flatten(1, 2)[:, :length]

    for bit, power in enumerate(operators.powers):
        if tail >> bit & 1:
            current = current @ power.mT
    last = padded[:, -batch:, :tail] @ operators.state_from_input[:, block - tail :]
    return y, (current + last).transpose(0, 1)


def _squarings(A_bar: Tensor, length: int) -> list[Tensor]:
    """Ā, Ā², Ā⁴, … up to the first exponent that is at least `length`."""
    powers = [A_bar]
    while 1 << (len(powers) - 1) < length:
        powers.append(powers[-1] @ powers[-1])
    return powers


def _krylov(powers: list[Tensor], b: Float[Tensor, "H N"], length: int) -> Float[Tensor, "H N L"]:
    columns = b[..., None]
    for power in powers:
        if columns.shape[-1] >= length:
            break
        columns = torch.cat([columns, power @ columns], dim=-1)
    return columns[..., :length]
