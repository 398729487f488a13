"""Which implementation of the operators runs: chosen once, visible, never changed behind one's back."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    import torch
    from torch import Tensor

Implementation = Literal["auto", "reference", "cpu", "portable"]

_chosen: Implementation = "auto"
_in_triton: ContextVar[bool] = ContextVar("steps_in_triton", default=False)


def set_implementation(name: Implementation) -> None:
    """Choose for the whole process: "cpu" (numba), "portable" (any device), "reference" (plain) or "auto".

    "auto" takes "cpu" for tensors on a CPU and "portable" elsewhere. "reference" is the plain twin of both,
    in double precision. An explicit choice is kept: asked to run where it cannot, it raises.
    """
    if name not in get_args(Implementation):
        raise ValueError(
            f"implementation is {name!r}; choose one of {', '.join(map(repr, get_args(Implementation)))}."
        )
    global _chosen
    _chosen = name


def get_implementation() -> Implementation:
    """What `set_implementation` was last given."""
    return _chosen


def implementation_on(device: torch.device) -> str:
    """The implementation that runs on this device: "cpu", "portable" or "reference"."""
    on_cpu = device.type == "cpu"
    if _chosen == "cpu" and not on_cpu:
        raise ValueError(
            f"The chosen implementation is 'cpu', but the tensor is on {device}. "
            f"Move it to the CPU, or call torchs4.ops.set_implementation('auto')."
        )
    if _chosen == "auto":
        return "cpu" if on_cpu else "portable"
    return _chosen


def implementation_for(tensor: Tensor) -> ModuleType:
    """The module whose functions run on this tensor."""
    return _load(implementation_on(tensor.device))


@contextmanager
def step_in_triton(wanted: bool) -> Iterator[None]:
    """Whether blocks that are made ready to step inside are to step by kernels in Triton."""
    token = _in_triton.set(wanted)
    try:
        yield
    finally:
        _in_triton.reset(token)


def steps_in_triton() -> bool:
    """What `step_in_triton` was last given."""
    return _in_triton.get()


def plain_formulas(tensor: Tensor) -> ModuleType:
    """The module whose functions are plain PyTorch and can be differentiated like it, for this tensor."""
    return _load("portable" if implementation_on(tensor.device) == "portable" else "reference")


@lru_cache
def _load(name: str) -> ModuleType:
    # numba takes a while to import: only those pay who run something.
    return import_module(f"torchs4.ops.{name}")
