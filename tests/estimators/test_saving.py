"""Estimators are saved as folders that hold text and weights, and come back as they were."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from small import QUICK, waves

from torchs4 import SequenceModelConfig
from torchs4.estimators import S4Classifier, S4Regressor, load_estimator

if TYPE_CHECKING:
    from pathlib import Path

ONCE = {**QUICK, "epochs": 1}


def test_a_classifier_comes_back_as_it_was(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    x, y = waves(16)
    frame = pandas.DataFrame(x, columns=[f"t{place}" for place in range(40)])
    network = SequenceModelConfig(features=4, num_layers=1)
    fitted = S4Classifier(**ONCE, ensemble=2, model=network, class_weight={"slow": 2, "fast": 1}).fit(
        frame, y
    )
    fitted.save(tmp_path / "saved")
    assert {path.suffix for path in (tmp_path / "saved").rglob("*") if path.is_file()} == {
        ".json",
        ".safetensors",
    }
    loaded = S4Classifier.load(tmp_path / "saved")
    assert np.array_equal(loaded.predict_proba(frame), fitted.predict_proba(frame))
    assert loaded.predict(frame).dtype == fitted.predict(frame).dtype
    assert loaded.get_params() == fitted.get_params()
    assert loaded.n_features_in_ == 40
    with pytest.raises(ValueError, match="feature names"):
        loaded.predict(frame.rename(columns={"t0": "other"}))


def test_a_regressor_comes_back_as_it_was(tmp_path: Path) -> None:
    x, _ = waves(16)
    fitted = S4Regressor(**ONCE).fit(x, x.mean(1))
    fitted.save(tmp_path / "saved")
    loaded = load_estimator(tmp_path / "saved")
    assert isinstance(loaded, S4Regressor)
    assert np.array_equal(loaded.predict(x), fitted.predict(x))
    with pytest.raises(ValueError, match=r"holds a S4Regressor, not a S4Classifier"):
        S4Classifier.load(tmp_path / "saved")


def test_labels_that_a_file_cannot_hold_are_refused(tmp_path: Path) -> None:
    x, y = waves(16)
    fitted = S4Classifier(**ONCE).fit(x, [(0, one) for one in y.tolist()])
    with pytest.raises(ValueError, match="is a tuple, which a file cannot hold"):
        fitted.save(tmp_path / "saved")


def test_damaged_and_strange_folders_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no estimator\.json"):
        load_estimator(tmp_path)
    file = tmp_path / "estimator.json"
    good = {"format": 1, "estimator": "S4Classifier", "members": 1, "parameters": {}, "fitted": {}}
    for content, message in [
        ("{", "is damaged"),
        ("[]", "is damaged"),
        (json.dumps({**good, "format": 9}), "has format 9"),
        (json.dumps({**good, "estimator": "os.system"}), "describes a 'os.system'"),
        (json.dumps({**good, "estimator": [[]]}), "describes a"),
        (json.dumps(good), "is damaged"),
        (json.dumps({**good, "members": 0.5}), r"members is 0\.5"),
        (json.dumps({**good, "members": 0}), "members is 0"),
        (json.dumps({**good, "fitted": {"n_channels_": "1"}}), "n_channels_ is '1', expected int"),
        (json.dumps({**good, "parameters": {"model": {"kind": "x"}}}), "names 'x'"),
        (json.dumps({**good, "parameters": {"depth": 3}}), "is damaged"),
    ]:
        file.write_text(content)
        with pytest.raises(ValueError, match=message):
            load_estimator(tmp_path)
