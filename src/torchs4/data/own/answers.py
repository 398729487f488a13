"""From labels and values as people have them to what a task asks, checked.

Axes: n examples, L positions, k values.
"""

from __future__ import annotations

import numbers
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from torchs4.data.own.examples import as_plain
from torchs4.data.own.inputs import map_array
from torchs4.data.own.stored import EqualSequences, StoredSequences, UnequalSequences
from torchs4.data.own.survey import is_finite, refuse_value
from torchs4.data.sequences import offsets_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from torchs4.data.own.examples import Examples

TaskName = Literal["classification", "regression", "position-regression"]

# Names in an error before it says "and so on".
_NAMES_SHOWN = 10


class Answers(NamedTuple):
    """What is asked about every example.

    names: of the classes, or of the values.
    numbers: of the class that each label, as it is written, stands for.
    values: numbers of classes (n,), values (n, k), or values for each position.
    """

    task: TaskName
    names: tuple[str, ...]
    numbers: Mapping[str, int]
    values: NDArray[Any] | StoredSequences

    @property
    def groups(self) -> NDArray[np.int64]:
        """What held-out parts should resemble the whole in: the classes, or nothing in particular."""
        if self.task == "classification":
            return np.asarray(self.values)
        return np.zeros(len(self.values), np.int64)


def read_answers(
    examples: Examples,
    counts: NDArray[np.int64],
    task: TaskName | None,
    classes: Sequence[Any] | None = None,
    known: Answers | None = None,
) -> Answers:
    """What y asks about sequences of these lengths; without a task, what y looks like decides.

    known: the answers of the training examples, whose classes and columns others share.
    """
    y = map_array(Path(examples.y)) if isinstance(examples.y, str | Path) else examples.y
    y = _settle(as_plain(y), examples)
    if len(y) != len(counts):
        raise ValueError(f"x has {len(counts)} examples and y has {len(y)}; there must be one y for each x.")
    task = task or _guess(y, counts)
    if task == "classification":
        return _read_classes(y, classes, known, examples)
    if classes is not None:
        raise ValueError(f"classes were given, but the task is {task!r}: y holds values, not labels.")
    found = _read_values(y, examples) if task == "regression" else _read_positions(y, counts, examples)
    if known is not None and len(found.names) != len(known.names):
        raise ValueError(
            f"y has {len(found.names)} values, that of the training examples has {len(known.names)}; both "
            f"must have as many."
        )
    return found


def _settle(y: Any, examples: Examples) -> NDArray[Any] | list[Any]:
    """An array where all is of one kind and shape; else a list, of arrays where items are sequences."""
    if isinstance(y, np.ndarray):
        return y
    try:
        items = [as_plain(item) for item in y]
    except TypeError as error:
        raise ValueError(
            f"y is {y!r}; expected one label or value for each example, such as a list."
        ) from error
    for row, item in enumerate(items):
        if _is_missing(item):
            raise ValueError(f"{examples.named(row)} has no label: y is {item!r}. Leave the example out.")
    if any(isinstance(item, list | np.ndarray) or _is_row(item) for item in items):
        return _settle_sequences(items, examples)
    if all(isinstance(item, numbers.Real | np.bool_) for item in items) and items:
        return np.asarray(items)
    return items


def _is_missing(item: Any) -> bool:
    if item is None or isinstance(item, float):
        return item is None or item != item
    # What pandas writes for a gap.
    return type(item).__name__ in ("NAType", "NaTType")


def _is_row(item: Any) -> bool:
    return isinstance(item, tuple) and all(isinstance(value, numbers.Real) for value in item)


def _settle_sequences(items: list[Any], examples: Examples) -> NDArray[Any] | list[Any]:
    arrays = []
    for row, item in enumerate(items):
        try:
            array = np.asarray(item)
        except ValueError as error:
            raise ValueError(f"y of {examples.name_of(row)} has rows of different lengths.") from error
        if array.dtype.kind not in "iubf" or not array.ndim:
            raise ValueError(
                f"y of {examples.name_of(row)} is {item!r}; expected numbers, as in other examples."
            )
        arrays.append(array)
    return np.stack(arrays) if len({array.shape for array in arrays}) == 1 else arrays


