"""Tensors as the arrays that compiled code reads and writes: contiguous, sharing memory where they can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
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


def as_bits(x: Tensor) -> NDArray[np.uint16]:
    """Numbers in bfloat16 as the upper halves of single-precision ones; rows are positions."""
    return x.detach().reshape(-1, x.shape[-1]).contiguous().view(torch.uint16).numpy()


def as_complex_array(pairs: Tensor) -> NDArray[Any]:
    """Pairs (..., 2) as double-precision complex numbers."""
    # An empty tensor is contiguous whatever its strides; the view asks for usual ones.
    double = pairs.detach().double().contiguous().view(pairs.shape)
    if double.numel() == 0:
        double = double.new_empty(pairs.shape)
    return torch.view_as_complex(double).numpy()


_NUMBERS: dict[torch.dtype, np.dtype[Any]] = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
}


def number_type(name: str, x: Tensor) -> np.dtype[Any]:
    """The type of a tensor's numbers, for code that is given bare addresses: single or double precision."""
    if x.dtype not in _NUMBERS:
        raise ValueError(
            f"{name} has dtype {x.dtype}; a compiled step takes torch.float32 or torch.float64. "
            f"Try {name}.float()."
        )
    return _NUMBERS[x.dtype]


def require_same_type(name: str, x: Tensor, dtype: torch.dtype) -> None:
    """What comes back is of the same type as what was given: another one would be changed silently."""
    if x.dtype != dtype:
        raise ValueError(f"{name} has dtype {x.dtype}, the weights have {dtype}. Try {name}.to({dtype}).")


def as_addressable(name: str, x: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """The tensor in the form in which compiled code may be given its bare address.

    What has no array has no bounds either: a wrong shape or place would read memory that is not its own.
    """
    if x.shape != shape:
        raise ValueError(f"{name} has shape {tuple(x.shape)}; expected {shape}.")
    if not x.is_cpu:
        raise ValueError(f"{name} is on {x.device}, the other tensors are on the CPU. Move them together.")
    return x if x.dtype == dtype and x.is_contiguous() else x.to(dtype).contiguous()
