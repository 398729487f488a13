"""From y as people have it to classes with numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, check_consistent_length, column_or_1d

from torchs4.estimators.sequences import is_missing, is_number

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
    _require_all(labels)
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


def _require_all(y: NDArray[Any]) -> None:
    """Refuse gaps."""
    if y.dtype.kind not in "Of":
        return
    for row, value in enumerate(y.tolist()):
        if any(map(is_missing, value if isinstance(value, list) else [value])):
            raise ValueError(
                f"y holds nothing (NaN or None) at row {row} (counted from 0): leave that example out."
            )


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
            _require_all(values)
            row, value = next(
                (pair for pair in enumerate(values.ravel().tolist()) if not is_number(pair[1])), (0, y)
            )
            raise ValueError(
                f"y holds {value!r} at row {row} (counted from 0); S4Regressor predicts "
                f"numbers. For classes there is S4Classifier."
            ) from error
    if values.ndim not in (1, 2) or not values.size:
        raise ValueError(f"y has shape {values.shape}; expected (examples,) or (examples, values).")
    values = values.astype(np.float64)
    _require_all(values)
    assert_all_finite(values, input_name="y")
    return values
