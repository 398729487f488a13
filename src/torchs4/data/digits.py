"""6,000 handwritten digits of MNIST that come with the package, read pixel by pixel as sequences."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from torchs4.data.mnist import DIGITS, PIXELS, SIDE, GreyImages, read_digits, scale_grey
from torchs4.data.sequences import ArraySplit, InputDescription, SequenceData

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

_FOLDER = Path(__file__).parent / "bundled" / "digits"
# Every ten digits in the files hold each class once, so any multiple of ten is balanced.
_VALIDATION_SIZE = 500


class LabeledDigits(NamedTuple):
    """Images as sequences of 784 pixels between 0 and 1, row by row, and the digits they show."""

    images: Float[Tensor, "count 784 1"]
    labels: Int[Tensor, " count"]


class Digits(NamedTuple):
    """4,500 digits to train on, 500 to choose settings by, 1,000 to measure with; all balanced."""

    train: LabeledDigits
    validation: LabeledDigits
    test: LabeledDigits


def load_digits() -> Digits:
    """The bundled digits; the hold-out for validation is always the same 500 of the training digits."""
    return Digits(*map(_as_tensors, _read_splits()))


@dataclass(frozen=True)
class BundledDigits:
    """The same 4,500, 500 and 1,000 digits as `load_digits` gives, as a dataset like the others."""

    def load(self, folder: Path) -> SequenceData:
        """Read the files that come with the package; nothing is looked for in the folder."""
        train, validation, test = (
            ArraySplit(images, labels, np.arange(len(labels)), scale_grey)
            for images, labels in _read_splits()
        )
        description = InputDescription("values", 1, PIXELS, image=(SIDE, SIDE))
        return SequenceData(description, DIGITS, train, validation, test)


def _read_splits() -> tuple[GreyImages, GreyImages, GreyImages]:
    images, labels = read_digits(_FOLDER, "train")
    return (
        GreyImages(images[:-_VALIDATION_SIZE], labels[:-_VALIDATION_SIZE]),
        GreyImages(images[-_VALIDATION_SIZE:], labels[-_VALIDATION_SIZE:]),
        read_digits(_FOLDER, "test"),
    )


def _as_tensors(digits: GreyImages) -> LabeledDigits:
    return LabeledDigits(scale_grey(digits.images), torch.from_numpy(digits.labels).long())
