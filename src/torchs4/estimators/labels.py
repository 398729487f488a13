"""From y as people have it to classes with numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_consistent_length, column_or_1d

if TYPE_CHECKING:
    from numpy.typing import NDArray


def number_labels(X: Any, y: Any) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The classes in order, and for each example the number of its class."""
    check_consistent_length(X, y)
    if _is_unusual(y):
        classes = sorted(set(y), key=lambda label: (type(label).__name__, str(label)))
        number = {label: place for place, label in enumerate(classes)}
        found = np.empty(len(classes), object)
        found[:] = classes
        return found, np.array([number[label] for label in y], np.int64)
    labels = column_or_1d(y, warn=True)
    assert_all_finite(labels, input_name="y")
    check_classification_targets(labels)
    known, codes = np.unique(labels, return_inverse=True)
    return known, codes.reshape(-1).astype(np.int64)


def _is_unusual(y: Any) -> bool:
    """Whether the labels are something that NumPy neither sorts nor keeps as it is, such as pairs."""
    if not isinstance(y, list | tuple):
        return False
    kinds = {type(label) for label in y}
    return bool(kinds) and (tuple in kinds or (str in kinds and len(kinds) > 1 and type(None) not in kinds))


def names_of(classes: NDArray[Any]) -> tuple[str, ...]:
    """What to call the classes in files and streams."""
    names = tuple(map(str, classes.tolist()))
    # 1 and "1" are two classes.
    return names if len(set(names)) == len(names) else tuple(map(repr, classes.tolist()))


def read_values(X: Any, y: Any) -> NDArray[np.float64]:
    """Values to predict, one for each example or a row of them."""
    check_consistent_length(X, y)
    values = np.asarray(y)
    if values.dtype.kind not in "iubf":
        try:
            values = values.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"y holds {values.dtype} that are no numbers ({error}).") from error
    if values.ndim not in (1, 2) or not values.size:
        raise ValueError(f"y has shape {values.shape}; expected (examples,) or (examples, values).")
    values = values.astype(np.float64)
    assert_all_finite(values, input_name="y")
    return values
