"""MNIST, read pixel by pixel: row by row, or in a permuted order that hides which pixels are neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
import torch

from torchs4.configuration import require_at_least, require_choice
from torchs4.data.idx import read_idx
from torchs4.data.location import DatasetMissingError, advise_again
from torchs4.data.moving import moved_pictures
from torchs4.data.prepared import prepared_arrays
from torchs4.data.sequences import (
    ArraySplit,
    SequenceData,
    hold_out,
    require_validation_fraction,
)
from torchs4.description import InputDescription
from torchs4.tasks import Classification

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jaxtyping import Float, Int, UInt8
    from numpy import ndarray
    from numpy.typing import NDArray
    from torch import Tensor

    from torchs4.data.progress import Progress

SIDE = 28
PIXELS = SIDE * SIDE
DIGITS = tuple("0123456789")

# Digits keep 4 empty pixels around them.
_FARTHEST_MOVE = 2

_AGAIN = advise_again("mnist")

PixelOrder = Literal["none", "bit_reversal", "random"]


@dataclass(frozen=True)
class MNIST:
    """60,000 handwritten digits to train on and 10,000 to measure with, as sequences of 784 grey values.

    Attributes:
        permutation: order of the pixels. "none" is row by row. "bit_reversal" visits them by their numbers
            with the bits read backwards, "random" in one order drawn from permutation_seed; published
            results for "permuted MNIST" use either, and are not comparable with each other.
        permutation_seed: of the "random" order.
        augment: training digits are moved by up to 2 pixels up or down, left or right, before their pixels
            are put in order.
        validation_fraction: part of the training digits that is held out to choose settings by.
        seed: of the choice of held-out digits.
    """

    permutation: PixelOrder = "none"
    permutation_seed: int = 0
    augment: bool = False
    validation_fraction: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        require_choice("permutation", self.permutation, get_args(PixelOrder))
        require_at_least("permutation_seed", self.permutation_seed, 0)
        require_at_least("seed", self.seed, 0)
        require_validation_fraction(self.validation_fraction)

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """Read `folder/mnist`, which holds the four published files, gzipped or not."""
        arrays = digit_arrays(folder)
        order = self._order()
        convert = scale_grey if order is None else partial(_scale_in_order, order)
        convert_train = partial(_moved, convert) if self.augment else convert
        images, labels = arrays["train_images"], arrays["train_labels"]
        train, validation = hold_out(len(labels), self.validation_fraction, self.seed)
        return SequenceData(
            input=InputDescription("values", 1, PIXELS, image=(SIDE, SIDE) if order is None else None),
            task=Classification(DIGITS),
            train=ArraySplit(images, labels, train, convert_train),
            validation=ArraySplit(images, labels, validation, convert),
            test=ArraySplit(
                arrays["test_images"], arrays["test_labels"], np.arange(len(arrays["test_labels"])), convert
            ),
        )

    def _order(self) -> Int[ndarray, " 784"] | None:
        if self.permutation == "random":
            return np.random.default_rng(self.permutation_seed).permutation(PIXELS)
        return bit_reversal(PIXELS) if self.permutation == "bit_reversal" else None


def digit_arrays(folder: Path) -> dict[str, NDArray[np.uint8]]:
    """Digits (count, 784) and labels of both parts, mapped into memory."""
    return prepared_arrays(folder, "mnist-v1", partial(_read_all, folder / "mnist"))


class GreyImages(NamedTuple):
    """Images row by row and their labels, as published."""

    images: UInt8[ndarray, "count pixels"]
    labels: UInt8[ndarray, " count"]


def read_digits(folder: Path, name: str) -> GreyImages:
    """The digits of `name-images-idx3-ubyte` and `name-labels-idx1-ubyte`, each with or without .gz."""
    images_path = _find(folder, f"{name}-images-idx3-ubyte")
    labels_path = _find(folder, f"{name}-labels-idx1-ubyte")
    images, labels = _read_numbers(images_path), _read_numbers(labels_path)
    if images.dtype != torch.uint8 or images.shape[1:] != (SIDE, SIDE) or len(images) == 0:
        raise ValueError(
            f"{images_path} holds numbers of type {images.dtype} and shape {tuple(images.shape)}; expected "
            f"torch.uint8 of shape (count, {SIDE}, {SIDE}). {_AGAIN}"
        )
    if labels.dtype != torch.uint8 or labels.shape != images.shape[:1] or labels.max() >= len(DIGITS):
        raise ValueError(
            f"{labels_path} does not fit {images_path.name}: expected one number from 0 to 9 for each of "
            f"{len(images):,} images, found type {labels.dtype} and shape {tuple(labels.shape)}, largest "
            f"{int(labels.max()) if labels.numel() else None}. {_AGAIN}"
        )
    return GreyImages(images.flatten(1).numpy(), labels.numpy())


def scale_grey(
    rows: UInt8[ndarray, "B L"], generator: torch.Generator | None = None
) -> Float[Tensor, "B L 1"]:
    """Grey values 0 … 255 as numbers from 0 to 1."""
    return torch.from_numpy(rows).unsqueeze(-1).to(torch.float32) / 255


def _scale_in_order(
    order: NDArray[np.int64], rows: NDArray[Any], generator: torch.Generator | None = None
) -> Float[Tensor, "B L 1"]:
    return scale_grey(rows[:, order])


def _moved(
    convert: Callable[[UInt8[ndarray, "B L"]], Float[Tensor, "B L 1"]],
    rows: UInt8[ndarray, "B L"],
    generator: torch.Generator | None = None,
) -> Float[Tensor, "B L 1"]:
    return convert(
        rows if generator is None else moved_pictures(rows, SIDE, _FARTHEST_MOVE, False, generator)
    )


def bit_reversal(count: int) -> Int[ndarray, " count"]:
    """Numbers 0 … count - 1 in the order in which reversing bits visits them.

    Bits are those of the next power of two; what it visits beyond count is left out.
    """
    order = np.zeros(1, dtype=np.int64)
    while len(order) < count:
        order = np.concatenate([2 * order, 2 * order + 1])
    return order[order < count]


def _read_all(folder: Path) -> dict[str, NDArray[np.uint8]]:
    train, test = read_digits(folder, "train"), read_digits(folder, "t10k")
    return {
        "train_images": train.images,
        "train_labels": train.labels,
        "test_images": test.images,
        "test_labels": test.labels,
    }


def _read_numbers(path: Path) -> Tensor:
    try:
        return read_idx(path)
    except ValueError as error:
        raise ValueError(f"{error} {_AGAIN}") from error


def _find(folder: Path, name: str) -> Path:
    packed, plain = folder / f"{name}.gz", folder / name
    if packed.is_file():
        return packed
    if plain.is_file():
        return plain
    raise DatasetMissingError("mnist", packed)
