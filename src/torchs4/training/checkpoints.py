"""Folders that hold a model and the state of its training: written whole, and checked when read.

A folder `last` is replaced in three steps: the new one is written beside it, the old one steps aside, the new
one takes its name. Whatever moment a kill picks, one whole folder is left, and `newest` finds it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from torch import Tensor

    Loaded = TypeVar("Loaded")

_CHECKSUMS = "checksums.json"
_TENSORS = "training.safetensors"
_STATE = "training.json"


def replace_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a new folder and put it in the place of the old one, which stays as NAME.previous."""
    new = _beside(folder, "new")
    if _is_whole(new):
        # A kill came before it took its name; it may be the only whole one.
        _take_place(new, folder)
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    write(new)
    checksums = {path.name: _digest(path) for path in sorted(new.iterdir())}
    unfinished = new / f".{_CHECKSUMS}"
    unfinished.write_bytes(json.dumps(checksums, indent=2).encode())
    for path in new.iterdir():
        _settle(path)
    # From here on the folder counts as written.
    os.replace(unfinished, new / _CHECKSUMS)
    _take_place(new, folder)


def has_any(folder: Path) -> bool:
    """Whether a version of the folder was ever written, whole or damaged by now."""
    return any((candidate / _CHECKSUMS).is_file() for candidate in _versions(folder))


def newest(folder: Path) -> tuple[Path, list[Path]]:
    """The newest whole version of a folder, and the damaged ones that were passed over."""
    return load_newest(folder, lambda place: place)


def load_newest(folder: Path, load: Callable[[Path], Loaded]) -> tuple[Loaded, list[Path]]:
    """What `load` makes of the newest whole version that it does not refuse, and those passed over."""
    problems: dict[Path, str] = {}
    for candidate in _versions(folder):
        # An unfinished new folder has no checksums yet: it is not damaged, just not there.
        if not (candidate / _CHECKSUMS).is_file():
            continue
        if not _is_whole(candidate):
            problems[candidate] = f"{candidate} is damaged"
            continue
        try:
            return load(candidate), list(problems)
        except ValueError as error:
            # Checksums may be right and contents wrong: somebody changed both.
            problems[candidate] = f"{candidate} is damaged ({error})"
    told = "; ".join(problems.values())
    raise ValueError(
        f"There is no checkpoint {folder}" + (f": {told} and there is none before it." if told else " yet.")
    )


def save_state(folder: Path, state: dict[str, Any]) -> None:
    """Numbers, strings, lists and tensors of a nested state, without pickle."""
    tensors: dict[str, Tensor] = {}
    plain = _split_tensors(state, tensors)
    (folder / _TENSORS).write_bytes(save(tensors))
    (folder / _STATE).write_bytes(json.dumps(plain).encode())


def load_state(folder: Path) -> dict[str, Any]:
    """What `save_state` wrote."""
    try:
        tensors = load((folder / _TENSORS).read_bytes())
        state: dict[str, Any] = _join_tensors(json.loads((folder / _STATE).read_text()), tensors)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(f"{folder} does not hold a state of training: {error}") from error
    return state


def _split_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().contiguous().clone()
        return {"tensor": name}
    if isinstance(value, dict):
        # JSON has only strings as keys; optimisers number their parameters.
        return {"pairs": [[key, _split_tensors(item, tensors)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_split_tensors(item, tensors) for item in value]
    return value


def _join_tensors(value: Any, tensors: dict[str, Tensor]) -> Any:
    if isinstance(value, dict):
        if "tensor" in value:
            return tensors[value["tensor"]]
        return {key: _join_tensors(item, tensors) for key, item in value["pairs"]}
    if isinstance(value, list):
        return [_join_tensors(item, tensors) for item in value]
    return value


def _take_place(new: Path, folder: Path) -> None:
    if folder.exists():
        previous = _beside(folder, "previous")
        shutil.rmtree(previous, ignore_errors=True)
        os.replace(folder, previous)
    os.replace(new, folder)


def _versions(folder: Path) -> tuple[Path, Path, Path]:
    return _beside(folder, "new"), folder, _beside(folder, "previous")


def _beside(folder: Path, suffix: str) -> Path:
    return folder.with_name(f"{folder.name}.{suffix}")


def _is_whole(folder: Path) -> bool:
    try:
        checksums = json.loads((folder / _CHECKSUMS).read_text())
        files = {path.name for path in folder.iterdir()} - {_CHECKSUMS}
        return files == set(checksums) and all(
            _digest(folder / name) == digest for name, digest in checksums.items()
        )
    except (OSError, ValueError, TypeError, AttributeError, RecursionError):
        # Whatever else the file holds, it lists no checksums.
        return False


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _settle(path: Path) -> None:
    """Wait until a file is on the disk, so that a power cut cannot empty it after its folder was renamed."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
