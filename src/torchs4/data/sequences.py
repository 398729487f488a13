"""What every dataset gives: splits that turn row numbers into batches, what they hold, and what is asked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch

from torchs4.description import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import DTypeLike, NDArray
    from torch import Tensor

    from torchs4.data.progress import Progress
    from torchs4.description import InputDescription
    from torchs4.tasks import Task

# Batches of unequal lengths are padded to a multiple of this: few different lengths, few plans to prepare.
_LENGTH_STEP = 64


class Growth(NamedTuple):
    """How training goes from easy to hard examples.

    stages: how many examples each stage has; they are numbered one stage after the other.
    every: how many examples are shown before the next stage begins.
    """

    stages: tuple[int, ...]
    every: int

    @property
    def examples(self) -> int:
        """How many examples are shown before the last stage begins: that of the task itself."""
        return self.every * (len(self.stages) - 1)


class Split(ABC):
    """Some examples, reachable by their numbers 0 … len - 1.

    growth: how training goes through them if not all are shown from the beginning. An epoch is then as long
        as the last stage.
    """

    growth: Growth | None = None

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    def lengths(self) -> NDArray[np.int64] | None:
        """How long each example's longest input is, or None when all are equally long."""
        return None

    @property
    def distinct(self) -> int:
        """How many different examples of the task itself there are, where some are shown more than once."""
        return len(self) if self.growth is None else self.growth.stages[-1]

    def in_order(self, generator: torch.Generator | None = None) -> Split | None:
        """The same as examples each of which goes on where the one before it ended; None where they do not.

        With a generator they are cut in places that are drawn from it, and are all equally long.
        """
        return None

    @abstractmethod
    def batch(self, rows: NDArray[np.int64], generator: torch.Generator | None = None) -> Batch:
        """These examples. What is random about them (augmentation) is drawn from the generator."""


@dataclass(frozen=True)
class SequenceData:
    """A dataset ready to train on. Validation examples come from training data, never from test data.

    task: what a model is asked about its inputs.
    test: None where nothing was set aside to measure with at the end.
    learns_all: validation holds the training examples themselves, as none could be spared.
    """

    input: InputDescription
    task: Task
    train: Split
    validation: Split
    test: Split | None
    learns_all: bool = False

    @property
    def passes(self) -> int:
        """How often every training example is shown in what a run calls an epoch."""
        return 1 if self.train.growth else len(self.train) // self.train.distinct


class DataConfig(Protocol):
    """Options of a dataset: a frozen dataclass that can load it."""

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """Read the dataset from the data folder; it must be there already, except for generated ones.

        What takes long tells `progress` what is being done, how much of it is done and how much there is.
        """


class _Converter(Protocol):
    def __call__(self, rows: NDArray[Any], generator: torch.Generator | None) -> Tensor: ...


class ArraySplit(Split):
    """Examples of one size, in an array that may lie on disk; `convert` makes model inputs of picked rows."""

    def __init__(
        self, inputs: NDArray[Any], labels: NDArray[Any], members: NDArray[np.int64], convert: _Converter
    ) -> None:
        self._inputs = inputs
        self._labels = labels
        self._members = members
        self._convert = convert

    def __len__(self) -> int:
        return len(self._members)

    def batch(self, rows: NDArray[np.int64], generator: torch.Generator | None = None) -> Batch:
        picked = self._members[rows]
        labels = torch.from_numpy(self._labels[picked].astype(np.int64))
        return Batch(self._convert(np.asarray(self._inputs[picked]), generator), labels, None)


class GrowingSplit(Split):
    """Examples of one size in stages, through which training goes one after the other."""

    def __init__(self, stages: Sequence[ArraySplit], every: int) -> None:
        self._stages = stages
        self._ends = np.cumsum([len(stage) for stage in stages])
        self.growth = Growth(tuple(len(stage) for stage in stages), every)

    def __len__(self) -> int:
        return int(self._ends[-1])

    def batch(self, rows: NDArray[np.int64], generator: torch.Generator | None = None) -> Batch:
        if not len(rows):
            return self._stages[-1].batch(rows, generator)
        stage_of = np.searchsorted(self._ends, rows, side="right")
        places = [np.flatnonzero(stage_of == number) for number in range(len(self._stages))]
        batches = [
            stage.batch(rows[own] - (end - len(stage)), generator)
            for stage, end, own in zip(self._stages, self._ends, places, strict=True)
            if len(own)
        ]
        as_asked = torch.from_numpy(np.argsort(np.concatenate(places)))
        x, y = (torch.cat([getattr(batch, name) for batch in batches])[as_asked] for name in ("x", "y"))
        return Batch(x, y, None)


