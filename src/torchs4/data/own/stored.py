"""Sequences kept in arrays, in memory or on disk, and the splits that pick batches from them.

Axes: n examples, B of a batch, L positions, d channels, N positions of several examples one after the other.
Tokens have no axis d.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from torchs4.data.sequences import Split, padded, padded_length
from torchs4.description import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Shaped
    from numpy import ndarray
    from numpy.typing import NDArray

# Numbers that are looked at together: few enough to stay small beside the data.
_BLOCK_NUMBERS = 1 << 21


class Block(NamedTuple):
    """Some examples one after the other without padding, from `first` on."""

    first: int
    lengths: NDArray[np.int64]
    values: Shaped[ndarray, "N ..."]


class Picked(NamedTuple):
    """Examples side by side, and how much of each is real; None when all of it is."""

    values: Shaped[ndarray, "B L ..."]
    lengths: NDArray[np.int64] | None


class StoredSequences(ABC):
    """Sequences of values (each position d numbers) or of tokens (each position one), reachable by row.

    lengths: of every sequence, or None when all are as long as the longest.
    """

    lengths: NDArray[np.int64] | None
    longest: int
    is_tokens: bool
    channels: int

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def pick(self, rows: NDArray[np.int64]) -> Picked:
        """These sequences as a batch has them: values as float32, tokens as int64, padded with zeros."""

    @abstractmethod
    def blocks(self) -> Iterator[Block]:
        """All sequences in order, some at a time."""

    @property
    def counts(self) -> NDArray[np.int64]:
        """How long every sequence is."""
        return np.full(len(self), self.longest, np.int64) if self.lengths is None else self.lengths

    @property
    def dtype(self) -> type[np.int64 | np.float32]:
        """What batches hold."""
        return np.int64 if self.is_tokens else np.float32

    def subset(self, rows: NDArray[np.int64]) -> StoredSequences:
        """Some of the sequences, which stay where they are."""
        return ChosenSequences(self, rows)


class EqualSequences(StoredSequences):
    """One array (n, L, d) of values or (n, L) of tokens; with lengths, the ends of its rows are padding."""

    def __init__(self, array: Shaped[ndarray, "n L ..."], lengths: NDArray[np.int64] | None = None) -> None:
        self._array = array
        self.lengths = lengths
        self.longest = array.shape[1] if lengths is None else int(lengths.max())
        self.is_tokens = array.ndim == 2
        self.channels = 1 if self.is_tokens else array.shape[2]

    def __len__(self) -> int:
        return len(self._array)

    def pick(self, rows: NDArray[np.int64]) -> Picked:
        if self.lengths is None:
            return Picked(self._array[rows].astype(self.dtype, copy=False), None)
        lengths = self.lengths[rows]
        width = padded_length(lengths, self.longest)
        values = self._array[rows, :width].astype(self.dtype, copy=False)
        values[np.arange(width) >= lengths[:, None]] = 0
        return Picked(values, lengths)

    def blocks(self) -> Iterator[Block]:
        step = max(1, _BLOCK_NUMBERS // max(1, self._array[0].size))
        counts = self.counts
        for first in range(0, len(self), step):
            some = np.asarray(self._array[first : first + step])
            lengths = counts[first : first + step]
            if self.lengths is None:
                values = some.reshape(-1, *some.shape[2:])
            else:
                values = some[np.arange(some.shape[1]) < lengths[:, None]]
            yield Block(first, lengths, values)


class UnequalSequences(StoredSequences):
    """One flat array (N, d) of values or (N,) of tokens; sequence i is flat[offsets[i] : offsets[i + 1]]."""

    def __init__(self, flat: Shaped[ndarray, "N ..."], offsets: NDArray[np.int64]) -> None:
        self._flat = flat
        self._offsets = offsets
        self.lengths = np.diff(offsets)
        self.longest = int(self.lengths.max())
        self.is_tokens = flat.ndim == 1
        self.channels = 1 if self.is_tokens else flat.shape[1]

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def pick(self, rows: NDArray[np.int64]) -> Picked:
        lengths = self.counts[rows]
        width = padded_length(lengths, self.longest)
        return Picked(padded(self._flat, self._offsets[rows], lengths, width, self.dtype), lengths)

    def blocks(self) -> Iterator[Block]:
        positions = max(1, _BLOCK_NUMBERS // self.channels)
        first, last = 0, len(self)
        while first < last:
            # At least one sequence, however long.
            end = int(np.searchsorted(self._offsets, self._offsets[first] + positions, side="right")) - 1
            end = min(max(end, first + 1), last)
            start, stop = self._offsets[first], self._offsets[end]
            yield Block(first, self.counts[first:end], np.asarray(self._flat[start:stop]))
            first = end


class ChosenSequences(StoredSequences):
    """Some of the sequences of another store."""

    def __init__(self, whole: StoredSequences, rows: NDArray[np.int64]) -> None:
        self._whole = whole
        self._rows = rows
        self.lengths = None if whole.lengths is None else whole.lengths[rows]
        self.longest = whole.longest if self.lengths is None else int(self.lengths.max())
        self.is_tokens = whole.is_tokens
        self.channels = whole.channels

    def __len__(self) -> int:
        return len(self._rows)

    def pick(self, rows: NDArray[np.int64]) -> Picked:
        return self._whole.pick(self._rows[rows])

    def blocks(self) -> Iterator[Block]:
        step = max(1, _BLOCK_NUMBERS // max(1, self.longest * self.channels))
        counts = self.counts
        for first in range(0, len(self), step):
            lengths = counts[first : first + step]
            some = self.pick(np.arange(first, first + len(lengths))).values
            yield Block(first, lengths, some[np.arange(some.shape[1]) < lengths[:, None]])


class StoredSplit(Split):
    """Some of the stored examples.

    y: classes (n,) or values (n, k), or for each position values as stored sequences of the same lengths.
    """

    def __init__(
        self, x: StoredSequences, y: NDArray[Any] | StoredSequences, members: NDArray[np.int64]
    ) -> None:
        self._x = x
        self._y = y
        self._members = members

    def __len__(self) -> int:
        return len(self._members)

    @property
    def lengths(self) -> NDArray[np.int64] | None:
        return None if self._x.lengths is None else self._x.lengths[self._members]

    def batch(self, rows: NDArray[np.int64], generator: torch.Generator | None = None) -> Batch:
        picked = self._members[rows]
        x, lengths = self._x.pick(picked)
        y = self._y.pick(picked).values if isinstance(self._y, StoredSequences) else self._y[picked]
        return Batch(
            torch.from_numpy(x),
            torch.from_numpy(y),
            None if lengths is None else torch.from_numpy(lengths),
        )

    def answers(self) -> NDArray[Any] | None:
        """What is asked of all examples; None where that is as large as the inputs."""
        return None if isinstance(self._y, StoredSequences) else self._y[self._members]
