"""From X as scikit-learn's, aeon's and sktime's users have it to sequences as `torchs4.data` reads them.

Axes: n examples, L positions, d channels. Here channels come first, (n, d, L); there they come last.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_array, validate_data

from torchs4.data.own.stored import StoredSequences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Sequences = NDArray[np.float32] | list[NDArray[np.float32]] | list[str] | StoredSequences

_SHAPES = (
    "(examples, length), (examples, channels, length), or a list of sequences of shape (length,) or "
    "(channels, length)"
)


def read_sequences(estimator: Any, X: Any, reset: bool, same_length: bool = False) -> Sequences:
    """Sequences with channels last, checked; texts and sequences that are stored already stay as they are.

    reset: the estimator is being fit, and remembers the columns of a table.
    same_length: a table needs as many columns as the one that was fit; other shapes may have any length.
    """
    if isinstance(X, StoredSequences) or _is_texts(X):
        return X
    parts = _parts(X)
    if parts is not None and len({part.shape for part in parts}) > 1:
        return _different(parts)
    values = X if parts is None else np.stack(parts)
    if reset or (same_length and getattr(values, "ndim", 2) < 3):
        # Names of columns alone; their number is compared below.
        values = validate_data(estimator, values, reset=reset, skip_check_array=True, ensure_2d=False)
    _require_numbers(values)
    array = check_array(
        values, dtype=np.float32, allow_nd=True, ensure_min_samples=1, estimator=estimator, input_name="X"
    )
    if array.ndim > 3:
        raise ValueError(f"X has shape {array.shape}; expected {_SHAPES}.")
    if array.ndim == 2:
        if reset:
            estimator.n_features_in_ = array.shape[1]
        elif same_length and array.shape[1] != (
            known := getattr(estimator, "n_features_in_", array.shape[1])
        ):
            raise ValueError(
                f"X has {array.shape[1]} features, but {type(estimator).__name__} is expecting {known} "
                f"features as input. Sequences of another length come as (examples, channels, length) or as "
                f"a list; those of another sampling rate with rate=…."
            )
        return array[:, :, None]
    if not array.shape[1]:
        raise ValueError(f"X has shape {array.shape}, without channels; expected {_SHAPES}.")
    if reset and array.shape[1] > array.shape[2]:
        warnings.warn(
            f"X has shape {array.shape}, which is read as {array.shape[1]} channels of length "
            f"{array.shape[2]}. If its last axis holds the channels, pass X.transpose(0, 2, 1).",
            stacklevel=3,
        )
    return array.transpose(0, 2, 1)


def as_table(values: NDArray[np.float32], names: Sequence[str]) -> Any:
    """Rows of numbers as a frame, the names of whose columns an estimator keeps."""
    import pandas

    return pandas.DataFrame(values, columns=list(names), copy=False)


def channels_of(sequences: Sequences) -> int | None:
    """How many numbers there are at each position; None for texts and tokens."""
    if isinstance(sequences, StoredSequences):
        return None if sequences.is_tokens else sequences.channels
    first = sequences[0]
    return None if isinstance(first, str) else int(first.shape[1])


def require_different(sequences: Sequences) -> None:
    """Refuse numbers that are always the same, in sequences that do not even differ in length."""
    if channels_of(sequences) is None:
        return
    parts: Any
    if isinstance(sequences, StoredSequences):
        lengths, parts = sequences.counts.tolist(), (block.values for block in sequences.blocks())
    else:
        lengths, parts = [len(one) for one in sequences], sequences
    if len(set(lengths)) > 1:
        return
    first: Any = None
    for part in parts:
        first = part[0] if first is None else first
        if (part != first).any():
            return
    raise ValueError(
        f"X is always {', '.join(f'{value:g}' for value in first)}, at every position of all "
        f"{len(lengths)} sequences: there is nothing to tell them apart by."
    )


def is_missing(value: Any) -> bool:
    """Whether a cell holds nothing, as Python, NumPy or pandas write that."""
    if isinstance(value, float | np.floating):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _require_numbers(X: Any) -> None:
    """Refuse texts, gaps and infinite numbers by their place; whatever else is wrong, scikit-learn says."""
    names = list(getattr(X, "columns", ()))
    array = np.asarray(X)
    if array.ndim not in (2, 3):
        return
    if array.dtype.kind in "OU":
        wrong = next((place for place in np.ndindex(array.shape) if not is_number(array[place])), None)
    elif array.dtype.kind == "f" and not np.isfinite(array).all():
        wrong = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
    else:
        wrong = None
    if wrong is None:
        return
    value = array[wrong]
    if names:
        place = f"row {wrong[0]}, column {names[wrong[1]]!r}"
    else:
        axes = ("example", "position") if array.ndim == 2 else ("example", "channel", "position")
        place = ", ".join(f"{axis} {number}" for axis, number in zip(axes, wrong, strict=True))
    if isinstance(value, str):
        advice = (
            f"a column of texts has to be left out, X.drop(columns={names[wrong[1]]!r})"
            if names
            else "leave it out"
        )
        raise ValueError(
            f"X holds the text {str(value)!r} at {place} (counted from 0); expected numbers: {advice}."
        )
    told = "NaN" if is_missing(value) else value
    fill = ", or fill gaps, for instance by X.interpolate(axis=1)" if names else ", or fill gaps"
    raise ValueError(f"X holds {told} at {place} (counted from 0). Leave such examples out{fill}.")


def is_number(value: Any) -> bool:
    """Whether a cell may be read as a finite number; what is no text either is left to scikit-learn."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            return False
    return not is_missing(value) and not (isinstance(value, float) and np.isinf(value))


def _is_texts(X: Any) -> bool:
    return isinstance(X, list | tuple) and len(X) > 0 and all(isinstance(item, str) for item in X)


def _parts(X: Any) -> list[NDArray[Any]] | None:
    """The items of a list of sequences, or of an array of objects that holds some; None for all else."""
    if isinstance(X, np.ndarray) and (X.dtype != object or X.ndim != 1):
        return None
    if not isinstance(X, list | tuple | np.ndarray) or not len(X):
        return None
    if not all(hasattr(item, "__len__") and not isinstance(item, str | bytes | dict) for item in X):
        return None
    try:
        return [np.asarray(item) for item in X]
    except ValueError as error:
        raise ValueError(
            f"X holds a sequence whose channels have different lengths ({error}); all channels of one need "
            f"as many positions."
        ) from error


def _different(parts: Sequence[NDArray[Any]]) -> list[NDArray[np.float32]]:
    sequences: list[NDArray[np.float32]] = []
    for row, part in enumerate(parts):
        if part.ndim not in (1, 2) or part.dtype.kind not in "iubf":
            raise ValueError(
                f"Example {row} has shape {part.shape} and holds {part.dtype}; expected numbers of shape "
                f"(length,) or (channels, length)."
            )
        if not part.size:
            raise ValueError(f"Example {row} is empty. Leave it out.")
        sequence = part[:, None] if part.ndim == 1 else part.T
        if sequences and sequence.shape[1] != sequences[0].shape[1]:
            raise ValueError(
                f"Example {row} has {sequence.shape[1]} channels, those before have {sequences[0].shape[1]}; "
                f"all need as many. Shapes are (length,) or (channels, length)."
            )
        # A copy in order: batches are cut from it again and again.
        sequences.append(np.ascontiguousarray(sequence, np.float32))
    return sequences