def _guess(y: NDArray[Any] | list[Any], counts: NDArray[np.int64]) -> TaskName:
    if isinstance(y, list):
        return "position-regression" if isinstance(y[0], np.ndarray) else "classification"
    if y.dtype.kind != "f":
        if y.ndim == 1 or y.shape[1:] == (1,):
            return "classification"
        raise ValueError(
            f"y holds whole numbers of shape {y.shape}, which may be values of each example or of each "
            f'position: give task="regression" or task="position-regression".'
        )
    is_equal = len(y) > 0 and (counts == counts[0]).all() and counts[0] > 1
    if y.ndim == 3 or (y.ndim == 2 and is_equal and y.shape[1] == counts[0]):
        return "position-regression"
    return "regression"


def _read_classes(
    y: NDArray[Any] | list[Any], classes: Sequence[Any] | None, known: Answers | None, examples: Examples
) -> Answers:
    labels, places = _distinct(y, examples)
    if known is None:
        known = Answers("classification", *_number_classes(labels, classes), places)
    codes = np.empty(len(labels), np.int64)
    for place, label in enumerate(labels):
        if str(label) not in known.numbers:
            row = int(np.flatnonzero(places == place)[0])
            raise ValueError(
                f"{examples.named(row)} has the label {label!r}; expected one of {_shown(known.numbers)}."
            )
        codes[place] = known.numbers[str(label)]
    return known._replace(values=codes[places])


def _distinct(y: NDArray[Any] | list[Any], examples: Examples) -> tuple[list[Any], NDArray[np.int64]]:
    """The labels in order, numbers by their size and all else as it is written, and which one each y is."""
    if isinstance(y, np.ndarray):
        found, places = np.unique(_as_labels(y, examples), return_inverse=True)
        return found.tolist(), places.reshape(-1)
    if isinstance(y[0], np.ndarray):
        raise ValueError("y holds a sequence for each example; classification needs one label for each.")
    try:
        labels = sorted(set(y), key=str)
    except TypeError as error:
        raise ValueError(f"y holds something that cannot be a label: {error}.") from error
    place_of = {label: place for place, label in enumerate(labels)}
    return labels, np.array([place_of[label] for label in y], np.int64)


