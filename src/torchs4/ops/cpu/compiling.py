"""How numba compiles here: one thread's code, kept on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
from numba.core.compiler import Compiler
from numba.core.registry import CPUDispatcher

from torchs4.ops.cpu.code_cache import keep_code
from torchs4.ops.cpu.debugging import DEBUGGING

if TYPE_CHECKING:
    from collections.abc import Callable

# Sums may be reordered and fused; NaN and infinity keep their meaning, so that bad weights show.
_FASTMATH = {"reassoc", "contract", "arcp", "nsz"}
_OPTIONS: dict[str, Any] = {
    "fastmath": _FASTMATH,
    "nogil": True,
    "error_model": "numpy",
    "boundscheck": DEBUGGING,
}
# What only compiled code calls needs no way in from Python; making one takes as long as a small function.
_INSIDE = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


class _InsideOnly(CPUDispatcher):
    """A function without a way in from Python, where calling it would end the process."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        raise TypeError(
            f"{self.py_func.__name__} is compiled for other compiled functions and cannot be called from "
            f"Python. Call {self.py_func.__name__}.py_func to run it as Python, or decorate it with "
            f"compiled_entry()."
        )


def compiled() -> Callable[[Callable[..., Any]], Any]:
    """Compile a function that compiled code calls, when it is first needed."""
    return _compile_with(_INSIDE)


def compiled_entry() -> Callable[[Callable[..., Any]], Any]:
    """Compile a function that Python calls, at its first call."""
    return _compile_with({})


class _Apart(Compiler):
    """Compiles a function whose arrays do not overlap: what is written never changes what is read."""

    def __init__(
        self,
        typing: Any,
        target: Any,
        library: Any,
        arguments: Any,
        returned: Any,
        flags: Any,
        variables: Any,
    ) -> None:
        flags.noalias = True
        super().__init__(typing, target, library, arguments, returned, flags, variables)


def compiled_worker() -> Callable[[Callable[..., Any]], Any]:
    """Compile the part of one thread; its arrays must lie apart, where they are written."""
    return _compile_with({**_INSIDE, "pipeline_class": _Apart})


def _compile_with(more: dict[str, Any]) -> Callable[[Callable[..., Any]], Any]:
    def decorate(function: Callable[..., Any]) -> Any:
        dispatcher = numba.njit(**_OPTIONS, **more)(function)
        keep_code(dispatcher, function)
        if "no_cpython_wrapper" in more:
            dispatcher.__class__ = _InsideOnly
        return dispatcher

    return decorate
