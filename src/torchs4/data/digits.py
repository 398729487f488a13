"""6,000 handwritten digits of MNIST that come with the package, read pixel by pixel as sequences."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from torchs4.configuration import require_probability
from torchs4.data.mnist import DIGITS, PIXELS, SIDE, GreyImages, read_digits, scale_grey
from torchs4.data.sequences import ArraySplit, SequenceData, Split
from torchs4.description import Batch, InputDescription
from torchs4.tasks import Classification

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from numpy.typing import NDArray
    from torch import Tensor

    from torchs4.data.progress import Progress

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
    """The same 4,500, 500 and 1,000 digits as `load_digits` gives, as a dataset like the others.

    Attributes:
        cut_short: share of the training digits that are shown only up to a random pixel, so that a model
            learns to guess early.
    """

    cut_short: float = 0.0

    def __post_init__(self) -> None:
        require_probability("cut_short", self.cut_short)

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """Read the files that come with the package; nothing is looked for in the folder."""
        train, validation, test = (
            ArraySplit(images, labels, np.arange(len(labels)), scale_grey)
            for images, labels in _read_splits()
        )
        description = InputDescription("values", 1, PIXELS, image=(SIDE, SIDE))
        return SequenceData(
            description, Classification(DIGITS), _CutShort(train, self.cut_short), validation, test
        )


class _CutShort(Split):
    """Some examples end early: their lengths say where."""

    def __init__(self, whole: Split, share: float) -> None:
        self._whole = whole
        self._share = share

    def __len__(self) -> int:
        return len(self._whole)

    def batch(self, rows: NDArray[np.int64], generator: torch.Generator | None = None) -> Batch:
        batch = self._whole.batch(rows, generator)
        if self._share == 0 or generator is None:
            return batch
        count = len(rows)
        ends = torch.randint(SIDE, PIXELS + 1, (count,), generator=generator)
        is_cut = torch.rand(count, generator=generator) < self._share
        lengths = torch.where(is_cut, ends, PIXELS)
        is_shown = torch.arange(PIXELS) < lengths.unsqueeze(-1)
        return batch._replace(x=batch.x * is_shown.unsqueeze(-1), lengths=lengths)


def _read_splits() -> tuple[GreyImages, GreyImages, GreyImages]:
    images, labels = read_digits(_FOLDER, "train")
    return (
        GreyImages(images[:-_VALIDATION_SIZE], labels[:-_VALIDATION_SIZE]),
        GreyImages(images[-_VALIDATION_SIZE:], labels[-_VALIDATION_SIZE:]),
        read_digits(_FOLDER, "test"),
    )


def _as_tensors(digits: GreyImages) -> LabeledDigits:
    return LabeledDigits(scale_grey(digits.images), torch.from_numpy(digits.labels).long())
