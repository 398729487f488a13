"""Kernels that are not trained, with a head that is solved for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from small import QUICK, waves

from torchs4 import SequenceModel
from torchs4.data import from_arrays
from torchs4.estimators import S4Classifier, S4Regressor
from torchs4.estimators.kernels import fit_kernels, solve_ridge
from torchs4.estimators.sharpness import best_factor, sharpen
from torchs4.inference import Stream

if TYPE_CHECKING:
    from pathlib import Path

ONLY: dict[str, Any] = {"kernels": "only", "random_state": 0, "verbose": 0}


@pytest.mark.parametrize("shape", [(20, 50), (60, 7)], ids=["more columns", "more rows"])
@pytest.mark.parametrize("weighted", [False, True])
def test_what_is_left_out_is_what_a_fit_without_it_predicts(shape: tuple[int, int], weighted: bool) -> None:
    generator = np.random.default_rng(0)
    x = generator.normal(size=shape)
    y = x[:, :2] + generator.normal(size=(shape[0], 2))
    importance = generator.uniform(0.5, 2, shape[0]) if weighted else np.ones(shape[0])
    solved = solve_ridge(x, y, importance)
    mean = np.average(x, axis=0, weights=importance)
    scaled = (x - mean) / np.sqrt(np.average((x - mean) ** 2, axis=0, weights=importance))
    # The strength is found from what it does: the weights of an example-wise ridge must be the same.
    strengths = np.logspace(-3, 5, 17)
    fits = [Ridge(alpha=a).fit(scaled, y, sample_weight=importance) for a in strengths]
    errors = [np.abs(fit.predict(scaled) - (x @ solved.weights + solved.bias)).max() for fit in fits]
    chosen = strengths[int(np.argmin(errors))]
    assert min(errors) < 1e-9
    for row in (0, 7, 19):
        others = np.arange(shape[0]) != row
        # The mean is found again without the example, as it is inside a ridge regression with an intercept.
        fit = Ridge(alpha=chosen).fit(scaled[others], y[others], sample_weight=importance[others])
        np.testing.assert_allclose(solved.left_out[row], fit.predict(scaled[[row]])[0], atol=1e-8)


def test_a_column_that_never_changes_counts_for_nothing() -> None:
    x = np.random.default_rng(0).normal(size=(30, 3))
    x[:, 1] = 5.0
    solved = solve_ridge(x, x[:, :1], np.ones(30))
    assert solved.weights[1] == 0
    assert np.isfinite(solved.left_out).all()


def test_kernels_answer_to_changes_and_not_to_a_level() -> None:
    x, y = waves(12, length=60)
    data = from_arrays(x, (y == "fast").astype(int), task="classification", validation=0.2)
    solved = fit_kernels(data, seed=0)
    layer: Any = solved.model.stack.blocks[0].layer
    with torch.no_grad():
        level = layer(torch.ones(1, 2000, layer.features))[0].abs()
    # Those that remember longest are balanced for four times the longest sequence.
    assert level[-1].max() < 0.1 * level[0].max()
    assert level[-1].mean() < 0.02 * level[0].mean()


def test_signals_of_any_strength_and_level_are_told_apart() -> None:
    x, y = waves(60)
    other, answers = waves(60, seed=1)
    strength = 10.0 ** np.random.default_rng(0).uniform(-4, 2, (60, 1))
    assert S4Classifier(**ONLY).fit(strength * x, y).score(strength * other, answers) > 0.9
    assert S4Classifier(**ONLY).fit(x + 1e4, y).score(other + 1e4, answers) > 0.9


def test_kernels_alone_tell_classes_in_a_moment() -> None:
    fitted = S4Classifier(**ONLY).fit(*waves(40))
    x, y = waves(40, seed=1)
    assert len(fitted.members_) == 1
    assert fitted.score(x, y) == 1
    again = S4Classifier(**ONLY).fit(*waves(40))
    assert np.array_equal(fitted.predict_proba(x), again.predict_proba(x))
    stream = fitted.stream()
    for part in np.split(x[0][:, None], [3, 20]):
        stream.push(part)
    assert stream.probabilities()["fast"] == pytest.approx(fitted.predict_proba(x)[0, 0], abs=1e-3)


def test_probabilities_of_noise_are_not_sure_of_anything() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(60, 30)), np.arange(60) % 2
    probabilities = S4Classifier(**ONLY).fit(x, y).predict_proba(generator.normal(size=(60, 30)))
    assert np.abs(probabilities - 0.5).mean() < 0.25


def test_kernels_predict_values_in_their_units() -> None:
    generator = np.random.default_rng(0)
    frequency = generator.uniform(1, 6, 80)
    x = np.sin(2 * np.pi * frequency[:, None] * np.linspace(0, 1, 60))
    fitted = S4Regressor(**ONLY).fit(x[:60], 1000 + 100 * frequency[:60])
    assert fitted.score(x[60:], 1000 + 100 * frequency[60:]) > 0.95


def test_kernels_join_a_network_where_examples_are_few() -> None:
    x, y = waves(24)
    assert len(S4Classifier(**QUICK).fit(x, y).members_) == 2
    assert len(S4Classifier(**QUICK, kernels=False).fit(x, y).members_) == 1
    assert len(S4Regressor(**QUICK).fit(x, x[:, 0]).members_) == 2


def test_the_networks_are_the_same_with_kernels_or_without() -> None:
    x, y = waves(24)
    one, other = (S4Classifier(**QUICK, kernels=kernels).fit(x, y) for kernels in (True, False))
    assert np.array_equal(one._outputs(x, 1.0)[0], other._outputs(x, 1.0)[0])


def test_scores_are_as_sharp_as_they_may_be() -> None:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(4000, 3, generator=generator)
    y = torch.multinomial(scores.softmax(-1), 1, generator=generator)[:, 0]
    assert best_factor(scores, y) == pytest.approx(1, rel=0.3)
    assert best_factor(scores / 10, y) == pytest.approx(10, rel=0.3)
    assert best_factor(scores, y[torch.randperm(len(y), generator=generator)]) < 0.1
    few = torch.eye(3)[[0, 1, 2]]
    assert best_factor(few, torch.arange(3)) < 10


def test_a_network_is_as_sure_as_validation_says_or_half_as_sure_without_any() -> None:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(80, 20, 1)).astype(np.float32), np.arange(80) % 2
    data = from_arrays(x, y, task="classification", validation=0.5)
    model = SequenceModel(output_size=2, features=8, num_layers=1).eval()
    with torch.no_grad():
        model.head.weight *= 20
        before = model.head.weight.clone()
        sharpen(model, replace(data, learns_all=True))
        assert torch.equal(model.head.weight, before / 2)
        sharpen(model, data)
        assert model(torch.from_numpy(x)).softmax(-1).max(-1).values.mean() < 0.8


def test_kernels_take_no_part_at_another_rate(tmp_path: Path) -> None:
    x, y = waves(24, length=80)
    fitted, network = (S4Classifier(**QUICK, kernels=kernels).fit(x, y) for kernels in (True, False))
    fitted.save(tmp_path)
    for one in (fitted, S4Classifier.load(tmp_path)):
        assert np.array_equal(one.predict_proba(x[:, ::2], rate=2), network.predict_proba(x[:, ::2], rate=2))
        assert isinstance(one.stream(rate=2), Stream)
    with pytest.raises(ValueError, match="rate is 2, but kernels alone read no other rate"):
        S4Classifier(**ONLY).fit(x, y).predict(x[:, ::2], rate=2)


def test_what_is_wrong_is_said_before_the_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(S4Classifier, "_fit_member", None)
    with pytest.raises(ValueError, match="kernels is 'onyl'"):
        S4Classifier(**QUICK, kernels="onyl").fit(*waves(24))


def test_texts_and_unknown_words_are_refused() -> None:
    with pytest.raises(ValueError, match="X holds texts"):
        S4Classifier(**ONLY).fit(["ab", "cd"] * 4, [0, 1] * 4)
    with pytest.raises(ValueError, match=r"20,001 examples to learn from: .* at most 20,000"):
        S4Classifier(**ONLY, validation_fraction=None).fit(np.random.rand(20_001, 2), np.arange(20_001) % 2)
    with pytest.raises(ValueError, match="kernels is 'many'; expected"):
        S4Classifier(**QUICK, kernels="many").fit(*waves(24))
