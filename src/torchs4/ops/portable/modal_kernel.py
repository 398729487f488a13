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

from torchs4.ops.dtypes import full_precision, kernel_dtype
from torchs4.ops.portable.discretization import output_row
from torchs4.ops.portable.ladder import climb, climb_backward, repeat, repeat_backward, written_out
from torchs4.ops.transforms import differentiate_plainly, inside_transform

if TYPE_CHECKING:
    from jaxtyping import Float


def modal_kernel(
    decay: Float[Tensor, "H n 2"],
    growth: Float[Tensor, "H n 2"],
    p: Float[Tensor, "R H n 2"],
    q: Float[Tensor, "R H n 2"],
    b: Float[Tensor, "H n 2"],
    C: Float[Tensor, "M H n 2"],
    length: int,
) -> Float[Tensor, "M H L"]:
    """K_l = C Ā^l b for l < length; see discretization.NearSystem. Only the inputs are kept for gradients."""
    run = plain_kernel if inside_transform() else _kernel
    return run(decay, growth, p, q, b, C, length)


class _Factors(NamedTuple):
    change: Tensor
    opposite: Tensor
    rungs: list[Tensor]
    fine: Float[Tensor, "H T 1 N"]
    coarse: Float[Tensor, "H J M N"]
    fine_levels: int


def plain_kernel(
    decay: Tensor, growth: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, length: int
) -> Tensor:
    """`modal_kernel` as PyTorch differentiates it by itself."""
    factors = _factors(decay, growth, p, q, b, C, length)
    return _product(factors, length)


def _factors(
    decay: Tensor, growth: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, length: int
) -> _Factors:
    levels = (length - 1).bit_length()
    fine_levels = (levels + 1) // 2
    steps = 1 << fine_levels
    change = written_out(-decay, p, output_row(q))
    opposite = written_out(growth, p, output_row(q))
    rungs = climb(change, opposite, max(levels, 1))
    first = b.flatten(-2)[:, None, None]
    fine = repeat(first, [rung.mT for rung in rungs[:fine_levels]], min(steps, length))
    rows = output_row(C.to(decay.dtype)).transpose(0, 1)[:, None]
    coarse = repeat(rows, rungs[fine_levels:levels], -(-length // steps))
    return _Factors(change, opposite, rungs, fine, coarse, fine_levels)


def _product(factors: _Factors, length: int) -> Tensor:
    fine, coarse = factors.fine, factors.coarse
    H, J, M, _ = coarse.shape
    product = (coarse.flatten(1, 2) @ fine[:, :, 0].mT).view(H, J, M, -1)
    return product.permute(2, 0, 1, 3).flatten(2)[..., :length].contiguous()


@torch.library.custom_op("torchs4::portable_kernel", mutates_args=())
def _kernel(decay: Tensor, growth: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, length: int) -> Tensor:
    return plain_kernel(decay, growth, p, q, b, C, length)


@_kernel.register_fake
def _(decay: Tensor, growth: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, length: int) -> Tensor:
    return C.new_empty(C.shape[0], C.shape[1], length, dtype=kernel_dtype(C))


@torch.library.custom_op("torchs4::portable_kernel_backward", mutates_args=())
def _kernel_backward(
    grad: Tensor, decay: Tensor, growth: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor
) -> list[Tensor]:
    system, length = (decay, growth, p, q, b, C), grad.shape[-1]
    change, opposite, rungs, fine, coarse, fine_levels = _factors(*system, length)
    H, J, M, N = coarse.shape
    T = fine.shape[1]
    grad = torch.nn.functional.pad(grad, (0, J * T - length))
    grad = grad.view(M, H, J, T).permute(1, 2, 0, 3).reshape(H, J * M, T)
    coarse_grad = (grad @ fine[:, :, 0]).view(H, J, M, N)
    fine_grad = (grad.mT @ coarse.flatten(1, 2))[:, :, None]
    levels = (length - 1).bit_length()
    turned = [rung.mT for rung in rungs[:fine_levels]]
    first_grad, fine_rungs = repeat_backward(fine_grad, fine, 1, turned)
    row_grad, coarse_rungs = repeat_backward(coarse_grad, coarse, 1, rungs[fine_levels:levels])
    rung_grads = [*(g.mT for g in fine_rungs), *coarse_rungs] or [torch.zeros_like(change)]
    change_grad, opposite_grad = climb_backward(rung_grads, rungs, opposite)
    correction_grad = -(change_grad + opposite_grad)
    p_grad = torch.einsum("hnm,rhm->rhn", correction_grad, output_row(q)).unflatten(-1, (-1, 2))
    q_grad = torch.einsum("hnm,rhn->rhm", correction_grad, p.flatten(-2)).unflatten(-1, (-1, 2))
    results = (
        -_modes_grad(change_grad),
        _modes_grad(opposite_grad),
        p_grad,
        _read_grad(q_grad),
        first_grad[:, 0, 0].unflatten(-1, (-1, 2)),
        _read_grad(row_grad[:, 0].transpose(0, 1).unflatten(-1, (-1, 2))),
    )
    return [result.to(x.dtype, copy=True) for result, x in zip(results, system, strict=True)]


@_kernel_backward.register_fake
def _(
    grad: Tensor, decay: Tensor, growth: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor
) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in (decay, growth, p, q, b, C)]


def _modes_grad(grad: Float[Tensor, "H N N"]) -> Float[Tensor, "H n 2"]:
    """The adjoint of writing modes out as turns."""
    blocks = grad.unflatten(2, (-1, 2)).unflatten(1, (-1, 2)).diagonal(dim1=1, dim2=3)
    return torch.stack([blocks[:, 0, 0] + blocks[:, 1, 1], blocks[:, 1, 0] - blocks[:, 0, 1]], dim=-1)


def _read_grad(grad: Float[Tensor, "*shape n 2"]) -> Float[Tensor, "*shape n 2"]:
    """The adjoint of `output_row`."""
    return torch.stack([2 * grad[..., 0], -2 * grad[..., 1]], dim=-1)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:-1])


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    system, length = ctx.saved_tensors, grad.shape[-1]
    if torch.is_grad_enabled():
        return (*differentiate_plainly(partial(plain_kernel, length=length), system, [grad]), None)
    # Somebody may go backward inside autocast, where products would be rounded to half precision.
    with full_precision(grad):
        return (*_kernel_backward(grad, *system), None)


_kernel.register_autograd(_differentiate, setup_context=_keep)
