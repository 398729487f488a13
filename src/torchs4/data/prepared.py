"""Arrays read once from a dataset's own files, kept on disk to be mapped into memory."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

_DAY_SECONDS = 24 * 60 * 60


class _Arrays(dict[str, "NDArray[Any]"]):
    """The arrays of a prepared set by their names."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self._place = place
        for path in sorted(place.glob("*.npy")):
            try:
                self[path.stem] = np.load(path, mmap_mode="r", allow_pickle=False)
            except (ValueError, EOFError) as error:
                raise ValueError(f"{path} is damaged ({error}). {self._advice()}") from error

    def __missing__(self, name: str) -> NDArray[Any]:
        raise FileNotFoundError(
            f"{self._place} is not complete: {name}.npy has been removed. {self._advice()}"
        )

    def _advice(self) -> str:
        return f"Delete the folder {self._place} and run the same command again: it is prepared anew."


def prepared_arrays(
    folder: Path, name: str, build: Callable[[], Mapping[str, NDArray[Any]]]
) -> dict[str, NDArray[Any]]:
    """The arrays of `folder/prepared/name`, built now if they are not there; read-only and memory-mapped.

    `name` says everything that the arrays depend on, version of the preparation included. They appear all at
    once: nobody ever sees a half-written set, whether the disk fills up or the process is killed.
    """
    place = folder / "prepared" / name
    if not place.is_dir():
        _write(place, build)
    return _Arrays(place)


def _write(place: Path, build: Callable[[], Mapping[str, NDArray[Any]]]) -> None:
    made = [folder for folder in (place.parent, place.parent.parent) if not folder.exists()]
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _remove_what_killed_processes_left(place.parent)
        unfinished = Path(tempfile.mkdtemp(prefix=f"{place.name}.unfinished-", dir=place.parent))
    except OSError as error:
        raise OSError(
            f"Cannot write to {place.parent} ({error.strerror or error}): choose a data folder that you may "
            f"write to."
        ) from error
    try:
        arrays = build()
        try:
            for name, array in arrays.items():
                np.save(unfinished / f"{name}.npy", array, allow_pickle=False)
            # mkdtemp made it for this user alone; a data folder may be shared.
            unfinished.chmod(stat.S_IMODE(place.parent.stat().st_mode))
            os.replace(unfinished, place)
        except OSError as error:
            # Another process may have finished the same work first: its arrays are as good.
            if not place.is_dir():
                size = sum(array.nbytes for array in arrays.values())
                # NumPy's own message for a full disk comes without a number and its text.
                raise OSError(
                    f"Cannot keep the prepared arrays in {place.parent} ({error.strerror or error}): they "
                    f"need {size / 1e6:,.0f} MB. Free some space or choose another data folder; nothing "
                    f"half-written was left behind."
                ) from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        _remove_empty(made)


def _remove_empty(folders: list[Path]) -> None:
    """A dataset that is not there leaves no trace of having been looked for."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return


def _remove_what_killed_processes_left(folder: Path) -> None:
    for path in folder.glob("*.unfinished-*"):
        try:
            age = time.time() - path.stat().st_mtime
        except FileNotFoundError:
            # Another process has just finished it.
            continue
        # No preparation takes a day, so nobody is at work there any more.
        if age > _DAY_SECONDS:
            shutil.rmtree(path, ignore_errors=True)
