"""Where autocast must not round."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from torch import Tensor


def full_precision(x: Tensor) -> AbstractContextManager[object]:
    """No autocast inside: half precision loses too much in long sums over time, it is for what mixes."""
    if not torch.is_autocast_enabled(x.device.type):
        return nullcontext()
    return torch.autocast(x.device.type, enabled=False)
