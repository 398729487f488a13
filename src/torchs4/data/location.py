"""Where datasets lie."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def data_folder(chosen: str | Path | None = None) -> Path:
    """The chosen folder, else $TORCHS4_DATA, else the user's cache folder."""
    if chosen is not None:
        return Path(chosen).expanduser()
    if from_environment := os.environ.get("TORCHS4_DATA"):
        return Path(from_environment).expanduser()
    return _user_cache() / "torchs4"


def _user_cache() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def find_in_lra(folder: Path, name: str) -> Path:
    """A folder of the Long Range Arena's release; some copies have one more folder around it."""
    plain, wrapped = folder / "lra_release" / name, folder / "lra_release" / "lra_release" / name
    return wrapped if wrapped.is_dir() and not plain.is_dir() else plain


def advise_again(name: str) -> str:
    """What to do about files of a dataset that are there but damaged."""
    return f"Run `s4 data get {name} --again`."


class DatasetMissingError(FileNotFoundError):
    """A dataset's files are not in the data folder; the message says how to get them."""

    def __init__(self, name: str, expected: Path, advice: str | None = None) -> None:
        advice = advice or f"Run `s4 data get {name}`"
        # Kept to be rebuilt from: an error raised in a worker process travels pickled.
        self._parts = (name, expected, advice)
        super().__init__(
            f"{name} is not in the data folder: {expected} does not exist. {advice}, or point --data-dir or "
            f"TORCHS4_DATA to a folder that has it."
        )

    def __reduce__(self) -> tuple[type[DatasetMissingError], tuple[str, Path, str]]:
        return type(self), self._parts
