"""Text from models of characters or words: the names of a model's tokens say what each one stands for."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from torchs4.data.characters import END_OF_TEXT, FIRST_CHARACTER, UNKNOWN
from torchs4.data.words import END_OF_LINE, UNKNOWN_WORD
from torchs4.inference.generate import Sampling, generate_each, require_writing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchs4.models import SequenceModel

_PADDING = 0
# What models of words read as several: a word and the signs around it, and endings such as 's.
_PIECES = re.compile(r"'\w+|\w+|[^\w\s]")


def write(
    model: SequenceModel,
    prompt: str,
    length: int,
    *,
    sampling: Sampling | None = None,
    seed: int | None = None,
) -> Iterator[str]:
    """Yields what a model writes after a prompt, a character or a word at a time, until the text ends.

    An empty prompt begins a new text. What the model does not know is read as unknown: `unknown_parts` tells.
    Words come with the space or the new line before them.
    """
    require_writing(model)
    tokens = encode(model, prompt)
    sampling = sampling or Sampling()
    names = model.config.names
    if reads_words(model):
        line = names.index(END_OF_LINE)
        forbidden = (*sampling.forbidden, names.index(UNKNOWN_WORD))
        drawn = generate_each(
            model, [tokens or [line]], length, sampling=replace(sampling, forbidden=forbidden), seed=seed
        )
        return _words(names, drawn, begins=not tokens)
    # Neither has a character that could be shown.
    sampling = replace(sampling, forbidden=(*sampling.forbidden, _PADDING, UNKNOWN))
    drawn = generate_each(
        model, [tokens or [END_OF_TEXT]], length, sampling=sampling, seed=seed, stop=(END_OF_TEXT,)
    )
    return _characters(names, drawn)


def encode(model: SequenceModel, text: str) -> list[int]:
    """The numbers of a text's characters or words; those that the model does not know get that of unknown."""
    return [token for _, token in _encoded(model, text)]


def unknown_parts(model: SequenceModel, text: str) -> list[str]:
    """Characters or words of a text that the model does not know, in the order in which they come."""
    unknown = model.config.names.index(UNKNOWN_WORD) if reads_words(model) else UNKNOWN
    parts = [part for part, token in _encoded(model, text) if token == unknown and part != UNKNOWN_WORD]
    return list(dict.fromkeys(parts))


def reads_words(model: SequenceModel) -> bool:
    """Whether a model's tokens are words."""
    return {UNKNOWN_WORD, END_OF_LINE} <= set(model.config.names)


def _encoded(model: SequenceModel, text: str) -> list[tuple[str, int]]:
    names = model.config.names
    if reads_words(model):
        numbers = {name: number for number, name in enumerate(names)}
        words = []
        for line in text.split("\n"):
            words += [part for word in line.split() for part in _parts(word, numbers)]
            words.append(END_OF_LINE)
        # The prompt's last line goes on.
        words.pop()
        return [(word, numbers.get(word, numbers[UNKNOWN_WORD])) for word in words]
    if len(names) <= FIRST_CHARACTER or any(len(name) != 1 for name in names[FIRST_CHARACTER:]):
        raise ValueError(
            "This model's tokens are no characters and no words: pass it tokens with "
            "torchs4.inference.generate."
        )
    numbers = {name: number for number, name in enumerate(names) if number >= FIRST_CHARACTER}
    return [(character, numbers.get(character, UNKNOWN)) for character in text]


def _parts(word: str, numbers: dict[str, int]) -> list[str]:
    """A word as the model knows it: people do not set signs apart by spaces."""
    if word in numbers:
        return [word]
    parts = _PIECES.findall(word)
    return parts if any(part in numbers for part in parts) else [word]


def _words(names: tuple[str, ...], drawn: Iterator[dict[int, int]], begins: bool) -> Iterator[str]:
    for tokens in drawn:
        (token,) = tokens.values()
        if names[token] == END_OF_LINE:
            yield "\n"
        else:
            yield names[token] if begins else f" {names[token]}"
        begins = names[token] == END_OF_LINE


def _characters(names: tuple[str, ...], drawn: Iterator[dict[int, int]]) -> Iterator[str]:
    for tokens in drawn:
        (token,) = tokens.values()
        if token != END_OF_TEXT:
            yield names[token]
