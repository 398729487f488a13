"""The precision of what operators give."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor


def kernel_dtype(C: Tensor) -> torch.dtype:
    """Kernels come in float64 for float64 parameters and in float32 for everything narrower."""
    return torch.float64 if C.dtype == torch.float64 else torch.float32
