"""WikiText-2: good and featured articles of Wikipedia, character by character."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from torchs4.configuration import require_whole
from torchs4.data.characters import token_names
from torchs4.data.location import DatasetMissingError, advise_again
from torchs4.data.passages import next_token_data
from torchs4.data.prepared import prepared_arrays
from torchs4.data.text import numbers_of, read_text, vocabulary_of

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from torchs4.data.progress import Progress
    from torchs4.data.sequences import SequenceData

_PARTS = ("train", "valid", "test")
_AGAIN = advise_again("wikitext-2")


@dataclass(frozen=True)
class WikiText2:
    """Options of WikiText-2, read character by character as its files stand.

    They are made for models of words: these are set apart by spaces, and rare ones are written <unk>, which
    here are five characters like any others.

    Attributes:
        length: characters per example. Training examples begin at other places in every epoch; those to
            validate and test with follow one another.
        min_count: how often a character must occur in the training text to get a number of its own. Others
            share one, "unknown".
    """

    length: int = 256
    min_count: int = 5

    def __post_init__(self) -> None:
        require_whole("length", self.length, 1)
        require_whole("min_count", self.min_count, 1)

    def load(self, folder: Path, progress: Progress | None = None) -> SequenceData:
        """Read `folder/wikitext-2`, the files as published, with their own split."""
        arrays = prepared_arrays(
            folder,
            f"wikitext-2-characters-{self.min_count}-v1",
            partial(_prepare, folder / "wikitext-2", self.min_count, progress),
        )
        return next_token_data(
            [arrays[part] for part in _PARTS], self.length, token_names(arrays["vocabulary"]), "character"
        )


def _prepare(place: Path, min_count: int, progress: Progress | None) -> dict[str, NDArray[Any]]:
    texts = {}
    for part in _PARTS:
        path = place / f"wiki.{part}.tokens"
        if not path.is_file():
            raise DatasetMissingError("wikitext-2", path)
        texts[part] = read_text(path, _AGAIN)
    arrays = {"vocabulary": vocabulary_of([texts["train"]], min_count)}
    for part, text in texts.items():
        # The files are all there is of the text: its end is no token to predict.
        arrays[part] = numbers_of([text], arrays["vocabulary"], f"Numbering characters of {part}", progress)[
            :-1
        ]
    return arrays
