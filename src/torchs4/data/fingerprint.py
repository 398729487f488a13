"""A short name for the content of a dataset, by which a run knows that it continues on the same data."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from torchs4.data.augmentation import AugmentedSplit
from torchs4.data.own.stored import StoredSplit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torchs4.data.sequences import SequenceData, Split

# Examples of each split whose content counts, spread over all of it.
_SAMPLED = 64
# So that examples of different lengths are not padded to the longest of all.
_TOGETHER = 8


def fingerprint(data: SequenceData) -> str:
    """32 hexadecimal digits: of what is described and asked, all lengths and labels, and some of the content.

    Cheap for large arrays: a change of values in examples that are not sampled goes unnoticed. Scalings do
    not count, as their last digits differ between machines.
    """
    digest = hashlib.sha256()
    seen, asked = data.input, data.task.output
    # One by one, so that a description may gain a field and old fingerprints stay true.
    described = (
        (seen.kind, seen.size, seen.length, seen.documents, seen.sample_rate, seen.names),
        (type(data.task).__name__, asked.size, asked.per_position, asked.names),
    )
    digest.update(f"{described!r}\n".encode())
    if weights := getattr(data.task, "weights", ()):
        digest.update(f"weights {weights!r}\n".encode())
    for split in (data.train, data.validation, data.test):
        digest.update(f"{None if split is None else len(split)}\n".encode())
        if split is not None:
            _add_split(digest, split)
    return digest.hexdigest()[:32]


def _add_split(digest: Any, split: Split) -> None:
    if isinstance(split, AugmentedSplit):
        digest.update(f"{split.augmentation!r}\n".encode())
    if split.growth is not None:
        digest.update(f"{split.growth!r}\n".encode())
    if split.lengths is not None:
        _add_array(digest, split.lengths)
    if isinstance(split, StoredSplit) and (answers := split.answers()) is not None:
        _add_array(digest, answers)
    rows = np.unique(np.linspace(0, len(split) - 1, _SAMPLED).round().astype(np.int64))
    for start in range(0, len(rows), _TOGETHER):
        batch = split.batch(rows[start : start + _TOGETHER])
        for tensor in batch:
            if tensor is not None:
                _add_array(digest, tensor.numpy())


def _add_array(digest: Any, array: NDArray[Any]) -> None:
    digest.update(f"{array.shape} {array.dtype.str}\n".encode())
    digest.update(np.ascontiguousarray(array))
