"""Products of many positions with one matrix, by the library that is fast on this processor.

PyTorch multiplies float32 matrices by MKL, which keeps to 256-bit instructions on processors that are not
Intel's. oneDNN, which comes with PyTorch too, uses the 512-bit ones wherever they are. Everything else is
F.linear.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchs4.ops.implementation import implementation_on
from torchs4.ops.transforms import inside_transform

if TYPE_CHECKING:
    from jaxtyping import Float

# Multiplications below which the call costs more than is won.
_FEWEST_PRODUCTS = 2**20
# Of x86 and of ARM processors, as LLVM names them.
_BFLOAT16_INSTRUCTIONS = "avx512bf16", "amx-bf16", "avxneconvert", "bf16"
# Rows that are turned over together.
_ROWS_TOGETHER = 4096


def linear(
    x: Float[Tensor, "... I"], weight: Float[Tensor, "O I"], bias: Float[Tensor, " O"] | None = None
) -> Float[Tensor, "... O"]:
    """The product x Wᵀ over the last axis, and a bias, like F.linear."""
    if not _is_for_onednn(x, weight):
        return F.linear(x, weight, bias)
    rows: Tensor = _Product.apply(x.reshape(-1, x.shape[-1]), weight, bias)
    return rows.view(*x.shape[:-1], len(weight))


class _Product(torch.autograd.Function):
    """The product x Wᵀ + b of rows; its backward pass is made of the same products, so it has one too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _multiply(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        wants_x, wants_weight, wants_bias = ctx.needs_input_grad
        x_grad = linear(grad, weight.t()) if wants_x else None
        weight_grad = _gathered(x, grad) if wants_weight else None
        return x_grad, weight_grad, grad.sum(0) if wants_bias else None


def _gathered(x: Tensor, grad: Tensor) -> Tensor:
    """The product gᵀ x over many rows."""
    # Turned over it is faster, the narrower matrix first, and what is turned over has to fit into a cache.
    parts = [
        _Product.apply(some.t(), slopes.t(), None)
        for some, slopes in zip(x.split(_ROWS_TOGETHER), grad.split(_ROWS_TOGETHER), strict=True)
    ]
    total: Tensor = parts[0] if len(parts) == 1 else torch.stack(parts).sum(0)
    return total.t()


def _multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")


def _is_for_onednn(x: Tensor, weight: Tensor) -> bool:
    if torch.compiler.is_compiling() or implementation_on(x.device) != "cpu":
        # A compiler chooses for itself.
        return False
    if x.dtype != torch.float32 or weight.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
        return False
    if x.numel() * len(weight) < _FEWEST_PRODUCTS or inside_transform():
        return False
    return onednn_is_faster()


@cache
def bfloat16_is_fast() -> bool:
    """Whether the processor multiplies in bfloat16, and PyTorch has the library that asks it to."""
    from llvmlite import binding

    if not torch.backends.mkldnn.is_available():
        return False
    features = binding.get_host_cpu_features()
    return any(features.get(name, False) for name in _BFLOAT16_INSTRUCTIONS)


@cache
def onednn_is_faster() -> bool:
    """Whether the processor has wide vectors that MKL does not use. By its name, so that every run agrees."""
    if not torch.backends.mkldnn.is_available() or not hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        return False
    if "AVX512" not in torch.backends.cpu.get_cpu_capability():
        return False
    from llvmlite import binding

    return str(binding.get_host_cpu_name()).startswith("znver")
