"""Passages of one long text, each position of which asks for the token that comes next.

Axes: B examples of a batch, L positions of a passage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchs4.data.sequences import SequenceData, Split
from torchs4.description import Batch, InputDescription
from torchs4.tasks import NextToken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


class PassageSplit(Split):
    """Passages one after the other, which ask for every token but the first exactly once.

    The last passage is as long as the others: it begins early, and asks only for what is new.
    """

    def __init__(self, tokens: NDArray[Any], length: int) -> None:
        self._tokens = tokens
        self._length = length

    def __len__(self) -> int:
        return -(-(len(self._tokens) - 1) // self._length)

    def batch(self, rows: NDArray[np.int64], generator: torch.Generator | None = None) -> Batch:
        begins = rows * self._length
        last = len(self._tokens) - 1 - self._length
        batch = _cut(self._tokens, np.minimum(begins, last), self._length)
        if begins.max() <= last:
            return batch
        repeated = np.maximum(begins - last, 0)
        return batch._replace(asked=torch.from_numpy(np.arange(self._length) >= repeated[:, None]))

    def in_order(self, generator: torch.Generator | None = None) -> PassagesInOrder:
        return PassagesInOrder(self._tokens, self._length, generator)


class DrawnPassageSplit(Split):
    """As many passages as fit into a text, each drawn anew from its own share of all possible beginnings.

    So an epoch reads all regions of the text alike, cut in other places than the epoch before. Without a
    generator passages follow one another from the beginning, without the rest that does not fill one.
    """

    def __init__(self, tokens: NDArray[Any], length: int) -> None:
        self._tokens = tokens
        self._length = length

    def __len__(self) -> int:
        return (len(self._tokens) - 1) // self._length

    def batch(self, rows: NDArray[np.int64], generator: torch.Generator | None = None) -> Batch:
        if generator is None:
            return _cut(self._tokens, rows * self._length, self._length)
        beginnings = len(self._tokens) - self._length
        first, end = rows * beginnings // len(self), (rows + 1) * beginnings // len(self)
        share = torch.rand(len(rows), generator=generator, dtype=torch.float64).numpy()
        return _cut(self._tokens, first + (share * (end - first)).astype(np.int64), self._length)

    def in_order(self, generator: torch.Generator | None = None) -> PassagesInOrder:
        return PassagesInOrder(self._tokens, self._length, generator)


class PassagesInOrder(Split):
    """Passages each of which goes on where the one before it ended; the last one may be shorter.

    With a generator they begin anywhere, go on at the beginning after the end, and are all equally long.
    """

    def __init__(self, tokens: NDArray[Any], length: int, generator: torch.Generator | None = None) -> None:
        self._tokens = tokens
        self._length = length
        asked = len(tokens) - 1
        self._count = -(-asked // length) if generator is None else asked // length
        self._shift = 0 if generator is None else int(torch.randint(len(tokens), (), generator=generator))

    def __len__(self) -> int:
        return self._count

    def batch(self, rows: NDArray[np.int64], generator: torch.Generator | None = None) -> Batch:
        begins = rows * self._length
        length = min(self._length, len(self._tokens) - 1 - int(begins.max()))
        return _cut(self._tokens, self._shift + begins, length)


def _cut(tokens: NDArray[Any], begins: NDArray[np.int64], length: int) -> Batch:
    passages = np.asarray(tokens[(begins[:, None] + np.arange(length + 1)) % len(tokens)]).astype(np.int64)
    read, asked = np.ascontiguousarray(passages[:, :-1]), np.ascontiguousarray(passages[:, 1:])
    return Batch(torch.from_numpy(read), torch.from_numpy(asked))


def next_token_data(
    parts: Sequence[NDArray[Any]], length: int, names: tuple[str, ...], unit: str
) -> SequenceData:
    """Passages of a text to train on, one to validate and, if there is a third, one to test with.

    names: what each token stands for. unit: what a token is, such as "character".
    """
    for what, tokens in zip(("train on", "validate with", "test with"), parts, strict=False):
        if len(tokens) <= length:
            raise ValueError(
                f"There are {len(tokens):,} {unit}s to {what}; passages of {length} need at least "
                f"{length + 1:,}. Choose a smaller length, or give more text."
            )
    train, validation, *test = parts
    return SequenceData(
        input=InputDescription("tokens", len(names), length),
        task=NextToken(len(names), names, unit),
        train=DrawnPassageSplit(train, length),
        validation=PassageSplit(validation, length),
        test=PassageSplit(test[0], length) if test else None,
    )
