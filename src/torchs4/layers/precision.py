"""Where autocast must not round, and how far a device can count."""

from __future__ import annotations

import torch

from torchs4.ops.dtypes import full_precision

__all__ = ["WITHOUT_DOUBLE_PRECISION", "full_precision", "widest_dtype"]

WITHOUT_DOUBLE_PRECISION = {"mps"}


def widest_dtype(device: torch.device) -> torch.dtype:
    """The most exact numbers that a device has: float64, or float32 on Apple's and some of Intel's."""
    if device.type in WITHOUT_DOUBLE_PRECISION:
        return torch.float32
    if device.type == "xpu" and not torch.xpu.get_device_properties(device).has_fp64:
        return torch.float32
    return torch.float64
