"""WikiText: good and featured articles of Wikipedia, word by word or character by character."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from torchs4.configuration import require_choice, require_whole
from torchs4.data.characters import token_names
from torchs4.data.location import DatasetMissingError, advise_again
from torchs4.data.passages import next_token_data
from torchs4.data.prepared import prepared_arrays
from torchs4.data.text import numbers_of, read_text, vocabulary_of
from torchs4.data.words import count_words, frequent_words, number_words, pack_words, unpack_words

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from torchs4.data.progress import Progress
    from torchs4.data.sequences import SequenceData

Release = Literal["wikitext-2", "wikitext-103"]
Level = Literal["words", "characters"]

_PARTS = ("train", "valid", "test")
# Every word of the training text has a number, as published: rare ones are written <unk> already.
_USUAL_MIN_COUNT = {"words": 1, "characters": 5}


@dataclass(frozen=True)
class WikiText:
    """Options of WikiText, read as its files stand.

    They are made for models of words: these are set apart by spaces, and rare ones are written <unk>, which
    for models of characters are five characters like any others.

    Attributes:
        release: "wikitext-2" (two million words, 33,278 different ones) or "wikitext-103" (103 million,
            267,735 different ones).
        level: "words", where the end of a line counts as one, "<eos>"; or "characters".
        length: words or characters per example. Training examples begin at other places in every epoch;
            those to validate and test with follow one another.
        min_count: how often a word or character must occur in the training text to get a number of its own.
            Others share one. By default 1 for words, 5 for characters.
    """

    release: Release = "wikitext-2"
    level: Level = "words"
    length: int = 256
    min_count: int | None = None

    def __post_init__(self) -> None:
        require_choice("release", self.release, get_args(Release))
        require_choice("level", self.level, get_args(Level))
        require_whole("length", self.length, 1)
        if self.min_count is not None:
            require_whole("min_count", self.min_count, 1)

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """Read the release's folder, the files as published, with their own split."""
        min_count = _USUAL_MIN_COUNT[self.level] if self.min_count is None else self.min_count
        prepare = _prepare_words if self.level == "words" else _prepare_characters
        arrays = prepared_arrays(
            folder,
            f"{self.release}-{self.level}-{min_count}-v1",
            partial(prepare, folder / self.release, min_count, progress),
        )
        names = (unpack_words if self.level == "words" else token_names)(arrays["vocabulary"])
        return next_token_data(
            [arrays[part] for part in _PARTS], self.length, names, self.level.removesuffix("s")
        )


def _prepare_words(place: Path, min_count: int, progress: Progress | None) -> dict[str, NDArray[Any]]:
    advice = advise_again(place.name)
    paths = _paths(place)
    vocabulary = frequent_words(count_words(paths["train"], advice, progress), min_count)
    arrays: dict[str, NDArray[Any]] = {"vocabulary": pack_words(vocabulary)}
    for part, path in paths.items():
        arrays[part] = number_words(path, vocabulary, advice, progress)
    return arrays


def _prepare_characters(place: Path, min_count: int, progress: Progress | None) -> dict[str, NDArray[Any]]:
    advice = advise_again(place.name)
    texts = {}
    for part, path in _paths(place).items():
        texts[part] = read_text(path, advice)
        if not texts[part]:
            raise ValueError(f"{path} is empty. {advice}")
    arrays = {"vocabulary": vocabulary_of([texts["train"]], min_count)}
    for part, text in texts.items():
        # The files are all there is of the text: its end is no token to predict.
        arrays[part] = numbers_of([text], arrays["vocabulary"], f"Numbering characters of {part}", progress)[
            :-1
        ]
    return arrays


def _paths(place: Path) -> dict[str, Path]:
    paths = {part: place / f"wiki.{part}.tokens" for part in _PARTS}
    for path in paths.values():
        if not path.is_file():
            raise DatasetMissingError(place.name, path)
    return paths
