"""Values that belong to a sequence, by scikit-learn's conventions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import RegressorMixin

from torchs4.estimators.labels import read_values
from torchs4.estimators.sequence_estimator import SequenceEstimator
from torchs4.estimators.sequences import read_sequences

if TYPE_CHECKING:
    from numpy.typing import NDArray


class S4Regressor(RegressorMixin, SequenceEstimator):
    """Predicts a value for each sequence, or several: `S4Regressor().fit(X, y).predict(X_new)`.

    X is what S4Classifier takes, and so are the parameters but for `class_weight`; y holds numbers,
    (examples,) or (examples, values). Predictions of an ensemble are averaged, and come in y's units. Here
    `augment` changes examples only if it is True or an `Augmentation(…)`: another amplitude or speed may well
    mean another value.
    """

    def fit(self, X: Any, y: Any, *, validation: tuple[Any, Any] | None = None) -> Self:
        """Train. `validation`: a pair (X, y) of other examples to choose the best epoch by."""
        x = read_sequences(self, X, reset=True)
        if y is None:
            raise ValueError("S4Regressor requires y to be passed, but the target y is None.")
        values = read_values(x, y)
        held_out = None
        if validation is not None:
            others = read_sequences(self, validation[0], reset=False)
            held_out = others, read_values(others, validation[1])
        self.n_outputs_ = 1 if values.ndim == 1 else values.shape[1]
        self._is_column = values.ndim == 1
        return self._fit_members(x, values, held_out, "regression")

    def predict(self, X: Any, *, rate: float = 1.0) -> NDArray[np.float64]:
        """The values of each sequence, of the shape that y had.

        rate: step size of X relative to training: 2.0 when every second sample is left out.
        """
        values = np.mean(self._outputs(X, rate), axis=0)
        return values[:, 0] if self._is_column else values

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
