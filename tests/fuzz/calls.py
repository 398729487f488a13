"""The command line, called in this process."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stderr, redirect_stdout
from typing import NamedTuple
from unittest.mock import patch

from torchs4.cli import main


class Result(NamedTuple):
    """A command's exit code, and what it said."""

    code: int
    said: str


def run_command(arguments: list[str]) -> Result:
    """Run `s4` with these arguments; what it raises is passed on, for a person would see a traceback."""
    said = io.StringIO()
    with (
        open(os.devnull) as nothing,
        patch("sys.stdin", nothing),
        redirect_stdout(said),
        redirect_stderr(said),
    ):
        try:
            code = main(arguments)
        except SystemExit as leaving:
            code = leaving.code if isinstance(leaving.code, int) else 1
    return Result(code, said.getvalue())
