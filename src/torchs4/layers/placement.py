"""Where a module's first weights come from, and where they go."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn


@contextmanager
def drawn_on_cpu(
    module: nn.Module, device: torch.device | str | None, dtype: torch.dtype | None
) -> Iterator[None]:
    """Around a module's construction: weights are drawn on the CPU and then moved.

    So a seed gives the same weights everywhere, and starting points that only a CPU can compute, such as
    eigenvectors, work inside `with torch.device("meta")` too. None is PyTorch's default device or dtype.
    """
    if dtype is not None and not dtype.is_floating_point:
        raise ValueError(f"dtype is {dtype}; weights are real numbers, such as torch.float32.")
    place = torch.get_default_device() if device is None else torch.device(device)
    with torch.device("cpu"):
        yield
    module.to(place, dtype)
