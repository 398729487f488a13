"""Chunks: the recurrence from a state to the next one, a block of samples at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from torchs4.ops.dtypes import kernel_dtype
from torchs4.ops.forms import ChunkOperators
from torchs4.ops.reference.dense import dense_transition, krylov, squarings
from torchs4.ops.reference.discretization import as_real_system, output_row
from torchs4.ops.reference.modes import ModalSystem, as_complex

if TYPE_CHECKING:
    from jaxtyping import Float


def dense_chunk_operators(
    A_bar: Float[Tensor, "H N N"], B_bar: Float[Tensor, "H N"], C: Float[Tensor, "M H N"], block: int
) -> ChunkOperators:
    """The operators of a system whose Ā is written out."""
    powers = squarings(A_bar, block)
    reach = krylov(powers, B_bar, block)
    # Rows C Ā, C Ā², …: a Krylov matrix of the transposed system.
    transposed = [power.mT for power in powers]
    first = torch.einsum("mhn,hnk->mhk", C, A_bar)
    sight = torch.stack([krylov(transposed, row, block).mT for row in first])
    response = torch.einsum("mhn,hnt->mht", C, reach)
    return ChunkOperators(reach.mT, sight, response, (_power(powers, block) - _identity(A_bar)).mT)


def modal_chunk_operators(
    decay: Float[Tensor, "H n 2"],
    p: Float[Tensor, "R H n 2"],
    q: Float[Tensor, "R H n 2"],
    b: Float[Tensor, "H n 2"],
    C: Float[Tensor, "M H n 2"],
    block: int,
) -> ChunkOperators:
    """The operators of a discrete DPLR system, in the kernel's precision. Differentiable."""
    system = as_real_system(ModalSystem(*map(as_complex, (decay, p, q, b))))
    operators = dense_chunk_operators(dense_transition(system), system.b, output_row(C), block)
    # Copies: a registered operator's outputs may share memory with nothing.
    return ChunkOperators(*(operator.to(kernel_dtype(C), copy=True) for operator in operators))


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
    batch, length, H = u.shape
    M, _, block, _ = sight.shape
    blocks = -(-length // block)
    u = F.pad(u.to(reach.dtype), (0, 0, 0, blocks * block - length))
    # (H, blocks·B, T): one matrix product per feature, for all blocks of time and all sequences at once.
    rows = u.view(batch, blocks, block, H).permute(3, 1, 0, 2).reshape(H, blocks * batch, block)
    arriving = (rows @ reach.flip(1)).unflatten(1, (blocks, batch))
    current = state.to(reach.dtype).transpose(0, 1)
    starts = []
    for arrival in arriving.unbind(1):
        starts.append(current)
        current = current + torch.baddbmm(arrival, current, change)
    lag = torch.arange(block, device=u.device)
    lag = lag[None, :] - lag[:, None]
    with_skip = torch.cat([response[..., :1] + skip[..., None], response[..., 1:]], dim=-1)
    toeplitz = torch.where(lag >= 0, with_skip[..., lag.clamp(min=0)], 0)
    y = torch.cat(starts, dim=1) @ sight.mT + rows @ toeplitz
    y = y.view(M, H, blocks, batch, block).permute(0, 3, 2, 4, 1).flatten(2, 3)[:, :, :length]
    return y, current.transpose(0, 1)


def _power(powers: list[Tensor], exponent: int) -> Tensor:
    result = None
    for bit, power in enumerate(powers):
        if exponent >> bit & 1:
            result = power if result is None else result @ power
    if result is None:
        raise ValueError(f"block is {exponent}; a block has at least one sample.")
    return result


def _identity(matrix: Tensor) -> Tensor:
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)
