"""The kernel of a diagonal system: powers of its modes, in single precision for any length.

Axes: M output channels, H features, n modes, L = J·T samples in J coarse steps of T fine ones.

A power a^l turns a mode by l times its angle. Where a mode stands after many turns is computed from its angle
in two parts, modulo whole turns, for every power of two; the others are products of few of those.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchs4.ops.dtypes import exact_products, full_precision
from torchs4.ops.portable.pairs import Pair
from torchs4.ops.portable.polar import PolarModes
from torchs4.ops.transforms import differentiate_plainly, inside_transform

if TYPE_CHECKING:
    from jaxtyping import Float


def power_kernel(
    log_size: Float[Tensor, "H n"],
    turns: Float[Tensor, "H n"],
    turns_rest: Float[Tensor, "H n"],
    weights: Float[Tensor, "M H n 2"],
    length: int,
    dtype: torch.dtype,
) -> Float[Tensor, "M H L"]:
    """K_l = 2·Re Σ w a^l for l < length; see discretization.WeighedModes."""
    run = plain_kernel if inside_transform() else _kernel
    return run(log_size, turns, turns_rest, weights, length).to(dtype)


def plain_kernel(log_size: Tensor, turns: Tensor, turns_rest: Tensor, weights: Tensor, length: int) -> Tensor:
    """`power_kernel` as PyTorch differentiates it by itself."""
    fine, coarse = _fine_and_coarse(PolarModes(log_size, turns, turns_rest), length)
    M, H = weights.shape[:2]
    left = Pair(*weights[:, :, None].unbind(-1)).times(coarse).scaled(2)
    # Re(vw) = Re v Re w - Im v Im w: the modes' two parts are summed as one real axis.
    rows = torch.cat([left.re, -left.im], dim=-1).transpose(0, 1).flatten(1, 2)
    product = rows @ torch.cat(fine, dim=-1).mT
    return product.view(H, M, -1).transpose(0, 1)[..., :length].contiguous()


@torch.library.custom_op("torchs4::portable_power_kernel", mutates_args=())
def _kernel(log_size: Tensor, turns: Tensor, turns_rest: Tensor, weights: Tensor, length: int) -> Tensor:
    with exact_products(weights):
        return plain_kernel(log_size, turns, turns_rest, weights, length)


@_kernel.register_fake
def _(log_size: Tensor, turns: Tensor, turns_rest: Tensor, weights: Tensor, length: int) -> Tensor:
    return weights.new_empty(weights.shape[0], weights.shape[1], length)


@torch.library.custom_op("torchs4::portable_power_kernel_backward", mutates_args=())
def _kernel_backward(
    grad: Tensor, log_size: Tensor, turns: Tensor, turns_rest: Tensor, weights: Tensor
) -> list[Tensor]:
    with exact_products(grad):
        return _gradients(grad, PolarModes(log_size, turns, turns_rest), weights)


@_kernel_backward.register_fake
def _(grad: Tensor, log_size: Tensor, turns: Tensor, turns_rest: Tensor, weights: Tensor) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in (log_size, turns, weights)]


def _gradients(
    grad: Float[Tensor, "M H L"], modes: PolarModes, weights: Float[Tensor, "M H n 2"]
) -> list[Tensor]:
    """Of a^l with a = exp(s + 2πi t) the slopes are l·a^l and 2πi·l·a^l: two sums over samples are enough."""
    length = grad.shape[-1]
    fine, coarse = _fine_and_coarse(modes, length)
    M, H, n, _ = weights.shape
    T, J = fine.re.shape[1], coarse.re.shape[1]
    grad = F.pad(grad, (0, J * T - length)).view(M, H, J, T).transpose(0, 1).reshape(H, M * J, T)
    samples = torch.arange(T, dtype=grad.dtype, device=grad.device)[:, None]
    # Σ g a^i and Σ i·g a^i over each coarse step, for both parts of a^i: one product.
    columns = torch.cat([*fine, samples * fine.re, samples * fine.im], dim=-1)
    parts = (grad @ columns).view(H, M, J, 4, n).permute(3, 1, 0, 2, 4)
    plain, moment = Pair(parts[0], parts[1]).times(coarse), Pair(parts[2], parts[3]).times(coarse)
    starts = T * torch.arange(J, dtype=grad.dtype, device=grad.device)[:, None]
    total_moment = Pair(*((m + starts * p).sum(-2) for m, p in zip(moment, plain, strict=True)))
    total = Pair(*(part.sum(-2) for part in plain))
    slope = Pair(*weights.unbind(-1)).times(total_moment)
    weights_grad = 2 * torch.stack([total.re, -total.im], dim=-1)
    return [2 * slope.re.sum(0), -4 * math.pi * slope.im.sum(0), weights_grad]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:4])


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    modes, length = ctx.saved_tensors, grad.shape[-1]
    if torch.is_grad_enabled():
        return (*differentiate_plainly(partial(plain_kernel, length=length), modes, [grad]), None)
    # Somebody may go backward inside autocast, where products would be rounded to half precision.
    with full_precision(grad):
        log_size_grad, turns_grad, weights_grad = _kernel_backward(grad, *modes)
    return log_size_grad, turns_grad, None, weights_grad, None


_kernel.register_autograd(_differentiate, setup_context=_keep)


def _fine_and_coarse(modes: PolarModes, length: int) -> tuple[Pair, Pair]:
    """a^i for i < T and a^(jT) for j < J."""
    steps = min(1 << ((length - 1).bit_length() + 1) // 2, length)
    return modes.powers(steps), modes.powers(-(-length // steps), steps)
