"""The kernel of a DPLR system, K[jT + i] = (C Ā^(jT)) (Ā^i b): rows, columns and one product.

Axes: M output channels, H features, n modes, N = 2n, R rank, L = J·T samples: J coarse steps of T fine ones.

A compiler sees one node: how many products there are depends on the length, which must not be part of a
graph, and vendors' libraries run them anyway.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from torchs4.ops.dtypes import exact_products, full_precision, kernel_dtype
from torchs4.ops.portable.discretization import PolarSystem
from torchs4.ops.portable.first_powers import (
    FirstPowers,
    count_of_first_powers,
    first_powers,
    pairs_of_row,
    rows_of,
)
from torchs4.ops.portable.ladder import climb, climb_backward, count_of_rungs, repeat, repeat_backward
from torchs4.ops.portable.polar import PolarModes
from torchs4.ops.transforms import differentiate_plainly, inside_transform

if TYPE_CHECKING:
    from jaxtyping import Float


def modal_kernel(
    log_size: Float[Tensor, "H n"],
    turns: Float[Tensor, "H n"],
    turns_rest: Float[Tensor, "H n"],
    p: Float[Tensor, "R H n 2"],
    q: Float[Tensor, "R H n 2"],
    b: Float[Tensor, "H n 2"],
    C: Float[Tensor, "M H n 2"],
    length: int,
) -> Float[Tensor, "M H L"]:
    """K_l = C Ā^l b of a discretization.PolarSystem for l < length. Only inputs are kept for gradients."""
    run = plain_kernel if inside_transform() else _kernel
    return run(log_size, turns, turns_rest, p, q, b, C, length)


class _Factors(NamedTuple):
    first: FirstPowers
    rungs: list[Tensor]
    fine: Float[Tensor, "H T 1 N"]
    coarse: Float[Tensor, "H J M N"]
    fine_rungs: list[Tensor]
    coarse_rungs: list[Tensor]


def plain_kernel(
    log_size: Tensor,
    turns: Tensor,
    turns_rest: Tensor,
    p: Tensor,
    q: Tensor,
    b: Tensor,
    C: Tensor,
    length: int,
) -> Tensor:
    """`modal_kernel` as PyTorch differentiates it by itself."""
    factors = _factors(PolarSystem(log_size, turns, turns_rest, p, q, b), C, length)
    H, J, M, _ = factors.coarse.shape
    product = (factors.coarse.flatten(1, 2) @ factors.fine[:, :, 0].mT).view(H, J, M, -1)
    return product.permute(2, 0, 1, 3).flatten(2)[..., :length].contiguous()


def _factors(system: PolarSystem, C: Tensor, length: int) -> _Factors:
    count = count_of_first_powers(2 * system.b.shape[1], len(system.p), length)
    first = first_powers(system, count)
    # Fine steps are about as many as coarse ones.
    fine_levels = max(0, ((length - 1).bit_length() + 1) // 2 - (count - 1).bit_length())
    steps = count << fine_levels
    coarse_steps = -(-length // steps)
    levels = fine_levels + count_of_rungs(1, coarse_steps)
    rungs = climb(PolarModes(*system[:3]), first.correction(count), count, levels)
    fine_rungs = rungs[: count_of_rungs(count, steps)]
    fine = repeat(first.columns[:, :, None], [rung.mT for rung in fine_rungs], steps)
    coarse = repeat(rows_of(C.to(system.b.dtype))[:, None], rungs[fine_levels:], coarse_steps)
    return _Factors(first, rungs, fine, coarse, fine_rungs, rungs[fine_levels:])


@torch.library.custom_op("torchs4::portable_kernel", mutates_args=())
def _kernel(
    log_size: Tensor,
    turns: Tensor,
    turns_rest: Tensor,
    p: Tensor,
    q: Tensor,
    b: Tensor,
    C: Tensor,
    length: int,
) -> Tensor:
    with exact_products(C):
        return plain_kernel(log_size, turns, turns_rest, p, q, b, C, length)


@_kernel.register_fake
def _(
    log_size: Tensor,
    turns: Tensor,
    turns_rest: Tensor,
    p: Tensor,
    q: Tensor,
    b: Tensor,
    C: Tensor,
    length: int,
) -> Tensor:
    return C.new_empty(C.shape[0], C.shape[1], length, dtype=kernel_dtype(C))


@torch.library.custom_op("torchs4::portable_kernel_backward", mutates_args=())
def _kernel_backward(
    grad: Tensor,
    log_size: Tensor,
    turns: Tensor,
    turns_rest: Tensor,
    p: Tensor,
    q: Tensor,
    b: Tensor,
    C: Tensor,
) -> list[Tensor]:
    with exact_products(grad):
        return _gradients(grad, PolarSystem(log_size, turns, turns_rest, p, q, b), C)


@_kernel_backward.register_fake
def _(
    grad: Tensor,
    log_size: Tensor,
    turns: Tensor,
    turns_rest: Tensor,
    p: Tensor,
    q: Tensor,
    b: Tensor,
    C: Tensor,
) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in (log_size, turns, p, q, b, C)]


def _gradients(
    grad: Float[Tensor, "M H L"], system: PolarSystem, C: Float[Tensor, "M H n 2"]
) -> list[Tensor]:
    length = grad.shape[-1]
    first, rungs, fine, coarse, fine_rungs, coarse_rungs = _factors(system, C, length)
    H, J, M, N = coarse.shape
    T, count = fine.shape[1], first.columns.shape[1]
    grad = torch.nn.functional.pad(grad, (0, J * T - length))
    grad = grad.view(M, H, J, T).permute(1, 2, 0, 3).reshape(H, J * M, T)
    coarse_grad = (grad @ fine[:, :, 0]).view(H, J, M, N)
    fine_grad = (grad.mT @ coarse.flatten(1, 2))[:, :, None]
    turned = [rung.mT for rung in fine_rungs]
    columns_grad, fine_grads = repeat_backward(fine_grad, fine, count, turned)
    row_grad, coarse_grads = repeat_backward(coarse_grad, coarse, 1, coarse_rungs)
    between = [None] * (len(rungs) - len(fine_rungs) - len(coarse_rungs))
    rung_grads = [*(g.mT for g in fine_grads), *between, *coarse_grads]
    modes = PolarModes(*system[:3])
    correction_grad, log_size_grad, turns_grad = climb_backward(rung_grads, rungs, modes, count)
    first_grads = first.backward(system, columns_grad[:, :, 0], correction_grad)
    C_grad = pairs_of_row(row_grad[:, 0]).transpose(0, 1)
    grads = (log_size_grad + first_grads[0], turns_grad + first_grads[1], *first_grads[2:], C_grad)
    inputs = (system.log_size, system.turns, system.p, system.q, system.b, C)
    return [result.to(x.dtype, copy=True) for result, x in zip(grads, inputs, strict=True)]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:-1])


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    system, length = ctx.saved_tensors, grad.shape[-1]
    if torch.is_grad_enabled():
        return (*differentiate_plainly(partial(plain_kernel, length=length), system, [grad]), None)
    # Somebody may go backward inside autocast, where products would be rounded to half precision.
    with full_precision(grad):
        log_size_grad, turns_grad, *grads = _kernel_backward(grad, *system)
    return (log_size_grad, turns_grad, None, *grads, None)


_kernel.register_autograd(_differentiate, setup_context=_keep)
