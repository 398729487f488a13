"""Texts as numbers of their characters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

# 0 is padding. Characters of the vocabulary follow, in the order of their code points.
UNKNOWN, END_OF_TEXT = 1, 2
FIRST_CHARACTER = 3
_MARKS = ("<padding>", "<unknown>", "<end of text>")
_CODE_POINTS = 0x110000


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


def token_names(vocabulary: NDArray[np.int64]) -> tuple[str, ...]:
    """What each number stands for: a mark, whose name is longer than a character, or a character."""
    return (*_MARKS, *map(chr, vocabulary.tolist()))


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
