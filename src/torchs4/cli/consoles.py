"""Where commands print."""

from __future__ import annotations

import os

from rich.console import Console

# Where nobody looks, lines need not fit a screen.
_PIPE_WIDTH = 160


def _console(stderr: bool = False) -> Console:
    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = _PIPE_WIDTH
    return console


console, errors = _console(), _console(stderr=True)
