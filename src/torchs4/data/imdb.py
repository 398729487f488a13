"""IMDB: is a film review positive or negative, read character by character.

Also how texts become numbers of characters, which other character-level datasets share.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from torchs4.data.location import DatasetMissingError
from torchs4.data.prepared import prepared_arrays
from torchs4.data.sequences import InputDescription, SequenceData, TokenSplit, hold_out
from torchs4.layers.options import require_at_least

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

# 0 is padding. Characters of the vocabulary follow, in the order of their code points.
UNKNOWN, END_OF_TEXT = 1, 2
FIRST_CHARACTER = 3
_CODE_POINTS = 0x110000

_SIDES = ("neg", "pos")


@dataclass(frozen=True)
class IMDB:
    """Options of IMDB.

    Attributes:
        max_length: characters per input; longer reviews are cut at their end, and lose their end-of-text
            mark.
        min_count: how often a character must occur in the 25,000 training reviews (those held out for
            validation included, those of the test set never) to get a number of its own. Rarer ones share
            one.
        validation_fraction: of the training reviews, held out.
        seed: of the choice of held-out reviews.
    """

    max_length: int = 2048
    min_count: int = 15
    validation_fraction: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        require_at_least("max_length", self.max_length, 1)
        require_at_least("min_count", self.min_count, 1)
        if not 0 < self.validation_fraction < 1:
            raise ValueError(
                f"validation_fraction is {self.validation_fraction}; it must lie between 0 and 1, like 0.1."
            )
        require_at_least("seed", self.seed, 0)

    def load(self, folder: Path) -> SequenceData:
        """Reviews as numbers of characters; the first load reads 50,000 files and keeps the result."""
        arrays = prepared_arrays(
            folder,
            f"imdb-characters-{self.min_count}-v1",
            partial(_prepare, folder / "aclImdb", self.min_count),
        )
        train, validation = hold_out(len(arrays["train_labels"]), self.validation_fraction, self.seed)

        def split(part: str, members: NDArray[np.int64]) -> TokenSplit:
            return TokenSplit(
                arrays[f"{part}_tokens"],
                np.asarray(arrays[f"{part}_offsets"]),
                arrays[f"{part}_labels"],
                members,
                self.max_length,
            )

        return SequenceData(
            input=InputDescription("tokens", FIRST_CHARACTER + len(arrays["vocabulary"]), self.max_length),
            classes=("negative", "positive"),
            train=split("train", train),
            validation=split("train", validation),
            test=split("test", np.arange(len(arrays["test_labels"]))),
        )


def _prepare(place: Path, min_count: int) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    table = None
    for part in ("train", "test"):
        texts, labels = _read_reviews(place / part)
        if table is None:
            arrays["vocabulary"] = frequent_characters(count_characters(texts), min_count)
            table = character_numbers(arrays["vocabulary"])
        tokens, lengths = encode_texts(texts, table)
        arrays[f"{part}_tokens"] = tokens
        arrays[f"{part}_offsets"] = np.concatenate([[0], np.cumsum(lengths)])
        arrays[f"{part}_labels"] = labels
    return arrays


def _read_reviews(
    place: Path, *, progress: Callable[[int, int], None] | None = None
) -> tuple[list[str], NDArray[np.uint8]]:
    """All reviews of one part, negative ones first, in the order of their file names."""
    paths = []
    for label, side in enumerate(_SIDES):
        if not (place / side).is_dir():
            raise DatasetMissingError("imdb", place / side)
        # Not every system lists a folder in the same order.
        found = sorted((place / side).glob("*.txt"), key=lambda path: path.name)
        if not found:
            raise ValueError(f"{place / side} holds no reviews. {_advice(place)}")
        paths += [(path, label) for path in found]
    texts = []
    for number, (path, _) in enumerate(paths):
        try:
            texts.append(path.read_bytes().decode("utf-8"))
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path} is damaged: it is not UTF-8 text ({error}). {_advice(place)}"
            ) from error
        if progress:
            progress(number + 1, len(paths))
    return texts, np.array([label for _, label in paths], np.uint8)


def _advice(part: Path) -> str:
    return f"Delete {part.parent} and run `s4 data get imdb`."


def count_characters(texts: Sequence[str]) -> NDArray[np.int64]:
    """How often each code point occurs in these texts, 0 … 0x10FFFF."""
    return np.bincount(_code_points(texts), minlength=_CODE_POINTS)


def frequent_characters(counts: NDArray[np.int64], min_count: int) -> NDArray[np.int64]:
    """The code points that occur at least so often, in order: a vocabulary."""
    return np.flatnonzero(counts >= min_count)


def character_numbers(vocabulary: NDArray[np.int64]) -> NDArray[Any]:
    """The number of every code point, in the smallest type that holds them all."""
    numbers = np.arange(FIRST_CHARACTER, FIRST_CHARACTER + len(vocabulary))
    table = np.full(_CODE_POINTS, UNKNOWN, np.min_scalar_type(FIRST_CHARACTER + len(vocabulary)))
    table[vocabulary] = numbers
    return table


def encode_texts(texts: Sequence[str], table: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The texts as numbers, one after the other, each with an end-of-text mark, and their lengths with it."""
    lengths = np.array([len(text) + 1 for text in texts], np.int64)
    tokens = np.full(lengths.sum(), END_OF_TEXT, table.dtype)
    is_character = np.ones(len(tokens), bool)
    is_character[np.cumsum(lengths) - 1] = False
    tokens[is_character] = table[_code_points(texts)]
    return tokens, lengths


def _code_points(texts: Sequence[str]) -> NDArray[np.uint32]:
    return np.frombuffer("".join(texts).encode("utf-32-le"), "<u4")
