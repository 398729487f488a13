"""Somebody's own text, character by character: which one comes next?"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from torchs4.configuration import require_whole
from torchs4.data.characters import (
    END_OF_TEXT,
    character_numbers,
    count_characters,
    encode_texts,
    frequent_characters,
    token_names,
)
from torchs4.data.passages import next_token_data
from torchs4.data.prepared import prepared_arrays
from torchs4.data.progress import reported
from torchs4.data.sequences import require_fractions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from torchs4.data.progress import Progress
    from torchs4.data.sequences import SequenceData

# Characters that are numbered at a time: on the way, each takes twelve bytes.
_AT_ONCE = 2**22


# What is often given by mistake.
_NO_TEXTS = (".csv", ".tsv", ".parquet", ".npz", ".npy", ".jsonl", ".ndjson", ".wav", ".flac", ".zip", ".gz")


@dataclass(frozen=True)
class TextFile:
    """A text file, or a folder of them: its beginning trains, the next part validates, the end tests.

    Attributes:
        path: a file, or a folder whose .txt files, also those of its sub-folders, are read in the order of
            their names, with an end-of-text mark after each.
        length: characters per example. Training examples begin at other places in every epoch; those to
            validate and test with follow one another.
        min_count: how often a character must occur in the training part to get a number of its own. Others
            share one, "unknown".
        validation_fraction, test_fraction: of the text. Without a test fraction nothing is set aside.
    """

    path: str = ""
    length: int = 256
    min_count: int = 5
    validation_fraction: float = 0.05
    test_fraction: float = 0.05

    def __post_init__(self) -> None:
        require_whole("length", self.length, 1)
        require_whole("min_count", self.min_count, 1)
        require_fractions(self.validation_fraction, self.test_fraction)

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """Read the text, and keep its numbers in the data folder for as long as its content is the same."""
        paths = self._paths()
        for path in paths:
            if path.suffix.lower() in _NO_TEXTS:
                raise ValueError(
                    f"{path} ends with {path.suffix!r}, so it is no text to read character by character. "
                    f"Choose another task for it, such as classification, or rename it to .txt if it is one."
                )
        digest = hashlib.sha256()
        for path in paths:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        digest.update(repr((self.min_count, self.validation_fraction, self.test_fraction)).encode())
        build = partial(
            _prepare, paths, self.min_count, self.validation_fraction, self.test_fraction, progress
        )
        arrays = prepared_arrays(folder, f"text-characters-{digest.hexdigest()[:16]}-v1", build)
        tokens, (first, second) = arrays["tokens"], map(int, arrays["borders"])
        parts = [tokens[:first], tokens[first:second]]
        if self.test_fraction:
            parts.append(tokens[second:])
        try:
            return next_token_data(parts, self.length, token_names(arrays["vocabulary"]), "character")
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from error

    def _paths(self) -> list[Path]:
        path = Path(self.path).expanduser()
        if self.path and path.is_file():
            return [path]
        if not self.path or not path.is_dir():
            raise FileNotFoundError(
                f"path is {self.path!r}, where there is nothing; expected a text file or a folder of .txt "
                f"files."
            )
        # Not every system lists a folder in the same order.
        if paths := sorted(path.rglob("*.txt"), key=lambda found: found.relative_to(path).parts):
            return paths
        raise ValueError(f"The folder {path} holds no .txt files.")


def _prepare(
    paths: list[Path], min_count: int, validation: float, test: float, progress: Progress | None
) -> dict[str, NDArray[Any]]:
    texts = [read_text(path) for path in reported(paths, "Reading texts", progress)]
    if not any(texts):
        what = paths[0] if len(paths) == 1 else f"Each of {len(paths)} files, {paths[0]} the first of them,"
        raise ValueError(f"{what} is empty: there is nothing to learn from. Is it the right file?")
    positions = sum(len(text) + 1 for text in texts)
    second = positions - round(positions * test)
    first = second - round(positions * validation)
    vocabulary = vocabulary_of(_beginning(texts, first), min_count)
    return {
        "vocabulary": vocabulary,
        "tokens": numbers_of(texts, vocabulary, "Numbering characters", progress),
        "borders": np.array([first, second]),
    }


def read_text(path: Path, advice: str = "Save it as UTF-8.") -> str:
    """A file's text, every character as it is; a mark of byte order at its beginning is none."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not UTF-8 text: {error.reason} at byte {error.start:,}. {advice}"
        ) from error


def _beginning(texts: Iterable[str], positions: int) -> Iterator[str]:
    """The texts as far as their first positions reach; the end of a text takes one, too."""
    for text in texts:
        if positions <= 0:
            return
        yield text[:positions]
        positions -= len(text) + 1


def vocabulary_of(texts: Iterable[str], min_count: int) -> NDArray[np.int64]:
    """The code points that occur at least so often in these texts."""
    counts = np.zeros_like(count_characters([]))
    for text in texts:
        for start in range(0, len(text), _AT_ONCE):
            counts += count_characters([text[start : start + _AT_ONCE]])
    return frequent_characters(counts, min_count)


def numbers_of(
    texts: Sequence[str], vocabulary: NDArray[np.int64], what: str, progress: Progress | None = None
) -> NDArray[Any]:
    """The texts as numbers of their characters, with an end-of-text mark after each."""
    table = character_numbers(vocabulary)
    tokens = np.full(sum(len(text) + 1 for text in texts), END_OF_TEXT, table.dtype)
    pieces, place = [], 0
    for text in texts:
        pieces += [(text, start, place + start) for start in range(0, len(text), _AT_ONCE)]
        place += len(text) + 1
    for text, start, target in reported(pieces, what, progress):
        numbers, _ = encode_texts([text[start : start + _AT_ONCE]], table)
        # Without the mark that ends a whole text.
        tokens[target : target + len(numbers) - 1] = numbers[:-1]
    return tokens
