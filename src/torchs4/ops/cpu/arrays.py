"""Tensors as the arrays that compiled code reads and writes: contiguous, sharing memory where they can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


def as_array(x: Tensor, dtype: torch.dtype | None = None) -> NDArray[Any]:
    """A tensor's numbers, converted if they are of another type."""
    return x.detach().to(x.dtype if dtype is None else dtype).contiguous().numpy()


def as_rows(x: Tensor) -> NDArray[Any]:
    """A tensor's numbers as a matrix whose rows are positions."""
    return as_array(x.reshape(-1, x.shape[-1]))


def as_complex_array(pairs: Tensor) -> NDArray[Any]:
    """Pairs (..., 2) as double-precision complex numbers."""
    # An empty tensor is contiguous whatever its strides; the view asks for usual ones.
    double = pairs.detach().double().contiguous().view(pairs.shape)
    if double.numel() == 0:
        double = double.new_empty(pairs.shape)
    return torch.view_as_complex(double).numpy()


def as_addressable(name: str, x: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The tensor in the form in which compiled code may be given its bare address.

    What has no array has no bounds either: a wrong shape or place would read memory that is not its own.
    """
    if x.shape != shape:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; expected {shape}.")
    if not x.is_cpu:
        raise ValueError(f"{name} is on {x.device}, the other tensors are on the CPU. Move them together.")
    return x if x.dtype == dtype and x.is_contiguous() else x.to(dtype).contiguous()
