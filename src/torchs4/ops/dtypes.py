"""The precision of what operators give, and where autocast must not round."""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from torch import Tensor


def kernel_dtype(C: Tensor) -> torch.dtype:
    """Kernels come in float64 for float64 parameters and in float32 for everything narrower."""
    return torch.float64 if C.dtype == torch.float64 else torch.float32


def autocast_rounds(x: Tensor) -> bool:
    """Whether products of such tensors are rounded to half precision."""
    # Tensors without numbers have a kind of device that autocast has never heard of.
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)


def full_precision(x: Tensor) -> AbstractContextManager[object]:
    """No autocast inside: half precision loses too much in long sums over time, it is for what mixes."""
    if not autocast_rounds(x):
        return nullcontext()
    return torch.autocast(x.device.type, enabled=False)


@contextmanager
def exact_products(x: Tensor) -> Iterator[None]:
    """No TensorFloat-32 inside, which people allow for the sake of what mixes: it has three digits."""
    if x.device.type != "cuda":
        yield
        return
    settings = torch.backends.cuda.matmul
    # PyTorch 2.9 has a new name for it.
    name, exact = ("fp32_precision", "ieee") if hasattr(settings, "fp32_precision") else ("allow_tf32", False)
    before = getattr(settings, name)
    setattr(settings, name, exact)
    try:
        yield
    finally:
        setattr(settings, name, before)
