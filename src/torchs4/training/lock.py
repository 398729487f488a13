"""One process at a time may write into a run's folder."""

from __future__ import annotations

import os
import platform
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

try:
    import fcntl
except ImportError:  # Windows has no such locks: nothing is held there.
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK_FILE = ".lock"


class FolderHeldError(ValueError):
    """Another process is training in this folder."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder, or refuse because somebody else does. The system frees what a killed process held."""
    path = folder / LOCK_FILE
    with _taken(path) as file:
        file.truncate(0)
        file.write(f"process {os.getpid()} on {platform.node()}\n")
        file.flush()
        try:
            yield
        finally:
            # While it is still held: the lock of another process is never removed.
            path.unlink(missing_ok=True)


def _taken(path: Path) -> IO[str]:
    while True:
        file = path.open("a+", encoding="utf-8")
        if not _lock(file):
            file.seek(0)
            holder = file.read().strip() or "just started"
            file.close()
            raise FolderHeldError(
                f"Another process is training in {path.parent} ({holder}). Wait until it ends, or stop it; "
                f"for another run choose another folder."
            )
        # Whoever held it may have removed the file between our opening and locking it.
        if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
            return file
        file.close()


def _lock(file: IO[str]) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # Some network disks have no locks; a run there is better than none.
        return True
    return True
