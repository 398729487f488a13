"""Where autocast must not round, and how far a device can count."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from torchs4.ops.dtypes import autocast_rounds, full_precision

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["WITHOUT_DOUBLE_PRECISION", "full_precision", "unrounded", "widest_dtype"]

WITHOUT_DOUBLE_PRECISION = {"mps"}


def widest_dtype(device: torch.device) -> torch.dtype:
    """The most exact numbers that a device has: float64, or float32 on Apple's and some of Intel's."""
    if device.type in WITHOUT_DOUBLE_PRECISION:
        return torch.float32
    if device.type == "xpu" and not torch.xpu.get_device_properties(device).has_fp64:
        return torch.float32
    return torch.float64


def unrounded(x: Tensor, like: Tensor) -> Tensor:
    """What blocks are to add to, in the precision of another tensor where autocast has rounded it.

    Each block then rounds what it adds, but not the sum, which goes through all of them.
    """
    return x.to(like.dtype) if autocast_rounds(x) else x
