"""IMDB: is a film review positive or negative, read character by character."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from torchs4.configuration import require_at_least
from torchs4.data.characters import (
    character_numbers,
    count_characters,
    encode_texts,
    frequent_characters,
    token_names,
)
from torchs4.data.location import DatasetMissingError, advise_again
from torchs4.data.prepared import prepared_arrays
from torchs4.data.progress import reported
from torchs4.data.sequences import (
    SequenceData,
    TokenSplit,
    hold_out,
    offsets_of,
    require_validation_fraction,
)
from torchs4.description import InputDescription
from torchs4.tasks import Classification

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from torchs4.data.progress import Progress

_SIDES = ("neg", "pos")
_AGAIN = advise_again("imdb")


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
        require_validation_fraction(self.validation_fraction)
        require_at_least("seed", self.seed, 0)

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """Reviews as numbers of characters; the first load reads 50,000 files and keeps the result."""
        arrays = prepared_arrays(
            folder,
            f"imdb-characters-{self.min_count}-v1",
            partial(_prepare, folder / "aclImdb", self.min_count, progress),
        )
        train, validation = hold_out(len(arrays["train_labels"]), self.validation_fraction, self.seed)

        def split(part: str, members: NDArray[np.int64]) -> TokenSplit:
            offsets = np.asarray(arrays[f"{part}_offsets"])
            return TokenSplit(
                arrays[f"{part}_tokens"],
                offsets[:-1],
                np.diff(offsets),
                arrays[f"{part}_labels"],
                members,
                self.max_length,
            )

        names = token_names(arrays["vocabulary"])
        return SequenceData(
            input=InputDescription("tokens", len(names), self.max_length, names=names),
            task=Classification(("negative", "positive")),
            train=split("train", train),
            validation=split("train", validation),
            test=split("test", np.arange(len(arrays["test_labels"]))),
        )


def _prepare(place: Path, min_count: int, progress: Progress | None) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    table = None
    for part in ("train", "test"):
        texts, labels = _read_reviews(place / part, progress)
        if table is None:
            arrays["vocabulary"] = frequent_characters(count_characters(texts), min_count)
            table = character_numbers(arrays["vocabulary"])
        tokens, lengths = encode_texts(texts, table)
        arrays[f"{part}_tokens"] = tokens
        arrays[f"{part}_offsets"] = offsets_of(lengths)
        arrays[f"{part}_labels"] = labels
    return arrays


def _read_reviews(place: Path, progress: Progress | None = None) -> tuple[list[str], NDArray[np.uint8]]:
    """All reviews of one part, negative ones first, in the order of their file names."""
    paths = []
    for label, side in enumerate(_SIDES):
        if not (place / side).is_dir():
            raise DatasetMissingError("imdb", place / side)
        # Not every system lists a folder in the same order.
        found = sorted((place / side).glob("*.txt"), key=lambda path: path.name)
        if not found:
            raise ValueError(f"{place / side} holds no reviews. {_AGAIN}")
        paths += [(path, label) for path in found]
    texts = []
    for path, _ in reported(paths, f"Reading reviews for {place.name}", progress):
        try:
            texts.append(path.read_bytes().decode("utf-8"))
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is damaged: it is not UTF-8 text ({error}). {_AGAIN}") from error
    return texts, np.array([label for _, label in paths], np.uint8)
