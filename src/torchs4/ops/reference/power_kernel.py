"""The kernel of a diagonal system: powers of its modes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchs4.ops.reference.modes import as_complex

if TYPE_CHECKING:
    from jaxtyping import Complex, Float


def power_kernel(
    a: Float[Tensor, "H n 2"], weights: Float[Tensor, "M H n 2"], length: int, dtype: torch.dtype
) -> Float[Tensor, "M H L"]:
    """K_l = 2·Re Σ w a^l, as one product of √L × N and N × √L real matrices per feature.

    With l = jT + i the power splits into a^(jT)·a^i, so only 2√L powers of a mode are ever formed.
    """
    fine, coarse = _fine_and_coarse_powers(as_complex(a), length)
    left = 2 * as_complex(weights)[..., None] * coarse
    # Re(vw) = Re v Re w - Im v Im w: the modes' two parts are summed as one real axis.
    left, right = torch.view_as_real(left.conj_physical()), torch.view_as_real(fine)
    kernel = torch.einsum("mhnjc,hnic->mhji", left, right)
    return kernel.flatten(-2)[..., :length].to(dtype)


def power_kernel_backward(
    grad: Float[Tensor, "M H L"], a: Float[Tensor, "H n 2"], weights: Float[Tensor, "M H n 2"]
) -> list[Tensor]:
    """The gradients of `power_kernel` for a and the weights."""
    length = grad.shape[-1]
    modes, w = as_complex(a), as_complex(weights)
    fine, coarse = _fine_and_coarse_powers(modes, length)
    steps, jumps = fine.shape[-1], coarse.shape[-1]
    padded = torch.nn.functional.pad(grad.double(), (0, steps * jumps - length))
    padded = padded.unflatten(-1, (jumps, steps)).to(fine.dtype)
    # The gradient of w·a^(jT)·a^i, summed over one of the two factors at a time.
    over_fine = 2 * torch.einsum("mhji,hni->mhnj", padded, fine.conj_physical())
    weights_grad = (over_fine * coarse.conj_physical()).sum(-1)
    # d a^l / d a = l·a^(l-1): the coarse part's share, then the fine part's.
    positions = torch.arange(max(steps, jumps), dtype=torch.float64, device=grad.device)
    before = torch.cat([torch.zeros_like(fine[..., :1]), fine[..., :-1]], dim=-1)
    over_coarse = 2 * torch.einsum("mhji,mhn,hnj->hni", padded, w.conj_physical(), coarse.conj_physical())
    a_grad = (over_coarse * (before * positions[:steps]).conj_physical()).sum(-1)
    earlier = torch.cat([torch.zeros_like(coarse[..., :1]), coarse[..., :-1]], dim=-1)
    slope = earlier * (fine[..., -1:] * steps * positions[:jumps])
    a_grad = a_grad + (over_fine * (w[..., None] * slope).conj_physical()).sum((0, -1))
    return [torch.view_as_real(a_grad).clone(), torch.view_as_real(weights_grad).clone()]


def _fine_and_coarse_powers(a: Complex[Tensor, "H n"], length: int) -> tuple[Tensor, Tensor]:
    steps = math.isqrt(length - 1) + 1
    fine = _powers(a, steps)
    return fine, _powers(fine[..., -1] * a, -(-length // steps))


def _powers(a: Complex[Tensor, "H n"], count: int) -> Complex[Tensor, "H n count"]:
    """1, a, …, a^(count-1): by doubling, so that no exponential or logarithm is taken."""
    powers, step = torch.ones_like(a)[..., None], a
    while powers.shape[-1] < count:
        powers = torch.cat([powers, powers * step[..., None]], dim=-1)
        step = step * step
    return powers[..., :count]
