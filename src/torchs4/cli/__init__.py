"""The command `s4`: train, evaluate and compare models, get data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torchs4.cli.interrupts import leaving_at_once

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    with leaving_at_once():
        from torchs4.cli.commands import run_command as run
    return run(arguments)
