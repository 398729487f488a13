"""From what people have (arrays, lists of sequences, texts) to stored sequences, checked.

Axes: n examples, L positions, d channels.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from torchs4.data.own.examples import as_plain
from torchs4.data.own.stored import EqualSequences, StoredSequences, UnequalSequences
from torchs4.data.sequences import offsets_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torchs4.data.own.examples import Examples

_SHAPES = "(examples, positions) or (examples, positions, channels)"


def read_inputs(examples: Examples, tokens: bool) -> StoredSequences | list[str]:
    """The sequences of x, or its texts; numbers are looked at later, all in one pass."""
    x = examples.x
    if isinstance(x, StoredSequences):
        if x.is_tokens:
            _require_no_padding(x, examples)
        return x
    if isinstance(x, str | Path):
        x = map_array(Path(x))
    x = as_plain(x)
    if not isinstance(x, np.ndarray):
        x = _as_list(x)
        if any(isinstance(item, str) for item in x):
            _require_texts(x, examples)
            return x
        return _from_list(
            [read_sequence(item, row, examples) for row, item in enumerate(x)], tokens, examples
        )
    return _from_array(x, tokens, examples)


def map_array(path: Path) -> NDArray[Any]:
    """An array on disk that stays there."""
    if path.suffix != ".npy":
        raise ValueError(
            f"{path} is not an .npy file. Other files are read by SequenceFiles(path=…); texts come as a "
            f"list of strings."
        )
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} cannot be mapped into memory: {error}.") from error


def require_numbers(array: NDArray[Any], what: str) -> None:
    """Refuse what is not real numbers."""
    if array.dtype.kind not in "iubf":
        raise ValueError(f"{what} holds {array.dtype}; expected real numbers.")


def _as_list(x: Any) -> list[Any]:
    try:
        items = list(x)
    except TypeError as error:
        raise ValueError(
            f"x is a {type(x).__name__}; expected an array of shape {_SHAPES}, or a list of sequences."
        ) from error
    if not items:
        raise ValueError("x holds no examples; there must be at least two.")
    return items


def _require_texts(x: list[Any], examples: Examples) -> None:
    for row, text in enumerate(x):
        if not isinstance(text, str):
            raise ValueError(
                f"{examples.named(row)} is a {type(text).__name__} among texts; all must be strings."
            )
        if not text:
            raise ValueError(f"{examples.named(row)} is an empty text. Leave it out.")


def _from_array(x: NDArray[Any], tokens: bool, examples: Examples) -> StoredSequences:
    require_numbers(x, "x")
    if tokens and x.ndim == 3 and x.shape[2] == 1:
        x = x[:, :, 0]
    if x.ndim not in (2, 3) or (tokens and x.ndim != 2):
        shapes = "(examples, positions)" if tokens else _SHAPES
        raise ValueError(f"x has shape {x.shape}; expected {shapes}.")
    if 0 in x.shape:
        raise ValueError(f"x has shape {x.shape}: there is nothing in it.")
    lengths = _read_lengths(x, examples)
    if not tokens:
        return EqualSequences(x[:, :, None] if x.ndim == 2 else x, lengths)
    x = _as_tokens(x, "x")
    counted = _count_tokens(EqualSequences(x, lengths), examples)
    return EqualSequences(x, None if (counted == x.shape[1]).all() else counted)


def _read_lengths(x: NDArray[Any], examples: Examples) -> NDArray[np.int64] | None:
    if examples.lengths is None:
        return None
    lengths = np.asarray(as_plain(examples.lengths))
    if lengths.shape != (len(x),) or lengths.dtype.kind not in "iu":
        raise ValueError(
            f"lengths has shape {lengths.shape} and holds {lengths.dtype}; expected {len(x)} whole numbers, "
            f"one for each example."
        )
    if (wrong := np.flatnonzero((lengths < 1) | (lengths > x.shape[1]))).size:
        row = int(wrong[0])
        raise ValueError(
            f"{examples.named(row)} has length {lengths[row]}; it must be between 1 and {x.shape[1]}, the "
            f"positions of x."
        )
    return lengths.astype(np.int64)


def read_sequence(item: Any, row: int, examples: Examples) -> NDArray[Any]:
    """One sequence, (positions,) or (positions, channels)."""
    try:
        sequence = np.asarray(as_plain(item))
    except ValueError as error:
        raise ValueError(
            f"{examples.named(row)} has positions with different numbers of channels; all must have as many."
        ) from error
    if sequence.dtype.kind not in "iubf":
        raise ValueError(
            f"{examples.named(row)} holds something that is not a number: {_first_stranger(sequence)!r}."
        )
    if sequence.ndim not in (1, 2):
        raise ValueError(
            f"{examples.named(row)} has shape {sequence.shape}; expected (positions,) or (positions, "
            f"channels)."
        )
    if not sequence.size:
        raise ValueError(f"{examples.named(row)} is empty. Leave it out.")
    return sequence


def _first_stranger(sequence: NDArray[Any]) -> Any:
    # Beside one text, NumPy turns numbers into texts too.
    for value in sequence.ravel().tolist():
        try:
            float(value)
        except (TypeError, ValueError):
            return value
    return sequence.ravel()[0]


def _from_list(sequences: list[NDArray[Any]], tokens: bool, examples: Examples) -> StoredSequences:
    if examples.lengths is not None:
        raise ValueError("lengths belong to an array; the sequences of a list have their own.")
    if tokens:
        for row, sequence in enumerate(sequences):
            if sequence.ndim == 2 and sequence.shape[1] == 1:
                sequences[row] = sequence[:, 0]
            elif sequence.ndim == 2:
                raise ValueError(
                    f"{examples.named(row)} has shape {sequence.shape}; tokens have shape (positions,)."
                )
    else:
        sequences = [item[:, None] if item.ndim == 1 else item for item in sequences]
        _require_same_channels(sequences, examples)
    lengths = np.array([len(sequence) for sequence in sequences], np.int64)
    flat = np.concatenate(sequences)
    if tokens:
        flat = _as_tokens(flat, "x")
    stored: StoredSequences
    if (lengths == lengths[0]).all():
        stored = EqualSequences(flat.reshape(len(lengths), int(lengths[0]), *flat.shape[1:]))
    else:
        stored = UnequalSequences(flat, offsets_of(lengths))
    if tokens:
        _require_no_padding(stored, examples)
    return stored


def _require_no_padding(stored: StoredSequences, examples: Examples) -> None:
    if (short := np.flatnonzero(_count_tokens(stored, examples) < stored.counts)).size:
        raise ValueError(
            f"{examples.named(int(short[0]))} ends with token 0, which stands for padding. Sequences with a "
            f"length of their own need none: cut it off, or add 1 to every token if 0 is one of yours."
        )


def _require_same_channels(sequences: list[NDArray[Any]], examples: Examples) -> None:
    shapes = [sequence.shape for sequence in sequences]
    for row, (_, channels) in enumerate(shapes):
        if channels != shapes[0][1]:
            hint = ""
            if len({length for length, _ in shapes}) == 1:
                hint = " If these are (channels, positions), transpose each sequence."
            raise ValueError(
                f"{examples.named(row)} has shape {shapes[row]}, {examples.name_of(0)} has {shapes[0]}; all "
                f"need the same number of channels, which come last.{hint}"
            )


def _as_tokens(x: NDArray[Any], what: str) -> NDArray[Any]:
    if x.dtype.kind in "iu":
        return x
    # Tables and JSON may write 3 as 3.0.
    with np.errstate(invalid="ignore"):
        whole = x.astype(np.int64)
    if not (whole == x).all():
        raise ValueError(f"{what} holds {x[whole != x].ravel()[0]}; tokens are whole numbers.")
    return whole


def _count_tokens(stored: StoredSequences, examples: Examples) -> NDArray[np.int64]:
    """How many tokens come before the padding; refuse what are none."""
    counts = []
    for first, lengths, tokens in stored.blocks():
        starts = np.cumsum(lengths) - lengths
        place = np.arange(len(tokens)) - np.repeat(starts, lengths)
        counted = np.maximum.reduceat(np.where(tokens != 0, place + 1, 0), starts)
        is_inside = place < np.repeat(counted, lengths)
        if (wrong := np.flatnonzero((tokens < 0) | (is_inside & (tokens == 0)))).size:
            row = int(np.searchsorted(starts, wrong[0], side="right")) - 1
            raise ValueError(
                f"{examples.named(first + row)} has token {tokens[wrong[0]]} at position {place[wrong[0]]}; "
                f"tokens are numbers from 1 on, and 0 is padding at the end. Add to every token what makes "
                f"the smallest one 1."
            )
        if not counted.all():
            raise ValueError(
                f"{examples.named(first + int(np.argmin(counted)))} holds only token 0, which is padding. "
                f"Leave it out."
            )
        counts.append(counted)
    return np.concatenate(counts)
