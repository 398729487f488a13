"""Systems whose transition Ā is written out: kernels by its powers, and steps."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

    from torchs4.ops.forms import DiscreteDPLR


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
    """C Ā^k B̄ in blocks: K[jT + i] = (C Ā^(jT)) (Ā^i B̄), so that H·N·(T + L/T) numbers are formed, not H·N·L.

    LSSL forms the Krylov matrix (B̄, ĀB̄, …) whole. A squaring of Ā costs about as much as reading it N/20
    times, so blocks are a little longer than √L: few squarings, few rows to pass through Ā^T.
    """
    block = 1 << math.ceil(math.log2(2 * math.sqrt(length)))
    powers = squarings(A_bar, block)
    rows = [C.transpose(0, 1)]
    for _ in range(1, math.ceil(length / block)):
        rows.append(rows[-1] @ powers[-1])
    M, H, N = C.shape
    kernel = torch.stack(rows, dim=2).view(H, -1, N) @ krylov(powers, B_bar, block)
    return kernel.view(H, M, -1)[..., :length].transpose(0, 1)


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


def squarings(A_bar: Float[Tensor, "H N N"], length: int) -> list[Tensor]:
    """Ā, Ā², Ā⁴, … up to the first exponent that is at least `length`."""
    powers = [A_bar]
    while 1 << (len(powers) - 1) < length:
        powers.append(powers[-1] @ powers[-1])
    return powers


def krylov(powers: list[Tensor], b: Float[Tensor, "H N"], length: int) -> Float[Tensor, "H N L"]:
    """The columns b, Āb, Ā²b, …, from Ā's squarings."""
    columns = b[..., None]
    for power in powers:
        if columns.shape[-1] >= length:
            break
        columns = torch.cat([columns, power @ columns], dim=-1)
    return columns[..., :length]
