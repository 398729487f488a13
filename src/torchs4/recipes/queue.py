"""One run after the other. Nothing is remembered but the run folders: a queue may be killed at any moment."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

from accelerate.state import AcceleratorState

from torchs4.recipes.runs import RecipeRun, status
from torchs4.training.lock import FolderHeldError
from torchs4.training.loop import TrainingInterrupted
from torchs4.training.run_folder import FolderUsedError, RunFolder
from torchs4.training.session import run as train_to_the_end

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from rich.console import Console


class Failure(NamedTuple):
    """A run that could not be trained, and why."""

    run: RecipeRun
    reason: str


class QueueResult(NamedTuple):
    """What became of a queue.

    is_complete: nobody stopped it; those that failed failed.
    elsewhere: runs that other processes were training, and that were left to them.
    """

    failures: list[Failure]
    is_complete: bool
    elsewhere: list[RecipeRun]


def work_through(
    runs: Sequence[RecipeRun],
    parent: Path,
    *,
    tell: Callable[[str], None],
    stop_at: float = math.inf,
    data_dir: Path | None = None,
    checkpoint_seconds: float = 120.0,
    console: Console | None = None,
    quiet: bool = False,
) -> QueueResult:
    """Train what is not finished, each run in its folder below the parent, continuing those that were begun.

    One that fails is told and the next one's turn comes; one that another process is training is left to it,
    so that several processes may share a list. stop_at: on the clock of time.monotonic().
    """
    failures: list[Failure] = []
    elsewhere: list[RecipeRun] = []
    for number, run in enumerate(runs, 1):
        if time.monotonic() >= stop_at:
            return QueueResult(failures, False, elsewhere)
        place = f"{number} of {len(runs)}: {run.title}"
        folder = RunFolder(parent / run.folder_name)
        try:
            is_begun = _prepare(run, folder)
            if folder.summary() is not None:
                tell(f"{place} is finished: {status(run, parent).result}")
                continue
            tell(f"{place}{', continued' if is_begun else ''}")
            train_to_the_end(
                folder,
                run.config(),
                name=run.title,
                data_dir=data_dir or (folder.data_dir() if is_begun else None),
                resume=is_begun,
                checkpoint_seconds=checkpoint_seconds,
                console=console,
                quiet=quiet,
                stop_at=stop_at,
            )
        except TrainingInterrupted:
            return QueueResult(failures, False, elsewhere)
        except (FolderHeldError, FolderUsedError) as error:
            if isinstance(error, FolderUsedError) and not folder.is_begun():
                failures.append(Failure(run, str(error)))
                tell(f"{place} failed: {error}")
                continue
            # The other one may have begun it while this one was reading data.
            elsewhere.append(run)
            tell(f"{place} is being trained by another process: left to it.")
        except BrokenPipeError:
            # Nobody reads what is told: that is no fault of this run.
            raise
        except (ValueError, OSError, RuntimeError, ImportError) as error:
            failures.append(Failure(run, str(error)))
            tell(f"{place} failed: {error}")
        finally:
            # The next run may have another precision, which accelerate keeps for the whole process.
            AcceleratorState._reset_state()
    return QueueResult(failures, True, elsewhere)


def _prepare(run: RecipeRun, folder: RunFolder) -> bool:
    """Whether the run was begun; refuses to mix what two versions of a recipe have made."""
    if not folder.is_begun():
        if folder.path.is_dir():
            # A kill in the first moment leaves a config.json that never got its name.
            for unfinished in folder.path.glob(".config.json.*"):
                unfinished.unlink(missing_ok=True)
        return False
    if folder.config() != run.config():
        raise ValueError(
            f"{folder.path} was begun with other options than {run.recipe.name}'s preset {run.preset} has "
            f"now. Move or delete it to train anew, or choose another --folder."
        )
    return True
