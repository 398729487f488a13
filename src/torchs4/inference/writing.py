"""Text from models of characters: the names of a model's tokens say which character each one is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from torchs4.data.characters import END_OF_TEXT, FIRST_CHARACTER, UNKNOWN
from torchs4.inference.generate import Sampling, generate_each, require_writing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchs4.models import SequenceModel

_PADDING = 0


def write(
    model: SequenceModel,
    prompt: str,
    length: int,
    *,
    sampling: Sampling | None = None,
    seed: int | None = None,
) -> Iterator[str]:
    """Yields what a model writes after a prompt, a character at a time, until the text ends.

    An empty prompt begins a new text. Characters that the model does not know are read as "unknown".
    """
    require_writing(model)
    tokens = encode(model, prompt)
    sampling = sampling or Sampling()
    # Neither has a character that could be shown.
    sampling = replace(sampling, forbidden=(*sampling.forbidden, _PADDING, UNKNOWN))
    drawn = generate_each(
        model, [tokens or [END_OF_TEXT]], length, sampling=sampling, seed=seed, stop=(END_OF_TEXT,)
    )
    return _characters(model.config.names, drawn)


def encode(model: SequenceModel, text: str) -> list[int]:
    """The numbers of a text's characters."""
    names = model.config.names
    if len(names) <= FIRST_CHARACTER or any(len(name) != 1 for name in names[FIRST_CHARACTER:]):
        raise ValueError(
            "This model's tokens are no characters: pass it tokens with torchs4.inference.generate."
        )
    numbers = {name: number for number, name in enumerate(names) if number >= FIRST_CHARACTER}
    return [numbers.get(character, UNKNOWN) for character in text]


def _characters(names: tuple[str, ...], drawn: Iterator[dict[int, int]]) -> Iterator[str]:
    for tokens in drawn:
        (token,) = tokens.values()
        if token != END_OF_TEXT:
            yield names[token]
