"""S4Regressor: values in their own units, one or several."""

from __future__ import annotations

import numpy as np
import pytest
from small import QUICK

from torchs4.data import from_arrays
from torchs4.data.augmentation import Augmentation
from torchs4.estimators import S4Regressor
from torchs4.estimators.defaults import usual_plan


def ramps(n: int = 64, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    slope = generator.uniform(-1, 1, n)
    return slope[:, None] * np.arange(20) + 0.1 * generator.normal(size=(n, 20)), 1000 + 50 * slope


def test_slopes_of_unseen_ramps_are_predicted_in_their_units() -> None:
    fitted = S4Regressor(**{**QUICK, "epochs": 40}).fit(*ramps())
    x, y = ramps(seed=1)
    assert fitted.score(x, y) > 0.9
    predicted = fitted.predict(x)
    assert predicted.shape == (64,)
    assert predicted.dtype == np.float64
    assert abs(predicted.mean() - 1000) < 30
    stream = fitted.stream()
    stream.push(x[0][:, None])
    assert float(stream.prediction[0]) == pytest.approx(predicted[0], abs=0.1)


def test_examples_of_values_stay_as_they_are_unless_somebody_says_otherwise() -> None:
    x, y = ramps(16)
    classes = from_arrays(x, (y > 1000).astype(int))
    assert usual_plan(classes).augmentation != Augmentation()
    assert usual_plan(from_arrays(x, y)).augmentation == Augmentation()


def test_several_values_are_predicted_at_once() -> None:
    x, y = ramps(24)
    both = np.stack([y, -y], axis=1)
    assert S4Regressor(**QUICK, ensemble=2).fit(x, both).predict(x).shape == (24, 2)
    assert S4Regressor(**QUICK).fit(x, y[:, None]).predict(x).shape == (24, 1)


def test_values_that_are_no_numbers_are_refused() -> None:
    x, y = ramps(8)
    with pytest.raises(ValueError, match="y holds 'high' at row 0"):
        S4Regressor(**QUICK).fit(x, ["high"] * 8)
    with pytest.raises(ValueError, match=r"y holds nothing .* at row 0"):
        S4Regressor(**QUICK).fit(x, np.where(y > 1000, np.nan, y))
