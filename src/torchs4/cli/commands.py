"""Find the command that was asked for. What it needs is imported when it runs: help comes at once."""

from __future__ import annotations

import difflib
import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING

from torchs4.cli.consoles import console, errors
from torchs4.cli.interrupts import INTERRUPTED, leaving_at_once

if TYPE_CHECKING:
    from collections.abc import Sequence

USAGE = """\
[bold]s4[/bold]: train, stream and compare S4 models

  s4 fit FILE                    a classifier or regressor for data of your own; a forecaster with --horizon
  s4 predict MODEL FILE          what it says about new data
  s4 list                        the experiments, with published and measured results
  s4 train NAME                  train one of them; `s4 train NAME --help` shows every option
  s4 train --data FILE --task T  train on data of your own; `s4 train --data FILE --help` shows how
  s4 train --resume RUN          continue a run that was interrupted; with --budget.epochs N train it longer
  s4 evaluate RUN                measure a run's best model
  s4 compare RUN RUN …           a table and a picture of several runs
  s4 stream RUN FILE             predictions as samples come, from a file or a pipe
  s4 generate RUN --prompt TEXT  text that a model of characters or words writes
  s4 sample RUN -n 16            pictures that a density draws; --complete FILE goes on with one
  s4 table [NAME]                our results beside the paper's: lra, images, density …
  s4 reproduce [NAME …]          train one experiment after the other, and go on where it stopped
  s4 export RUN --to onnx|web    a model as ONNX graphs, which need no PyTorch, or with a page for browsers
  s4 serve FOLDER                such a page, on this machine only
  s4 data list                   the datasets: which are here, how large, what licence
  s4 data get NAME               download one
  s4 doctor                      devices, versions, and a test of every operator on each device
  s4 --version                   which version this is

Every command takes --import MODULE, for a module of yours that registers layers.

Try `s4 train digits`: three minutes, no download.
"""

# Shell convention.
WRONG_USAGE = 2

# Each command's module and function; functions take the arguments and return the exit code.
COMMANDS = {
    "fit": ("torchs4.cli.fit", "fit"),
    "predict": ("torchs4.cli.predict", "predict"),
    "train": ("torchs4.cli.train", "train"),
    "list": ("torchs4.cli.listing", "list_recipes"),
    "evaluate": ("torchs4.cli.results", "evaluate_run"),
    "stream": ("torchs4.cli.stream", "stream"),
    "generate": ("torchs4.cli.generate", "generate"),
    "sample": ("torchs4.cli.sample", "sample"),
    "export": ("torchs4.cli.export", "export"),
    "serve": ("torchs4.cli.serve", "serve"),
    "compare": ("torchs4.cli.results", "compare"),
    "table": ("torchs4.cli.table", "show_table"),
    "reproduce": ("torchs4.cli.reproduce", "reproduce"),
    "doctor": ("torchs4.cli.doctor", "doctor"),
    "data list": ("torchs4.cli.datasets", "list_data"),
    "data get": ("torchs4.cli.datasets", "get_data"),
}


def run_command(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        console.print(USAGE)
        return 0
    if arguments[0] in ("--version", "-V", "version"):
        from torchs4 import __version__

        console.print(f"torchs4 {__version__}")
        return 0
    name, *rest = arguments
    if name == "data" and (not rest or rest[0] in ("-h", "--help")):
        console.print("`s4 data list` shows the datasets, `s4 data get NAME` downloads one.")
        return 0
    if name == "data":
        name, *rest = f"data {rest[0]}", *rest[1:]
    if name not in COMMANDS:
        errors.print(USAGE)
        guesses = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f" Did you mean `s4 {guesses[0]}`?" if guesses else ""
        errors.print(f"There is no command `s4 {name}`.{hint}", markup=False)
        return WRONG_USAGE
    try:
        return _run(name, rest)
    except BrokenPipeError:
        # Whoever read has seen enough, as in `s4 list | head`; Python would complain once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        errors.print("Stopped.")
        return INTERRUPTED


def _import_modules(arguments: list[str]) -> list[str]:
    """`--import MODULE` runs a module of the user's, which registers layers; the arguments without it."""
    from torchs4.cli.options import take

    module, rest = take(arguments, "--import")
    if module is not None:
        if not all(part.isidentifier() for part in module.split(".")):
            raise ValueError(
                f"--import is {module!r}; expected the name of a module as Python imports it, such as "
                f"my_layers for a file my_layers.py in this folder."
            )
        sys.path.insert(0, os.getcwd())
        import_module(module)
    return rest


def _run(name: str, arguments: list[str]) -> int:
    module, function = COMMANDS[name]
    with leaving_at_once():
        command = getattr(import_module(module), function)
        from torchs4.training.loop import TrainingDivergedError

    try:
        code: int = command(_import_modules(arguments))
    except (ValueError, OSError, TrainingDivergedError, ImportError) as error:
        if isinstance(error, BrokenPipeError):
            raise
        errors.print(f"[red]{type(error).__name__}[/red]: ", end="")
        errors.print(str(error), markup=False, soft_wrap=True)
        return 1
    return code