def _number_classes(
    labels: list[Any], classes: Sequence[Any] | None
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Names of classes, and the number of the class that each label, as it is written, stands for."""
    names = tuple(map(str, labels if classes is None else classes))
    if len(set(names)) < len(names):
        name, _ = Counter(names).most_common(1)[0]
        raise ValueError(f"Two classes are written {name!r}; give each a name of its own.")
    numbers_of = {name: number for number, name in enumerate(names)}
    if classes is None or any(isinstance(label, str) for label in labels):
        return names, numbers_of
    if all(isinstance(name, str) for name in classes):
        # Whole numbers count the named classes; False is the first of two.
        by_number = {str(number): number for number in range(len(names))}
        return names, by_number | ({"False": 0, "True": 1} if len(names) == 2 else {})
    return names, numbers_of


def _as_labels(y: NDArray[Any], examples: Examples) -> NDArray[Any]:
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise ValueError(
            f"y has shape {y.shape}; classification needs one label for each example, (examples,)."
        )
    if y.dtype.kind in "iub":
        return y
    if y.dtype.kind != "f":
        raise ValueError(f"y holds {y.dtype}; expected labels: whole numbers or texts.")
    if (wrong := np.flatnonzero(y != np.floor(y))).size:
        row = int(wrong[0])
        raise ValueError(
            f"{examples.named(row)} has the label {y[row]}; classes are whole numbers or texts. Values to "
            f'predict need task="regression".'
        )
    return y.astype(np.int64)


def _read_values(y: NDArray[Any] | list[Any], examples: Examples) -> Answers:
    values = _require_values(y, examples)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or not values.shape[1]:
        raise ValueError(
            f"y has shape {values.shape}; regression needs (examples,) or (examples, values). Values for "
            f'each position need task="position-regression".'
        )
    names = _columns(values.shape[1], examples)
    if (wrong := np.argwhere(~is_finite(values))).size:
        row, column = wrong[0]
        raise refuse_value(values[row, column], f"{examples.name_of(int(row))}, value {names[column]!r}")
    return Answers("regression", names, {}, values.astype(np.float32))


def _require_values(y: NDArray[Any] | list[Any], examples: Examples) -> NDArray[Any]:
    if isinstance(y, np.ndarray):
        if y.dtype.kind in "iubf":
            return y
        raise ValueError(f"y holds {y.dtype}; values to predict are real numbers.")
    for row, item in enumerate(y):
        if not isinstance(item, numbers.Real | np.ndarray):
            raise ValueError(f"y of {examples.name_of(row)} is {item!r}; expected a number.")
    raise ValueError("y has rows of different lengths; regression needs as many values for each example.")


def _read_positions(y: NDArray[Any] | list[Any], counts: NDArray[np.int64], examples: Examples) -> Answers:
    if isinstance(y, np.ndarray):
        y = _require_values(y, examples)
        if y.ndim in (2, 3) and y.shape[1] >= counts.max():
            # The rows of x may be padded, and then those of y are too.
            values = y[:, :, None] if y.ndim == 2 else y
            is_full = (counts == y.shape[1]).all()
            if is_full or examples.lengths is not None:
                return _positions(EqualSequences(values, None if is_full else counts), examples)
        raise _refuse_positions(examples, y, counts)
    columns = []
    for row, (item, length) in enumerate(zip(y, counts, strict=True)):
        if not isinstance(item, np.ndarray):
            raise ValueError(f"y of {examples.name_of(row)} is {item!r}; expected a value for each position.")
        if item.ndim not in (1, 2) or len(item) != length:
            raise ValueError(
                f"y of {examples.name_of(row)} has shape {item.shape}, but its x has {length} positions; "
                f"there must be values for each of them."
            )
        columns.append(item[:, None] if item.ndim == 1 else item)
        if columns[-1].shape[1] != columns[0].shape[1]:
            raise ValueError(
                f"y of {examples.name_of(row)} has {columns[-1].shape[1]} values for each position, those "
                f"before have {columns[0].shape[1]}."
            )
    return _positions(UnequalSequences(np.concatenate(columns), offsets_of(counts)), examples)


def _refuse_positions(examples: Examples, y: NDArray[Any], counts: NDArray[np.int64]) -> ValueError:
    shape = tuple(getattr(examples.x, "shape", ()))
    hint = ""
    if len(shape) == 3 and y.shape[1:2] == shape[-1:]:
        hint = f" x of shape {shape} looks like (examples, channels, positions): swap its last two axes."
    low, high = int(counts.min()), int(counts.max())
    lengths = str(low) if low == high else f"{low} to {high}"
    return ValueError(
        f"y has shape {y.shape}, but the sequences of x have {lengths} positions; position-regression needs "
        f"values for each of them: (examples, positions), (examples, positions, values) or a list of such."
        f"{hint}"
    )


def _positions(stored: StoredSequences, examples: Examples) -> Answers:
    return Answers("position-regression", _columns(stored.channels, examples), {}, stored)


def _columns(count: int, examples: Examples) -> tuple[str, ...]:
    if len(examples.columns) == count:
        return examples.columns
    return ("y",) if count == 1 else tuple(f"y{place}" for place in range(count))


def _shown(names: Any) -> str:
    names = list(map(repr, names))
    return ", ".join(names[:_NAMES_SHOWN]) + (", …" if len(names) > _NAMES_SHOWN else "")
