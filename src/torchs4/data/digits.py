"""6,000 handwritten digits of MNIST that come with the package, read pixel by pixel as sequences."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from torchs4.data.idx import read_idx

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
    images, labels = _read("train")
    return Digits(
        train=LabeledDigits(images[:-_VALIDATION_SIZE], labels[:-_VALIDATION_SIZE]),
        validation=LabeledDigits(images[-_VALIDATION_SIZE:], labels[-_VALIDATION_SIZE:]),
        test=_read("test"),
    )


def _read(name: str) -> LabeledDigits:
    images = read_idx(_FOLDER / f"{name}-images-idx3-ubyte.gz")
    labels = read_idx(_FOLDER / f"{name}-labels-idx1-ubyte.gz")
    sequences = images.flatten(1).unsqueeze(-1).to(torch.float32) / 255
    return LabeledDigits(sequences, labels.long())
