"""How numba compiles here: cached on disk where that is possible, threads like PyTorch's."""

from __future__ import annotations

import threading
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import numba
import torch
from numba.core import config as numba_config
from numba.np.ufunc.parallel import threading_layer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Sums may be reordered and fused; NaN and infinity keep their meaning, so that bad weights show.
_FASTMATH = {"reassoc", "contract", "arcp", "nsz"}

# numba sets its settings at run time, unseen by type checkers.
_config: Any = numba_config
# GNU OpenMP shares its pool with PyTorch; numba's own pool would fight it for the cores.
_config.THREADING_LAYER_PRIORITY = ["omp", "tbb", "workqueue"]

_turn = threading.Lock()


def compiled(parallel: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function at its first call."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        options: dict[str, Any] = {
            "parallel": parallel,
            "fastmath": _FASTMATH,
            "nogil": True,
            "error_model": "numpy",
        }
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:
            # No writable place for compiled code: every process compiles for itself.
            return numba.njit(**options)(function)

    return decorate


@contextmanager
def torch_threads() -> Iterator[None]:
    """Run parallel code with as many threads as PyTorch uses."""
    threads = torch.get_num_threads()
    numba.set_num_threads(max(1, min(threads, _config.NUMBA_NUM_THREADS)))
    # Starting numba's pool resets the OpenMP setting that PyTorch reads.
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    with nullcontext() if _several_may_enter() else _turn:
        yield


def _several_may_enter() -> bool:
    """Numba's own pool aborts the process when two threads enter it; the others take turns by themselves."""
    try:
        return bool(threading_layer() != "workqueue")
    except ValueError:
        # Before the first parallel call no layer is chosen yet.
        return False
