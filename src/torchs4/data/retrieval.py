r"""Retrieval: are two papers of the ACL Anthology linked by a citation? Both are read character by character.

The pairs come from the release of the Long Range Arena. It writes each text as a Python literal of bytes,
b'…' with escapes like \n and \xc3 spelt out; these characters are read as they stand, as the benchmark's own
reader does.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torchs4.configuration import require_at_least
from torchs4.data.characters import (
    FIRST_CHARACTER,
    character_numbers,
    count_characters,
    encode_texts,
    frequent_characters,
)
from torchs4.data.location import DatasetMissingError, advise_again, find_in_lra
from torchs4.data.prepared import prepared_arrays
from torchs4.data.sequences import SequenceData, TokenSplit, offsets_of
from torchs4.description import InputDescription
from torchs4.tasks import Classification

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from torchs4.data.progress import Progress

_PAIRS_AT_ONCE = 1000
_AGAIN = advise_again("lra")


@dataclass(frozen=True)
class Retrieval:
    """Options of Retrieval.

    Attributes:
        max_length: characters per document; longer ones are cut at their end, and lose their end-of-text
            mark.
        min_count: how often a character must occur in the training documents, as cut, to get a number of
            its own. Rarer ones share one.
    """

    max_length: int = 4000
    min_count: int = 15

    def __post_init__(self) -> None:
        require_at_least("max_length", self.max_length, 1)
        require_at_least("min_count", self.min_count, 1)

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """Pairs of documents as numbers of characters; the benchmark's eval file is the validation split.

        The first load reads several gigabytes twice and keeps the beginnings of the documents.
        """
        name = f"retrieval-characters-{self.max_length}-{self.min_count}-v1"
        build = partial(_prepare, folder, self.max_length, self.min_count, progress)
        arrays = prepared_arrays(folder, name, build)
        offsets = {part: np.asarray(arrays[f"{part}_offsets"]) for part in ("train", "eval", "test")}
        train, validation, test = (
            TokenSplit(
                arrays[f"{part}_tokens"],
                offsets[part][:-1],
                np.diff(offsets[part]),
                arrays[f"{part}_labels"],
                np.arange(len(arrays[f"{part}_labels"])),
                self.max_length,
                documents=2,
            )
            for part in offsets
        )
        size = FIRST_CHARACTER + len(arrays["vocabulary"])
        return SequenceData(
            input=InputDescription("tokens", size, self.max_length, documents=2),
            task=Classification(("not linked", "linked")),
            train=train,
            validation=validation,
            test=test,
        )


class _Pairs(NamedTuple):
    """Labels, and twice as many texts: first and second of each pair in turn."""

    labels: list[int]
    texts: list[str]


def _prepare(
    folder: Path, max_length: int, min_count: int, progress: Progress | None
) -> dict[str, NDArray[Any]]:
    place = find_in_lra(folder, "tsv_data")
    paths = {part: place / f"new_aan_pairs.{part}.tsv" for part in ("train", "eval", "test")}
    for path in paths.values():
        if not path.is_file():
            raise DatasetMissingError("lra", path)
    counts = sum(
        count_characters(pairs.texts)
        for pairs in _read_pairs(paths["train"], max_length, "Counting characters of", progress)
    )
    vocabulary = frequent_characters(np.asarray(counts), min_count)
    table = character_numbers(vocabulary)
    arrays: dict[str, NDArray[Any]] = {"vocabulary": vocabulary}
    for part, path in paths.items():
        labels: list[int] = []
        tokens, lengths = [], []
        for pairs in _read_pairs(path, max_length, "Reading", progress):
            encoded, sizes = encode_texts(pairs.texts, table)
            labels += pairs.labels
            tokens.append(encoded)
            lengths.append(sizes)
        arrays[f"{part}_tokens"] = np.concatenate(tokens)
        arrays[f"{part}_offsets"] = offsets_of(np.concatenate(lengths))
        arrays[f"{part}_labels"] = np.array(labels, np.uint8)
    return arrays


def _read_pairs(path: Path, max_length: int, purpose: str, progress: Progress | None) -> Iterator[_Pairs]:
    """The pairs of one file in order, some at a time, texts cut to `max_length` characters."""
    size = path.stat().st_size
    if size == 0:
        raise ValueError(f"{path} is empty. {_AGAIN}")
    with path.open("rb") as file:
        lines = enumerate(file, start=1)
        while some := list(islice(lines, _PAIRS_AT_ONCE)):
            pairs = _Pairs([], [])
            for number, line in some:
                label, first, second = _read_line(line, number, path)
                pairs.labels.append(label)
                pairs.texts.extend((first[:max_length], second[:max_length]))
            yield pairs
            if progress is not None:
                progress(f"{purpose} {path.name}", file.tell(), size)


def _read_line(line: bytes, number: int, path: Path) -> tuple[int, str, str]:
    try:
        # Columns: label, two identifiers, two texts. A tab inside a text is spelt \t.
        label, _, _, first, second = line.rstrip(b"\r\n").decode("utf-8").split("\t")
        value = float(label)
    except ValueError as error:
        raise ValueError(
            f"{path} is damaged or truncated: line {number} should hold a label, two identifiers and two "
            f"texts, separated by tabs ({error}). {_AGAIN}"
        ) from error
    if value not in (0, 1):
        raise ValueError(f"{path} is damaged: line {number} has the label {label}, not 0 or 1. {_AGAIN}")
    return int(value), first, second
