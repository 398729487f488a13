"""Learning rates over a run, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from torchs4.tasks import ACCURACY
from torchs4.training.config import OptimizerOptions
from torchs4.training.schedules import Schedule


def schedule(kind: str, steps: int = 100, per_epoch: int = 10, **options: Any) -> Schedule:
    return Schedule(OptimizerOptions(schedule=kind, **options), ACCURACY, steps, per_epoch)  # type: ignore[arg-type]


def test_constant_stays() -> None:
    assert [schedule("constant").factor(step) for step in (0, 50, 99)] == [1.0, 1.0, 1.0]


def test_cosine_falls_from_one_to_zero() -> None:
    factors = [schedule("cosine").factor(step) for step in (0, 25, 50, 75, 100, 130)]
    expected = [1.0, 0.5 + math.sqrt(0.125), 0.5, 0.5 - math.sqrt(0.125), 0.0, 0.0]
    assert factors == pytest.approx(expected, abs=1e-12)


def test_cosine_has_fallen_when_the_time_is_spent() -> None:
    made = schedule("cosine", steps=1000)
    assert made.factor(10, 0.5) == pytest.approx(0.5)
    assert made.factor(10, 1.0) == pytest.approx(0.0)
    assert made.factor(500, 0.1) == made.factor(500)


def test_cosine_starts_after_the_warm_up() -> None:
    chosen = schedule("cosine", warmup_steps=20)
    assert chosen.factor(20) == 1.0
    assert chosen.factor(60) == pytest.approx(0.5)
    assert chosen.factor(100) == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("kind", ["constant", "cosine", "plateau", "steps"])
def test_every_kind_warms_up_linearly(kind: str) -> None:
    chosen = schedule(kind, warmup_steps=4)
    assert [chosen.factor(step) for step in range(5)] == [0.25, 0.5, 0.75, 1.0, 1.0]


def test_a_warm_up_takes_at_most_a_fifth_of_the_run() -> None:
    short = schedule("cosine", steps=40, warmup_steps=500)
    assert [short.factor(step) for step in (0, 3, 7)] == [1 / 8, 4 / 8, 1.0]
    assert schedule("cosine", steps=4, warmup_steps=4).factor(0) == 1.0


def test_steps_multiply_every_patience_epochs() -> None:
    chosen = schedule("steps", decay=0.5, patience=2)
    assert [chosen.factor(step) for step in (0, 19, 20, 39, 40, 99)] == [1, 1, 0.5, 0.5, 0.25, 0.0625]


def test_a_plateau_multiplies_after_more_than_patience_epochs_without_improvement() -> None:
    chosen = schedule("plateau", decay=0.2, patience=2)
    factors = []
    for accuracy in (0.5, 0.6, 0.6, 0.5, 0.59, 0.7, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1):
        chosen.after_epoch(accuracy)
        factors.append(chosen.factor(50))
    assert factors == pytest.approx([1, 1, 1, 1, 0.2, 0.2, 0.2, 0.2, 0.04, 0.04, 0.04, 0.008])


def test_only_a_plateau_looks_at_accuracies() -> None:
    chosen = schedule("constant", patience=1)
    for _ in range(5):
        chosen.after_epoch(0.0)
    assert chosen.factor(50) == 1.0
