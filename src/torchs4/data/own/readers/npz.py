"""NumPy's archives: arrays x and y, and if there are any, those to validate and test with."""

from __future__ import annotations

import zipfile
import zlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from torchs4.data.own.examples import Examples
from torchs4.data.own.readers.layout import listed

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from torchs4.data.own.readers.layout import Layout

_PARTS = ("", "_validation", "_test")


def read_npz(path: Path, layout: Layout) -> Examples:
    """Arrays `x`, `y` and perhaps `lengths`, each also with `_validation` and `_test` behind its name."""
    layout.refuse(path, "id", "time", "ignore")
    if len(layout.values) > 1:
        raise ValueError(
            f"{layout.told('values')} is {layout.values}; of {path}, it may name one array, such as 'x'."
        )
    x, y = layout.values[0] if layout.values else "x", layout.label or "y"
    arrays = _load(path)
    known = {f"{name}{part}" for name in (x, y, "lengths") for part in _PARTS}
    for name in arrays:
        # A misspelt x_val would otherwise be left out without a word.
        if name not in known and name.startswith((f"{x}_", f"{y}_", "lengths_")):
            raise ValueError(
                f"{path} has an array {name!r}, which nothing reads. Parts to hold out are called "
                f"{x}_validation, {y}_validation, {x}_test and {y}_test."
            )
    if not layout.with_labels:
        # Only the sequences are wanted, whatever else there is.
        arrays = {name: arrays[name] for name in (x, "lengths") if name in arrays}
    needed = (x, y) if layout.with_labels else (x,)
    train, validation, test = (_part(path, arrays, x, y, part, needed) for part in _PARTS)
    if train is None:
        wanted = " and ".join(map(repr, needed))
        raise ValueError(f"{path} lacks the arrays {wanted}. There are {listed(list(arrays))}.")
    return replace(train, validation=validation, test=test)


def _load(path: Path) -> dict[str, NDArray[Any]]:
    if not zipfile.is_zipfile(path):
        raise ValueError(f"{path} is not an archive of NumPy, or is cut short.")
    arrays = {}
    with np.load(path, allow_pickle=False) as archive:
        for name in archive.files:
            try:
                arrays[name] = archive[name]
            except ValueError as error:
                raise ValueError(
                    f"{path}: the array {name!r} holds Python objects, which are not read ({error}). Store "
                    f"sequences of different lengths as one padded array x and an array lengths."
                ) from error
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                raise ValueError(f"{path}: the array {name!r} is damaged ({error}).") from error
    return arrays


def _part(
    path: Path, arrays: dict[str, NDArray[Any]], x: str, y: str, part: str, needed: tuple[str, ...]
) -> Examples | None:
    present = [name for name in (x, y, "lengths") if f"{name}{part}" in arrays]
    if not present:
        return None
    for name in needed:
        if name not in present:
            raise ValueError(f"{path} has {present[0]}{part} but no {name}{part}; both are needed.")
    where = f"{part.strip('_')} example" if part else "example"
    return Examples(
        arrays[f"{x}{part}"],
        arrays.get(f"{y}{part}"),
        arrays.get(f"lengths{part}"),
        name_of=lambda row: f"{where} {row} of {path}",
    )
