"""Pathfinder: are two discs at the ends of one dashed curve? Generated here, or read from the LRA release.

128 × 128 pixels is the task called Path-X.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import torch

from torchs4.configuration import require_at_least, require_choice
from torchs4.data.location import DatasetMissingError, advise_again, find_in_lra
from torchs4.data.prepared import prepared_arrays
from torchs4.data.progress import reported
from torchs4.data.sequences import ArraySplit, GrowingSplit, SequenceData, split_in_three
from torchs4.description import InputDescription
from torchs4.tasks import Classification

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jaxtyping import Float, UInt8
    from numpy import ndarray
    from numpy.typing import NDArray
    from torch import Tensor

    from torchs4.data.progress import Progress

Source = Literal["generated", "official"]
Size = Literal[32, 64, 128]
Level = Literal["easy", "intermediate", "hard"]

_CLASSES = ("different curves", "same curve")
_AGAIN = advise_again("lra")
# Dashes of a long curve.
_DASHES: dict[Level, int] = {"easy": 6, "intermediate": 9, "hard": 14}
# Below this nothing is left to follow.
_FEWEST_DASHES = 2
# Pictures of each shorter curve: they are looked at for a short time only.
_SHORTER_PICTURES = 25_000
# What the release calls the levels.
_FOLDERS: dict[Level, str] = {
    "easy": "curv_baseline",
    "intermediate": "curv_contour_length_9",
    "hard": "curv_contour_length_14",
}


@dataclass(frozen=True)
class Pathfinder:
    """Pictures of dashed curves as sequences of size² grey values from -1 to 1, row by row.

    80 % of the pictures are for training, 10 % for validation, 10 % for test, by a permutation drawn from
    the seed.

    Attributes:
        size: height and width; 128 is Path-X.
        level: "easy" curves have 6 dashes, "intermediate" ones 9 and "hard" ones 14; LRA reports "hard".
        grow_from: train on curves of so many dashes first, then of more and more, until they are as long as
            those of `level`: a network that is shown long ones at once stays at chance for very long. 25,000
            pictures of each shorter length are drawn when the data are first loaded; validation and test
            pictures are of `level` alone. 0 begins with `level`.
        grow_every: pictures that training shows before curves grow by a dash.
        source: "generated" draws the pictures when they are first needed; "official" reads the release of
            the Long Range Arena.
        count: of pictures to generate. Labels alternate, so both are equally frequent. Official pictures
            are always taken all.
        seed: of the pictures and of the split.
    """

    size: Size = 32
    level: Level = "hard"
    grow_from: int = 0
    grow_every: int = 25_000
    source: Source = "generated"
    count: int = 200_000
    seed: int = 0

    def __post_init__(self) -> None:
        if self.size not in get_args(Size):
            raise ValueError(f"size is {self.size!r}; choose one of 32, 64, 128.")
        require_choice("level", self.level, get_args(Level))
        if self.grow_from and not _FEWEST_DASHES <= self.grow_from < _DASHES[self.level]:
            raise ValueError(
                f"grow_from is {self.grow_from}; curves can grow from {_FEWEST_DASHES} to "
                f"{_DASHES[self.level] - 1} dashes to the {_DASHES[self.level]} of level {self.level!r}; 0 "
                f"begins with those."
            )
        require_at_least("grow_every", self.grow_every, 1)
        require_choice("source", self.source, get_args(Source))
        require_at_least("count", self.count, 10)
        require_at_least("seed", self.seed, 0)

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """The pictures; the first load draws or reads them, and keeps the result."""
        name = f"pathfinder{self.size}{'' if self.level == 'hard' else f'-{self.level}'}"
        dashes = _DASHES[self.level]
        if self.source == "generated":
            arrays = self._drawn(folder, name, dashes, self.count, progress)
        else:
            build = partial(_read_release, folder, self.size, self.level, progress)
            arrays = prepared_arrays(folder, f"{name}-official-v1", build)
        labels = arrays["labels"]
        members = split_in_three(len(labels), len(labels) // 10, self.seed)
        train, validation, test = (
            ArraySplit(arrays["images"], labels, chosen, _to_inputs) for chosen in members
        )
        lengths = range(self.grow_from, dashes) if self.grow_from else ()
        shorter = [self._shorter(folder, length, members[0], progress) for length in lengths]
        description = InputDescription("values", 1, self.size**2, image=(self.size, self.size))
        return SequenceData(
            description,
            Classification(_CLASSES),
            GrowingSplit([*shorter, train], self.grow_every) if shorter else train,
            validation,
            test,
        )

    def _shorter(
        self, folder: Path, dashes: int, training: NDArray[np.int64], progress: Progress | None
    ) -> ArraySplit:
        """Training pictures of shorter curves, none with the number of a validation or test picture.

        Pictures of one number begin with the same random numbers.
        """
        count = min(self.count, _SHORTER_PICTURES)
        arrays = self._drawn(folder, f"pathfinder{self.size}-{dashes}-dashes", dashes, count, progress)
        return ArraySplit(arrays["images"], arrays["labels"], training[training < count], _to_inputs)

    def _drawn(
        self, folder: Path, name: str, dashes: int, count: int, progress: Progress | None
    ) -> dict[str, NDArray[Any]]:
        build = partial(_draw_into, folder, self.size, dashes, count, self.seed, progress)
        return prepared_arrays(folder, f"{name}-generated-{count}-seed{self.seed}-v1", build)


def _to_inputs(
    rows: UInt8[ndarray, "B L"], generator: torch.Generator | None = None
) -> Float[Tensor, "B L 1"]:
    return (torch.from_numpy(rows).unsqueeze(-1).to(torch.float32) / 255 - 0.5) / 0.5


def _draw_into(
    folder: Path, size: Size, dashes: int, count: int, seed: int, progress: Progress | None
) -> dict[str, NDArray[np.uint8]]:
    # numba takes a while to import: only those pay who draw.
    from torchs4.data.pathfinder_pictures import draw_pictures

    done = 0
    try:
        # All of Path-X is 3 GB: it goes to disk as it is drawn, into a file that vanishes by itself.
        with tempfile.TemporaryFile(dir=folder) as file:
            for chunk in draw_pictures(size, count, seed, dashes):
                file.write(chunk.tobytes())
                done += len(chunk)
                if progress is not None:
                    progress(f"Drawing Pathfinder pictures of {dashes} dashes", done, count)
            file.flush()
            images = np.memmap(file, dtype=np.uint8, mode="r", shape=(count, size**2))
    except OSError as error:
        raise OSError(
            f"Cannot draw {count:,} Pathfinder pictures into {folder} ({error.strerror}): they need "
            f"{count * size**2 / 1e6:,.0f} MB, and twice that while they are being drawn. Free some space or "
            f"choose another data folder."
        ) from error
    return {"images": images, "labels": (np.arange(count) % 2).astype(np.uint8)}


def _read_release(
    folder: Path, size: Size, level: Level, progress: Progress | None
) -> dict[str, NDArray[np.uint8]]:
    """The pictures in the order of the release's lists, which are plain text although they end in .npy."""
    try:
        from PIL import Image
    except ImportError as error:
        raise ImportError(
            "Reading the official Pathfinder pictures, which are PNG files, needs pillow: run "
            "`pip install pillow`, or use source='generated'."
        ) from error
    root = find_in_lra(folder, f"pathfinder{size}") / _FOLDERS[level]
    lists = [path for path in (root / "metadata").glob("*.npy") if path.stem.isdecimal()]
    if not lists:
        raise DatasetMissingError("lra", root / "metadata" / "0.npy")
    entries = [entry for path in sorted(lists, key=lambda path: int(path.stem)) for entry in _read_list(path)]
    images = np.empty((len(entries), size**2), dtype=np.uint8)
    for number, (place, _) in enumerate(reported(entries, "Reading Pathfinder pictures", progress)):
        path = root / place
        if not path.is_file():
            raise DatasetMissingError("lra", path)
        try:
            with Image.open(path) as picture:
                pixels = np.asarray(picture.convert("L"))
        except (OSError, SyntaxError) as error:
            raise ValueError(f"{path} is a damaged picture ({error}). {_AGAIN}") from error
        if pixels.shape != (size, size):
            raise ValueError(
                f"{path} has {pixels.shape[0]} × {pixels.shape[1]} pixels; expected {size} × {size}. {_AGAIN}"
            )
        images[number] = pixels.ravel()
    return {"images": images, "labels": np.array([label for _, label in entries], dtype=np.uint8)}


def _read_list(path: Path) -> Iterator[tuple[str, int]]:
    """Where each picture lies and its label: the first two fields and the fourth."""
    text = path.read_bytes().decode("utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        fields = line.split()
        if len(fields) < 4 or fields[3] not in ("0", "1"):
            raise ValueError(
                f"{path}, line {number}, is {line[:80]!r}; expected a folder, a file name, a number and a "
                f"label (0 or 1), separated by blanks. {_AGAIN}"
            )
        yield f"{fields[0]}/{fields[1]}", int(fields[3])
