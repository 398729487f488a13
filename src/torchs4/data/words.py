"""Texts as numbers of their words: whatever stands between white space, and a mark at the end of each line.

Words are numbered by how frequent they are, which is what language models with bands of words need.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from torchs4.data.progress import Progress

UNKNOWN_WORD, END_OF_LINE = "<unk>", "<eos>"
# Lines between two reports.
_REPORT_EVERY = 20_000


def count_words(path: Path, advice: str, progress: Progress | None = None) -> Counter[str]:
    """How often each word of a file occurs, in the order of first occurrences."""
    counts: Counter[str] = Counter()
    for words in _lines(path, advice, f"Counting words of {path.name}", progress):
        counts.update(words)
    return counts


def frequent_words(counts: Counter[str], min_count: int) -> list[str]:
    """Words that occur at least so often, the most frequent first; both marks are always among them."""
    known = [
        word
        for word, count in counts.most_common()
        if count >= min_count or word in (UNKNOWN_WORD, END_OF_LINE)
    ]
    return known + [mark for mark in (UNKNOWN_WORD, END_OF_LINE) if mark not in counts]


def number_words(
    path: Path, vocabulary: Sequence[str], advice: str, progress: Progress | None = None
) -> NDArray[np.int32]:
    """A file as numbers of its words; words of no number of their own have that of <unk>."""
    numbers = {word: number for number, word in enumerate(vocabulary)}
    unknown = numbers[UNKNOWN_WORD]
    pieces, piece = [], []
    for count, words in enumerate(_lines(path, advice, f"Numbering words of {path.name}", progress), 1):
        piece += [numbers.get(word, unknown) for word in words]
        # A list of Python's numbers takes nine times the memory.
        if count % _REPORT_EVERY == 0:
            pieces.append(np.array(piece, np.int32))
            piece = []
    return np.concatenate([*pieces, np.array(piece, np.int32)])


def pack_words(vocabulary: Sequence[str]) -> NDArray[np.uint8]:
    """The vocabulary as an array that lies on disk: no word holds white space."""
    return np.frombuffer("\n".join(vocabulary).encode(), np.uint8)


def unpack_words(packed: NDArray[Any]) -> tuple[str, ...]:
    """What `pack_words` was given."""
    return tuple(packed.tobytes().decode().split("\n"))


def _lines(path: Path, advice: str, what: str, progress: Progress | None) -> Iterator[list[str]]:
    size, done = path.stat().st_size, 0
    if size == 0:
        raise ValueError(f"{path} is empty. {advice}")
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path} is not UTF-8 text: {error.reason} in line {number:,}. {advice}"
                ) from error
            done += len(line)
            yield [*text.split(), END_OF_LINE]
            if progress is not None and (number % _REPORT_EVERY == 0 or done == size):
                progress(what, done, size)
