"""Gradients that keep only the inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from torchs4.ops.dtypes import exact_products, full_precision
from torchs4.ops.transforms import differentiate_plainly, inside_transform

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor


def recomputed(function: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> tuple[Tensor, ...]:
    """What the function gives; what its backward pass needs is computed again, not kept.

    A compiler decides by itself what to keep, and transforms of functions have to see everything.
    """
    if torch.compiler.is_compiling() or inside_transform():
        return function(*inputs)
    outputs: tuple[Tensor, ...] = _Recomputed.apply(function, *inputs)
    return outputs


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> tuple[Tensor, ...]:
        ctx.function = function
        ctx.save_for_backward(*inputs)
        with exact_products(inputs[0]):
            return function(*inputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # Somebody may go backward inside autocast, where products would be rounded to half precision.
        with full_precision(grads[0]), exact_products(grads[0]):
            return None, *differentiate_plainly(ctx.function, ctx.saved_tensors, grads)
