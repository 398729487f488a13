"""S4Classifier: shapes, labels, weights, seeds, rates, errors, and what scikit-learn builds from it."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from small import QUICK, waves

from torchs4 import LSTMConfig, S4BlockConfig, SequenceModelConfig
from torchs4.data.augmentation import Augmentation
from torchs4.estimators import S4Classifier, S4Forecaster, S4Regressor

if TYPE_CHECKING:
    from pathlib import Path

FRAME = pandas.DataFrame({"a": [0.0, 1.0], "b": [2.0, 3.0], "c": [4.0, 5.0]})


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


def test_twice_as_many_samples_are_read_at_half_the_rate(fitted: S4Classifier) -> None:
    x, y = waves(length=80, seed=1)
    assert (fitted.predict(x, rate=0.5) == y).mean() > 0.9
    # As if it were twice as long, the fast wave looks slow.
    assert not np.allclose(fitted.predict_proba(x[:, None]), fitted.predict_proba(x, rate=0.5), atol=0.01)
    assert fitted.members_[0].config.sample_rate == 40


def test_channels_come_before_positions_and_lengths_may_differ() -> None:
    x, y = waves(24)
    pairs = np.stack([x, -x], axis=1)
    whole = S4Classifier(**QUICK).fit(pairs, y)
    assert whole.n_channels_ == 2
    cut = [one[:, : 20 + row % 20] for row, one in enumerate(pairs)]
    several = S4Classifier(**QUICK).fit(cut, y)
    # Alone, each gets what it got among others.
    each = np.concatenate([several.predict_proba(one[None]) for one in cut])
    assert np.allclose(several.predict_proba(cut), each, atol=1e-4)
    flat = [one[0] for one in cut]
    assert S4Classifier(**QUICK).fit(flat, y).n_channels_ == 1


@pytest.mark.parametrize(
    "labels",
    [[3, 7], ["a", "b"], [True, False], [1.0, 2.0], [(0, 1), (1, 0)], [1, "1"]],
    ids=["whole", "text", "bool", "float", "pairs", "mixed"],
)
def test_any_label_comes_back_as_it_was(labels: list[Any]) -> None:
    x, y = waves(16)
    given = [labels[int(one == "fast")] for one in y]
    predicted = S4Classifier(**{**QUICK, "epochs": 1}).fit(x, given).predict(x)
    assert set(predicted.tolist()) <= set(labels)
    assert {type(label) for label in predicted.tolist()} <= {type(label) for label in labels}


def test_texts_are_read_character_by_character() -> None:
    texts = ["aab", "abab", "ccd", "cdcd"] * 6
    fitted = S4Classifier(**{**QUICK, "epochs": 30}).fit(texts, ["x", "x", "y", "y"] * 6)
    assert fitted.predict(["aba", "dcd"]).tolist() == ["x", "y"]


def test_the_same_seed_gives_the_same_model_and_touches_no_other_random_number() -> None:
    x, y = waves(24)
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    options = {**QUICK, "dropout": 0.3, "augment": True}
    one, other = (S4Classifier(**options).fit(x, y).predict_proba(x) for _ in range(2))
    assert torch.equal(torch.rand(3), expected)
    assert np.array_equal(one, other)
    third = S4Classifier(**{**options, "random_state": 1}).fit(x, y).predict_proba(x)
    assert not np.array_equal(one, third)


def test_weights_move_the_decision() -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(60, 5))
    y = (np.arange(60) < 6).astype(int)
    options = {**QUICK, "epochs": 10}
    plain = S4Classifier(**options).fit(x, y).predict_proba(x)[:, 1].mean()
    balanced = S4Classifier(class_weight="balanced", **options).fit(x, y).predict_proba(x)[:, 1].mean()
    chosen = S4Classifier(class_weight={0: 1, 1: 100}, **options).fit(x, y).predict_proba(x)[:, 1].mean()
    assert plain < balanced < chosen


def test_an_ensemble_averages_its_members() -> None:
    x, y = waves(24)
    fitted = S4Classifier(ensemble=2, kernels=False, **QUICK).fit(x, y)
    first, second = (torch.tensor(scores).softmax(-1).numpy() for scores in fitted._outputs(x, 1.0))
    assert not np.allclose(first, second)
    assert np.allclose(fitted.predict_proba(x), (first + second) / 2)
    stream = fitted.stream()
    stream.push(x[0][:, None])
    assert stream.probabilities()["fast"] == pytest.approx(fitted.predict_proba(x)[0, 0], abs=1e-3)
    assert stream.prediction.exp().tolist() == pytest.approx(list(stream.probabilities().values()), abs=1e-5)


def test_a_stream_ends_where_the_whole_sequence_does(fitted: S4Classifier) -> None:
    x, _ = waves(4, seed=2)
    stream = fitted.stream()
    for part in np.split(x[0][:, None], [3, 20]):
        stream.push(part)
    assert stream.probabilities()["fast"] == pytest.approx(fitted.predict_proba(x)[0, 0], abs=1e-3)


def test_an_export_predicts_the_same_without_pytorch(fitted: S4Classifier, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    folder = fitted.export(tmp_path / "graphs", chunk=40)
    x, _ = waves(3, seed=2)
    # The network, and the kernels.
    for number, expected in enumerate(fitted._outputs(x, 1.0), 1):
        session = onnxruntime.InferenceSession(folder / f"member-{number}" / "chunk.onnx")
        start = {
            given.name: np.zeros(
                [3, *given.shape[1:]], {"tensor(float)": "f4", "tensor(double)": "f8"}.get(given.type, "i8")
            )
            for given in session.get_inputs()[1:]
        }
        (scores,) = session.run(["prediction"], {"samples": x[:, :, None].astype(np.float32), **start})
        assert np.allclose(scores, expected, atol=1e-3)


def test_a_single_graph_takes_whole_sequences(fitted: S4Classifier, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    x, y = waves(5, seed=2)
    several = S4Classifier(**QUICK, ensemble=2).fit(*waves(24))
    for classifier in (fitted, several):
        file = classifier.export(tmp_path / "model.onnx")
        session = onnxruntime.InferenceSession(file)
        notes = session.get_modelmeta().custom_metadata_map
        assert json.loads(notes["classes"]) == classifier.classes_.tolist()
        for length in (40, 23):
            samples = x[:, :length, None].astype(np.float32)
            (probabilities,) = session.run(["probabilities"], {"samples": samples})
            assert np.allclose(probabilities, classifier.predict_proba(x[:, None, :length]), atol=1e-4)
    with pytest.raises(ValueError, match="bidirectional"):
        S4Classifier(**QUICK, bidirectional=True).fit(x, y).export(tmp_path / "other.onnx")


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (FRAME.replace(3.0, np.nan), "X holds NaN at row 1, column 'b'"),
        (FRAME.replace(3.0, np.inf), "X holds inf at row 1, column 'b'"),
        (FRAME.astype("Int64").replace(3, pandas.NA), "X holds NaN at row 1, column 'b'"),
        (FRAME.assign(city=["x", "y"]), r"the text 'x' at row 0, column 'city'.*X.drop\(columns='city'\)"),
        (FRAME.replace(3.0, np.nan).to_numpy(), "X holds NaN at example 1, position 1"),
        (np.full((2, 3, 4), np.nan), "example 0, channel 0, position 0"),
    ],
    ids=["gap", "infinite", "NA", "text", "array", "channels"],
)
def test_what_is_no_number_is_named_by_its_place(x: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        S4Classifier(**QUICK).fit(x, ["p", "q"])


@pytest.mark.parametrize(
    ("kind", "y", "message"),
    [
        (S4Classifier, pandas.Series(["p", None]), "y holds nothing .* at row 1"),
        (S4Classifier, [1.0, np.nan], "y holds nothing .* at row 1"),
        (S4Regressor, [1.0, np.nan], "y holds nothing .* at row 1"),
        (S4Regressor, [1.0, None], "y holds nothing .* at row 1"),
        (S4Regressor, ["1.5", "dear"], "y holds 'dear' at row 1.*S4Classifier"),
    ],
)
def test_what_is_no_answer_is_named_by_its_row(kind: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**QUICK).fit(FRAME, y)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": -1}, "epochs is -1; it must be at least 1"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast'; expected a positive number"),
        ({"learning_rate": -1}, "learning_rate is -1; expected a positive number"),
    ],
)
def test_options_that_mean_nothing_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        S4Classifier(**{**QUICK, **options}).fit(FRAME, ["p", "q"])


def test_more_channels_than_positions_are_asked_about() -> None:
    x, y = waves(8, length=12)
    with pytest.warns(UserWarning, match=r"12 channels of length 1.*X.transpose\(0, 2, 1\)"):
        S4Classifier(**{**QUICK, "epochs": 1}).fit(x[:, :, None], y)


def test_a_forecaster_is_not_read_from_a_classifiers_folder(fitted: S4Classifier, tmp_path: Path) -> None:
    fitted.save(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"describes a S4Classifier.*Call S4Classifier.load instead"):
        S4Forecaster.load(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"holds a S4Classifier, not a S4Regressor"):
        S4Regressor.load(tmp_path / "saved")
    for kind in (S4Classifier, S4Forecaster):
        with pytest.raises(ValueError, match=r"There is no folder .*nothere"):
            kind.load(tmp_path / "nothere")


def test_nothing_points_to_a_folder_that_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = waves(8, length=12)
    S4Classifier(**{**QUICK, "epochs": 1, "verbose": 2}).fit(x, y)
    shown = capsys.readouterr().out
    assert "On the training examples themselves: accuracy" in shown
    assert "Everything is in" not in shown


def test_scikit_learn_builds_with_it() -> None:
    x, y = waves(24)
    options = {**QUICK, "epochs": 2}
    copy = clone(S4Classifier(model=SequenceModelConfig(features=4), **options))
    assert copy.get_params()["model"] == SequenceModelConfig(features=4)
    assert len(cross_val_score(S4Classifier(**options), x, y, cv=2)) == 2
    assert len(cross_val_score(S4Classifier(**options), x[:, None], y, cv=2)) == 2
    pipeline = make_pipeline(StandardScaler(), S4Classifier(**options)).fit(x, y)
    assert pipeline.predict(x).shape == (24,)
    search = GridSearchCV(S4Classifier(**options), {"features": [4, 8]}, cv=2).fit(x, y)
    assert search.best_params_["features"] in (4, 8)
    restored = pickle.loads(pickle.dumps(pipeline[-1]))
    assert np.array_equal(restored.predict(x), pipeline[-1].predict(x))


def test_another_network_may_be_given() -> None:
    x, y = waves(16)
    network = SequenceModelConfig(features=4, num_layers=1, block=S4BlockConfig(layer=LSTMConfig()))
    fitted = S4Classifier(model=network, epochs=1, verbose=0).fit(x, y)
    assert isinstance(fitted.members_[0].config.block.layer, LSTMConfig)


def test_time_ends_a_training_and_its_learning_rate() -> None:
    x, y = waves(48)
    options = {**QUICK, "epochs": 100_000}
    fitted = S4Classifier(max_minutes=0.02, ensemble=2, **options).fit(x, y)
    # So many epochs would take an hour; how much a second teaches depends on the machine.
    assert fitted.predict(x).shape == (48,)


def test_nothing_is_left_behind_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = waves(16)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    S4Classifier(**QUICK).fit(x, y)
    assert list(tmp_path.rglob("*")) == [scratch]
    kept = S4Classifier(output=tmp_path / "kept", **QUICK).fit(x, y)
    assert (tmp_path / "kept" / "training-1" / "curves.png").is_file()
    # It is complete, so fitting again finds the same model.
    again = S4Classifier(output=tmp_path / "kept", **QUICK).fit(x, y)
    assert np.array_equal(again.predict_proba(x), kept.predict_proba(x))
    with pytest.raises(ValueError, match="begun with other arguments"):
        S4Classifier(output=tmp_path / "kept", **QUICK).fit(-x, y)


def test_lengths_alone_may_tell_classes_apart() -> None:
    x = [np.ones(5 + 10 * (row % 2)) for row in range(16)]
    fitted = S4Classifier(**QUICK).fit(x, np.arange(16) % 2)
    assert fitted.predict(x[:2]).shape == (2,)


def test_own_validation_examples_choose_the_epoch() -> None:
    x, y = waves(24)
    fitted = S4Classifier(**QUICK).fit(x, y, validation=waves(8, seed=3))
    assert fitted.predict(x).shape == (24,)
    with pytest.raises(ValueError, match="'odd', which no training example has"):
        S4Classifier(**QUICK).fit(x, y, validation=(x[:2], ["odd", "slow"]))
    assert S4Classifier(validation_fraction=None, **QUICK).fit(x, y).predict(x).shape == (24,)


def test_all_features_of_a_small_set_are_shown_changed() -> None:
    x, y = waves(16)
    fitted = S4Classifier(augment=Augmentation(noise=0.1, gap=0.2), **QUICK).fit(x, y)
    assert fitted.predict(x).shape == (16,)


X, Y = waves(16)


@pytest.mark.parametrize(
    ("x", "y", "options", "message"),
    [
        (X, ["same"] * 16, {}, "All 16 examples have the class 'same'.*at least two"),
        (X, Y[:-1], {}, "inconsistent numbers of samples"),
        (X, np.linspace(0, 1, 16), {}, "Unknown label type"),
        (np.where(X > 1, np.nan, X), Y, {}, "X holds NaN at example 0, position 4"),
        (X[:, None, None], Y, {}, r"shape \(16, 1, 1, 40\)"),
        ([X[0], X[1][None], *X[2:, None].repeat(2, 1)], Y, {}, "Example 2 has 2 channels"),
        ([X[0], X[1][:0], *X[2:]], Y, {}, "Example 1 is empty"),
        (np.full((16, 2, 40), 3.0), Y, {}, "X is always 3, 3, at every position of all 16 sequences"),
        (["text", *X[1:]], Y, {}, "could not convert|setting an array|Expected 2D|no number"),
        (X, Y, {"class_weight": {"slow": 1, "odd": 2}}, "names the class 'odd', which no example has"),
        (X, Y, {"augment": "much"}, "augment is 'much'"),
        (X, Y, {"ensemble": 0}, "ensemble is 0"),
        (X, Y, {"model": "large"}, "model is"),
        (X, Y, {"validation_fraction": 1.5}, "validation"),
        (X, Y, {"max_minutes": -1}, "max_minutes"),
    ],
)
def test_what_cannot_be_learned_from_is_refused_in_words(
    x: Any, y: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        S4Classifier(**QUICK, **options).fit(x, y)


def test_new_data_must_look_like_the_old(fitted: S4Classifier) -> None:
    with pytest.raises(ValueError, match="X has 3 channels, but this S4Classifier was fit on 1"):
        fitted.predict(np.zeros((2, 3, 40)))
    with pytest.raises(ValueError, match=r"X has 30 features.*expecting 40.*as a list.*rate="):
        fitted.predict(np.zeros((2, 30)))
    assert fitted.predict(np.zeros((2, 1, 30))).shape == (2,)
