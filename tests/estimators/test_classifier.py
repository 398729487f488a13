"""S4Classifier: shapes, labels, weights, seeds, rates, and what scikit-learn builds from it."""

from __future__ import annotations

import numpy as np
import pytest
from small import QUICK, waves

from torchs4.estimators import S4Classifier


@pytest.fixture(scope="module")
def fitted() -> S4Classifier:
    x, y = waves()
    return S4Classifier(**{**QUICK, "epochs": 40}, sample_rate=40).fit(x, y)


def test_unseen_waves_are_told_apart(fitted: S4Classifier) -> None:
    x, y = waves(seed=1)
    assert fitted.score(x, y) > 0.9
    assert fitted.classes_.tolist() == ["fast", "slow"]
    probabilities = fitted.predict_proba(x)
    assert probabilities.shape == (48, 2)
    assert np.allclose(probabilities.sum(1), 1)


def test_every_second_sample_is_enough_at_twice_the_rate(fitted: S4Classifier) -> None:
    x, y = waves(length=80, seed=1)
    assert fitted.score(waves(seed=1)[0], y) > 0.9
    # Twice as many samples in the same time.
    assert (fitted.predict(x, rate=0.5) == y).mean() > 0.9
    assert not np.allclose(fitted.predict_proba(x), fitted.predict_proba(x, rate=0.5), atol=0.01)
    assert fitted.members_[0].config.sample_rate == 40
