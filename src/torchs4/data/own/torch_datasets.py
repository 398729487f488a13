"""Any torch Dataset of (x, y) items as a dataset like the others; items are read when a batch wants them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from torchs4.data.own.examples import Examples
from torchs4.data.own.in_memory import Wishes, assemble
from torchs4.data.own.inputs import read_sequence
from torchs4.data.own.stored import Block, Picked, StoredSequences
from torchs4.data.progress import reported
from torchs4.data.sequences import offsets_of, padded, padded_length

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from torchs4.data.own.answers import TaskName
    from torchs4.data.progress import Progress
    from torchs4.data.sequences import SequenceData


class ItemDataset(Protocol):
    """A map-style torch Dataset, or a list: items (x, y) by their numbers."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Any: ...


def from_dataset(
    dataset: ItemDataset,
    *,
    task: TaskName | None = None,
    classes: Sequence[Any] | None = None,
    tokens: bool = False,
    vocabulary_size: int | None = None,
    sample_rate: float | None = None,
    normalize: bool = True,
    validation: float | ItemDataset = 0.1,
    test: float | ItemDataset = 0.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> SequenceData:
    """A dataset of a torch Dataset's items (x, y), with x of shape (positions,) or (positions, channels).

    Items are read twice at the start, to learn lengths and labels and to check and measure values, and from
    then on when a batch wants them: x need not fit into memory. An item's length must stay the same; what is
    random in it is not restored when a run continues. Other arguments are those of `from_arrays`;
    `validation` and `test` may be datasets.
    """
    wishes = Wishes(
        task=task,
        classes=None if classes is None else tuple(classes),
        tokens=tokens,
        vocabulary_size=vocabulary_size,
        sample_rate=sample_rate,
        normalize=normalize,
        validation=validation if isinstance(validation, int | float) else 0.0,
        test=test if isinstance(test, int | float) else 0.0,
        seed=seed,
    )
    given = replace(
        _open(dataset, "item", tokens, progress),
        validation=_open_other(validation, "validation item", tokens, progress),
        test=_open_other(test, "test item", tokens, progress),
    )
    return assemble(given, wishes, progress)


def _open_other(
    part: float | ItemDataset, name: str, tokens: bool, progress: Progress | None
) -> Examples | None:
    return None if isinstance(part, int | float) else _open(part, name, tokens, progress)


def _open(dataset: ItemDataset, name: str, tokens: bool, progress: Progress | None) -> Examples:
    """Read every item once for what must be known of all of them: lengths and y."""
    unknown = Examples(None, None, name_of=lambda row: f"{name} {row}")
    try:
        count = len(dataset)
    except TypeError as error:
        raise ValueError(
            f"The dataset has no length; expected a map-style one, with __len__ and __getitem__, not "
            f"{type(dataset).__name__}."
        ) from error
    if not count:
        raise ValueError("The dataset holds no items; there must be at least two.")
    lengths, channels, answers = [], 1, []
    for row in reported(range(count), "Reading items", progress):
        x, y = _read_item(dataset, row, tokens, unknown)
        if row == 0:
            channels = x.shape[-1]
        if not tokens and x.shape[1] != channels:
            raise ValueError(
                f"{unknown.named(row)} has {x.shape[1]} channels, the first one has {channels}; all need as "
                f"many, and channels come last."
            )
        lengths.append(len(x))
        answers.append(y)
    stored = _DatasetSequences(
        dataset, np.array(lengths, np.int64), 1 if tokens else channels, tokens, unknown
    )
    return Examples(stored, answers, name_of=unknown.name_of)


def _read_item(dataset: ItemDataset, row: int, tokens: bool, examples: Examples) -> tuple[NDArray[Any], Any]:
    item = dataset[row]
    if not isinstance(item, tuple | list) or len(item) != 2:
        raise ValueError(f"{examples.named(row)} is a {type(item).__name__}; expected a pair (x, y).")
    x = read_sequence(item[0], row, examples)
    if tokens:
        if x.ndim != 1 or x.dtype.kind not in "iu":
            raise ValueError(
                f"{examples.named(row)} has shape {x.shape} of {x.dtype}; tokens are whole numbers of shape "
                f"(positions,)."
            )
        return x, item[1]
    return (x[:, None] if x.ndim == 1 else x), item[1]


class _DatasetSequences(StoredSequences):
    """The x of a dataset's items, read anew each time."""

    def __init__(
        self, dataset: ItemDataset, counts: NDArray[np.int64], channels: int, tokens: bool, examples: Examples
    ) -> None:
        self._dataset = dataset
        self._known = counts
        self._examples = examples
        self.longest = int(counts.max())
        self.lengths = None if (counts == self.longest).all() else counts
        self.is_tokens = tokens
        self.channels = channels

    def __len__(self) -> int:
        return len(self._known)

    def pick(self, rows: NDArray[np.int64]) -> Picked:
        flat = np.concatenate([self._read(int(row)) for row in rows])
        lengths = self._known[rows]
        width = padded_length(lengths, self.longest)
        x = padded(flat, offsets_of(lengths)[:-1], lengths, width, self.dtype)
        return Picked(x, None if self.lengths is None else lengths)

    def blocks(self) -> Iterator[Block]:
        for row in range(len(self)):
            yield Block(row, self._known[row : row + 1], self._read(row))

    def _read(self, row: int) -> NDArray[Any]:
        x, _ = _read_item(self._dataset, row, self.is_tokens, self._examples)
        if len(x) != self._known[row] or (x.ndim == 2 and x.shape[1] != self.channels):
            raise ValueError(
                f"{self._examples.named(row)} now has shape {x.shape}; when it was first read, it had "
                f"{self._known[row]} positions of {self.channels} channels. What is random in an item must "
                f"leave its shape alone."
            )
        return x
