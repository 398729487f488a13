"""CIFAR-10, read pixel by pixel: in colour (sequential CIFAR) or in grey (Image of the Long Range Arena)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch

from torchs4.configuration import require_at_least
from torchs4.data.location import DatasetMissingError, advise_again
from torchs4.data.moving import moved_pictures
from torchs4.data.prepared import prepared_arrays
from torchs4.data.sequences import (
    ArraySplit,
    SequenceData,
    hold_out,
    require_validation_fraction,
)
from torchs4.description import InputDescription, Scaling
from torchs4.tasks import Classification

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jaxtyping import Float, UInt8
    from numpy import ndarray
    from numpy.typing import NDArray
    from torch import Tensor

    from torchs4.data.progress import Progress

    Convert = Callable[[UInt8[ndarray, "B 1024 d"]], Float[Tensor, "B 1024 d"]]

SIDE = 32
_PIXELS = SIDE * SIDE
_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

# A record is a label, then all red, all green and all blue values.
_RECORD = 1 + 3 * _PIXELS
_TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))

# From values between 0 and 1 to those that a model reads.
COLOUR_SCALING = Scaling((0.4914, 0.4822, 0.4465), (0.247, 0.2435, 0.2616))
GREY_SCALING = Scaling((122.6 / 255,), (61 / 255,))
# Luminance of ITU-R 601 (0.299, 0.587, 0.114) in units of 2⁻¹⁶, which is how image libraries compute it.
_LUMINANCE = (19595, 38470, 7471)

_FARTHEST_MOVE = 4

_AGAIN = advise_again("cifar10")


@dataclass(frozen=True)
class CIFAR10:
    """50,000 pictures to train on and 10,000 to measure with, as sequences of 1,024 pixels.

    Attributes:
        grey: one luminance per pixel instead of red, green and blue.
        augment: training pictures are mirrored with probability 1/2 and moved by up to 4 pixels up or down,
            left or right; what moves into view is the mirror image of the edge.
        validation_fraction: part of the training pictures that is held out to choose settings by.
        seed: of the choice of held-out pictures.
    """

    grey: bool = False
    augment: bool = False
    validation_fraction: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        require_at_least("seed", self.seed, 0)
        require_validation_fraction(self.validation_fraction)

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """Read `folder/cifar-10-batches-bin`, the binary version as published."""
        arrays = _grey_arrays(folder) if self.grey else colour_arrays(folder)
        images, labels = arrays["train_images"], arrays["train_labels"]
        train, validation = hold_out(len(labels), self.validation_fraction, self.seed)
        convert = _standardise_grey if self.grey else _standardise_colour
        convert_train = partial(_augmented, convert) if self.augment else convert
        return SequenceData(
            input=InputDescription("values", 1 if self.grey else 3, _PIXELS, image=(SIDE, SIDE)),
            task=Classification(_CLASSES),
            train=ArraySplit(images, labels, train, convert_train),
            validation=ArraySplit(images, labels, validation, convert),
            test=ArraySplit(
                arrays["test_images"], arrays["test_labels"], np.arange(len(arrays["test_labels"])), convert
            ),
        )


def colour_arrays(folder: Path) -> dict[str, NDArray[np.uint8]]:
    """Pictures (count, 1024, 3) and labels of both parts, mapped into memory."""
    return _arrays(folder, "cifar10-colour-v1", _interleave)


def _grey_arrays(folder: Path) -> dict[str, NDArray[np.uint8]]:
    return _arrays(folder, "cifar10-grey-v1", _luminance)


def _arrays(
    folder: Path, name: str, arrange: Callable[[NDArray[np.uint8]], NDArray[np.uint8]]
) -> dict[str, NDArray[np.uint8]]:
    return prepared_arrays(folder, name, partial(_read_all, folder / "cifar-10-batches-bin", arrange))


def _read_all(
    folder: Path, arrange: Callable[[NDArray[np.uint8]], NDArray[np.uint8]]
) -> dict[str, NDArray[np.uint8]]:
    train = np.concatenate([_read_records(folder / name) for name in _TRAIN_FILES])
    test = _read_records(folder / "test_batch.bin")
    return {
        "train_images": arrange(train[:, 1:].reshape(-1, 3, _PIXELS)),
        "train_labels": train[:, 0],
        "test_images": arrange(test[:, 1:].reshape(-1, 3, _PIXELS)),
        "test_labels": test[:, 0],
    }


def _read_records(path: Path) -> UInt8[ndarray, "count 3073"]:
    if not path.is_file():
        raise DatasetMissingError("cifar10", path)
    numbers = np.fromfile(path, dtype=np.uint8)
    if len(numbers) == 0 or len(numbers) % _RECORD:
        raise ValueError(
            f"{path} is truncated or not a CIFAR-10 file: it has {len(numbers):,} bytes, which is not a "
            f"positive multiple of {_RECORD:,}, the size of one picture. {_AGAIN}"
        )
    records = numbers.reshape(-1, _RECORD)
    if (largest := records[:, 0].max()) >= len(_CLASSES):
        raise ValueError(
            f"{path} is damaged or not a CIFAR-10 file: it has the label {largest}; labels go from 0 to "
            f"{len(_CLASSES) - 1}. {_AGAIN}"
        )
    return records


def _interleave(planes: UInt8[ndarray, "count 3 1024"]) -> UInt8[ndarray, "count 1024 3"]:
    return np.ascontiguousarray(planes.transpose(0, 2, 1))


def _luminance(planes: UInt8[ndarray, "count 3 1024"]) -> UInt8[ndarray, "count 1024 1"]:
    total = np.full((len(planes), _PIXELS), 2**15, dtype=np.uint32)
    for channel, weight in enumerate(_LUMINANCE):
        total += planes[:, channel] * np.uint32(weight)
    return (total >> 16).astype(np.uint8)[:, :, None]


def _standardise_colour(
    rows: UInt8[ndarray, "B 1024 3"], generator: torch.Generator | None = None
) -> Float[Tensor, "B 1024 3"]:
    return _standardised(rows, COLOUR_SCALING)


def _standardise_grey(
    rows: UInt8[ndarray, "B 1024 1"], generator: torch.Generator | None = None
) -> Float[Tensor, "B 1024 1"]:
    return _standardised(rows, GREY_SCALING)


def _standardised(rows: UInt8[ndarray, "B 1024 d"], scaling: Scaling) -> Float[Tensor, "B 1024 d"]:
    x = torch.from_numpy(rows).to(torch.float32) / 255
    return (x - torch.tensor(scaling.shift)) / torch.tensor(scaling.scale)


def _augmented(
    convert: Convert, rows: UInt8[ndarray, "B 1024 d"], generator: torch.Generator | None = None
) -> Float[Tensor, "B 1024 d"]:
    if generator is None:
        return convert(rows)
    return convert(moved_pictures(rows, SIDE, _FARTHEST_MOVE, True, generator))
