"""Where autocast must not round, and how far a device can count."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Tensor


WITHOUT_DOUBLE_PRECISION = {"mps"}


def widest_dtype(device: torch.device) -> torch.dtype:
    """The most exact numbers that a device has: float64, or float32 on Apple's and some of Intel's."""
    if device.type in WITHOUT_DOUBLE_PRECISION:
        return torch.float32
    if device.type == "xpu" and not torch.xpu.get_device_properties(device).has_fp64:
        return torch.float32
    return torch.float64


def full_precision(x: Tensor) -> AbstractContextManager[object]:
    """No autocast inside: half precision loses too much in long sums over time, it is for what mixes."""
    if not torch.is_autocast_enabled(x.device.type):
        return nullcontext()
    return torch.autocast(x.device.type, enabled=False)
