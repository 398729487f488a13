"""Pictures value by value, each position of which asks for the next one: CIFAR-10 and MNIST as densities.

Axes: B pictures of a batch, L values of a picture: pixel by pixel, row by row, the channels of a pixel after
each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchs4.configuration import require_at_least, require_whole
from torchs4.data import cifar, mnist
from torchs4.data.sequences import SequenceData, Split, hold_out, require_validation_fraction
from torchs4.description import Batch, InputDescription
from torchs4.tasks import LogisticMixture, NextToken

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from torchs4.data.progress import Progress

VALUES = 256
# What a model reads before the first value.
START = 0
_UNIT = "dimension"


@dataclass(frozen=True)
class _DensityOptions:
    """What the densities of all pictures have in common."""

    mixtures: int = 0
    validation_fraction: float = 0.02
    seed: int = 0

    def __post_init__(self) -> None:
        require_whole("mixtures", self.mixtures, 0)
        require_at_least("seed", self.seed, 0)
        require_validation_fraction(self.validation_fraction)

    def _data(
        self, arrays: Mapping[str, NDArray[Any]], side: int, channels: int, mirror: bool = False
    ) -> SequenceData:
        images, tests = arrays["train_images"], arrays["test_images"]
        train, validation = hold_out(len(images), self.validation_fraction, self.seed)
        size = 1 + channels * VALUES
        shape = side, side, channels
        return SequenceData(
            input=InputDescription(
                "tokens", size, side * side * channels, image=(side, side), channels=channels
            ),
            task=LogisticMixture(mixtures=self.mixtures) if self.mixtures else NextToken(VALUES, unit=_UNIT),
            train=PictureSplit(images, train, shape, mirror),
            validation=PictureSplit(images, validation, shape),
            test=PictureSplit(tests, np.arange(len(tests)), shape),
        )


@dataclass(frozen=True)
class CIFAR10Density(_DensityOptions):
    """CIFAR-10 as 3,072 values per picture, each predicted from all that come before it.

    Attributes:
        mirror: show training pictures mirrored as often as not; left and right mean little in them.
        mixtures: predict a mixture of so many logistic distributions for each value; 0 predicts a number for
            each of the 256 values instead.
        validation_fraction: part of the training pictures that is held out to choose settings by.
        seed: of the choice of held-out pictures.
    """

    mirror: bool = False

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """Read `folder/cifar-10-batches-bin`, the binary version as published."""
        return self._data(cifar.colour_arrays(folder), cifar.SIDE, 3, self.mirror)


@dataclass(frozen=True)
class MNISTDensity(_DensityOptions):
    """MNIST as 784 grey values per digit, each predicted from all that come before it.

    Attributes:
        mixtures: predict a mixture of so many logistic distributions for each value; 0 predicts a number for
            each of the 256 values instead.
        validation_fraction: part of the training digits that is held out to choose settings by.
        seed: of the choice of held-out digits.
    """

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """Read `folder/mnist`, which holds the four published files, gzipped or not."""
        return self._data(mnist.digit_arrays(folder), mnist.SIDE, 1)


class PictureSplit(Split):
    """Pictures in an array of bytes that ask at each position for the value that comes next."""

    def __init__(
        self,
        images: NDArray[np.uint8],
        members: NDArray[np.int64],
        shape: tuple[int, int, int],
        mirror: bool = False,
    ) -> None:
        self._images = images
        self._members = members
        self._shape = shape
        self._mirror = mirror

    def __len__(self) -> int:
        return len(self._members)

    def batch(self, rows: NDArray[np.int64], generator: torch.Generator | None = None) -> Batch:
        pictures = self.pictures(rows)
        if self._mirror and generator is not None:
            mirrored = torch.randint(2, (len(rows),), generator=generator).bool().numpy()
            pictures = np.where(mirrored[:, None, None, None], pictures[:, :, ::-1], pictures)
        tokens = picture_tokens(pictures)
        x = torch.full_like(tokens, START)
        x[:, 1:] = tokens[:, :-1]
        return Batch(x, torch.from_numpy(pictures.reshape(len(rows), -1).astype(np.int64)))

    def pictures(self, rows: NDArray[np.int64]) -> NDArray[np.uint8]:
        """These pictures as (B, height, width, channels)."""
        return np.asarray(self._images[self._members[rows]]).reshape(len(rows), *self._shape)


def picture_tokens(pictures: Any) -> torch.Tensor:
    """What a model reads of pictures (B, height, width, channels) of whole numbers 0 … 255: tokens (B, L)."""
    pictures = np.asarray(pictures)
    if pictures.ndim != 4:
        raise ValueError(
            f"Pictures have shape {pictures.shape}; expected (count, height, width, channels). One picture "
            f"is picture[None], a grey one picture[..., None]."
        )
    if pictures.dtype.kind not in "iu":
        raise ValueError(
            f"Pixels are of type {pictures.dtype}; expected whole numbers from 0 to {VALUES - 1}. Shares "
            f"from 0 to 1 become such numbers by (255 * pixels).round().astype('uint8')."
        )
    if pictures.size and not 0 <= pictures.min() <= pictures.max() < VALUES:
        raise ValueError(
            f"Pixels are between {pictures.min()} and {pictures.max()}; expected whole numbers from 0 to "
            f"{VALUES - 1}. Sixteen bits become eight by (pixels // 257).astype('uint8')."
        )
    channels = pictures.shape[3]
    tokens = pictures.astype(np.int64) + (1 + VALUES * np.arange(channels))
    return torch.from_numpy(tokens.reshape(len(pictures), -1))