class TokenSplit(Split):
    """Texts of unequal length in one flat array: where each document starts in it, and how long it is.

    Example e has documents e·D … e·D + D - 1. Texts longer than `max_length` are cut at their end.
    """

    def __init__(
        self,
        tokens: NDArray[Any],
        starts: NDArray[np.int64],
        lengths: NDArray[np.int64],
        labels: NDArray[Any],
        members: NDArray[np.int64],
        max_length: int,
        documents: int = 1,
        growth: Growth | None = None,
    ) -> None:
        self._tokens = tokens
        self._starts = starts
        self._lengths = np.minimum(lengths, max_length)
        self._labels = labels
        self._members = members
        self._max_length = max_length
        self._documents = documents
        self.growth = growth

    def __len__(self) -> int:
        return len(self._members)

    @property
    def lengths(self) -> NDArray[np.int64]:
        return self._lengths.reshape(-1, self._documents)[self._members].max(1)

    def batch(self, rows: NDArray[np.int64], generator: torch.Generator | None = None) -> Batch:
        picked = self._members[rows]
        documents = (picked[:, None] * self._documents + np.arange(self._documents)).ravel()
        starts, lengths = self._starts[documents], self._lengths[documents]
        x = padded(self._tokens, starts, lengths, padded_length(lengths, self._max_length), np.int64)
        shape = (len(picked), self._documents) if self._documents > 1 else (len(picked),)
        return Batch(
            torch.from_numpy(x.reshape(*shape, -1)),
            torch.from_numpy(self._labels[picked].astype(np.int64)),
            torch.from_numpy(lengths.astype(np.int64).reshape(shape)),
        )


def padded_length(lengths: NDArray[np.int64], longest: int) -> int:
    """How many positions a batch of such lengths gets: one of few different numbers, at most the longest."""
    # At least one position, even when every text is empty: no model reads sequences of length 0.
    steps = -(-max(int(lengths.max()), 1) // _LENGTH_STEP)
    return min(steps * _LENGTH_STEP, longest)


def padded(
    flat: NDArray[Any], starts: NDArray[np.int64], lengths: NDArray[np.int64], width: int, dtype: DTypeLike
) -> NDArray[Any]:
    """Pieces of one flat array side by side, each with zeros up to the width."""
    x = np.zeros((len(starts), width, *flat.shape[1:]), dtype)
    for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        x[row, :length] = flat[start : start + length]
    return x


def offsets_of(lengths: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each of these texts begins when they lie one after the other, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)


def require_validation_fraction(fraction: float) -> None:
    """Refuse what `hold_out` cannot work with; configurations ask at once, not after minutes of reading."""
    # Written so that NaN fails it.
    if not 0 < fraction < 1:
        raise ValueError(f"validation_fraction is {fraction}; it must lie between 0 and 1, like 0.1.")


def require_fractions(validation: float, test: float) -> None:
    """Refuse parts of one long text or series that leave nothing to train on; a test part may be left out."""
    require_validation_fraction(validation)
    if not 0 <= test < 1 - validation:
        raise ValueError(
            f"test_fraction is {test}, validation_fraction {validation}; it must be at least 0, and together "
            f"they must be below 1."
        )


def hold_out(count: int, fraction: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers 0 … count - 1 in two sorted parts: what stays for training, and the fraction held out."""
    held = round(count * fraction)
    if not 0 < held < count:
        raise ValueError(
            f"Holding out {fraction} of {count} training examples leaves {count - held} to train on and "
            f"{held} to validate with; both need at least one."
        )
    order = np.random.default_rng(seed).permutation(count)
    return np.sort(order[held:]), np.sort(order[:held])


def split_in_three(
    count: int, held: int, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Numbers 0 … count - 1 in three sorted parts: for training, then `held` for validation and for test."""
    order = np.random.default_rng(seed).permutation(count)
    return np.sort(order[2 * held :]), np.sort(order[held : 2 * held]), np.sort(order[:held])
