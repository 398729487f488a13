"""Compiled code on disk: out of date when its file or any of this folder changes, never a reason to stop.

numba's own cache looks at the file of the function alone, although helpers from other files are compiled into
it; it overlooks code that it may read but not write; and a full disk or a cut-off file ends in its errors.
"""

from __future__ import annotations

import hashlib
import pickle
import warnings
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache

from torchs4.ops.cpu.debugging import DEBUGGING

try:
    import fcntl
except ImportError:  # pragma: no cover
    # Windows: two processes may compile the same.
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# What pickle says that a damaged file may raise.
_DAMAGE = (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, ValueError, TypeError)


@cache
def source_digest(own_file: str = __file__) -> str:
    """A digest of everything that a function of that file may be compiled from."""
    digest = hashlib.sha256()
    for path in sorted({Path(own_file), *Path(__file__).parent.glob("*.py")}):
        if not path.is_file():
            # Typed in, or in an archive: its name alone tells it from others.
            digest.update(str(path).encode() + b"\0")
            continue
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


class _WholeFolder:
    """Mixed into numba's rules about where compiled code lies and when it is out of date."""

    _py_file: str

    def get_source_stamp(self) -> str:
        return source_digest(self._py_file)

    def get_cache_path(self) -> str:
        usual: str = super().get_cache_path()  # type: ignore[misc]
        # numba does not ask how code was compiled: one kind would be taken for the other.
        return str(Path(usual) / "debug") if DEBUGGING else usual

    def ensure_cache_path(self) -> None:
        try:
            super().ensure_cache_path()  # type: ignore[misc]
        except OSError:
            # Code that can be read is worth having, whether or not more can be written.
            if not any(Path(self.get_cache_path()).glob("*.nbi")):
                raise


class _Places(CompileResultCacheImpl):
    _locator_classes: list[Any] = [  # noqa: RUF012
        type(place.__name__, (_WholeFolder, place), {}) for place in CompileResultCacheImpl._locator_classes
    ]


class CodeCache(FunctionCache):
    """A function's compiled code. What cannot be read is compiled, what cannot be written is said once."""

    _impl_class = _Places

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except (OSError, *_DAMAGE):
            # Compiled anew, and written in its place.
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except OSError as error:
            _say_once(f"in {self.cache_path} ({error})")
        except _DAMAGE:
            # The index itself is damaged: nobody could read what it lists.
            self._cache_file.flush()
            super().save_overload(sig, data)


def keep_code(dispatcher: Any, function: Callable[..., Any]) -> None:
    """Let a function's compiled code be kept on disk, if there is a place for it."""
    try:
        dispatcher._cache = CodeCache(function)
    except RuntimeError:
        _say_once(f"beside {Path(__file__).parent} or in the user's cache")


@cache
def _warned() -> list[str]:
    return []


def _say_once(where: str) -> None:
    if not _warned():
        _warned().append(where)
        warnings.warn(
            f"Compiled code could not be kept {where}: every process compiles it anew, for up to a minute. "
            f"Make room there, or set NUMBA_CACHE_DIR to a folder that can be written.",
            RuntimeWarning,
            stacklevel=2,
        )


@contextmanager
def one_process_at_a_time(dispatcher: Any) -> Iterator[None]:
    """While one process compiles, others wait and then read what it has written."""
    folder = dispatcher._cache.cache_path
    if fcntl is None or folder is None:
        yield
        return
    try:
        lock = (Path(folder) / "torchs4-compiling.lock").open("w")
    except OSError:
        # Nothing will be written there, so there is nothing to wait for.
        yield
        return
    with lock:
        # Closing the file unlocks it, and so does the end of the process.
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
