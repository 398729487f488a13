"""Ctrl-C before a command has begun."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

# Shell convention: ended by Ctrl-C.
INTERRUPTED = 130


@contextmanager
def leaving_at_once() -> Iterator[None]:
    """Around imports, which turn an exception in their middle into errors of all kinds: just leave."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _leave(number: int, frame: Any) -> None:
    os.write(2, b"Stopped.\n")
    os._exit(INTERRUPTED)
