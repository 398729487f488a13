"""What each task counts as a mistake and how it tells how good a model is, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from torchs4.description import Batch, Scaling
from torchs4.tasks import ACCURACY, MSE, Classification, NextToken, PositionRegression, Regression, Task

LENGTHS = torch.tensor([3, 1])
ASKED = torch.tensor([[False, True, True], [True, False, False]])


def means(task: Task, prediction: torch.Tensor, batch: Batch) -> list[float]:
    return (task.sums(prediction, batch) / task.count(batch)).tolist()


def test_classification_is_cross_entropy_and_the_share_of_right_answers() -> None:
    task = Classification(("no", "yes"))
    logits = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    batch = Batch(torch.zeros(3, 4, 1), torch.tensor([1, 0, 0]))
    loss, right = means(task, logits, batch)
    expected = (math.log(2) + math.log(1 + math.exp(-2)) + math.log(1 + math.exp(3))) / 3
    assert loss == pytest.approx(expected, rel=1e-6)
    assert task.scores([loss, right]) == {"accuracy": pytest.approx(1 / 3)}
    assert (task.output.size, task.output.names, task.output.per_position) == (2, ("no", "yes"), False)


def test_weights_count_in_the_loss_and_in_the_measure_that_decides() -> None:
    task = Classification(("no", "yes"), weights=(3.0, 1.0))
    logits = torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 3.0]])
    batch = Batch(torch.zeros(3, 4, 1), torch.tensor([1, 0, 0]))
    found = means(task, logits, batch)
    expected = (math.log(2) + 3 * math.log(1 + math.exp(-2)) + 3 * math.log(1 + math.exp(3))) / 3
    assert found[0] == pytest.approx(expected, rel=1e-6)
    assert task.metrics[0].name == "weighted_accuracy"
    assert task.scores(found) == {
        "weighted_accuracy": pytest.approx(3 / 7),
        "accuracy": pytest.approx(1 / 3),
    }
    with pytest.raises(ValueError, match="1 weights for 2 classes"):
        Classification(("no", "yes"), weights=(1.0,))


def test_regression_measures_in_units_of_the_scale() -> None:
    task = Regression(("height", "weight"), Scaling((0.0, 50.0), (2.0, 10.0)))
    batch = Batch(torch.zeros(2, 3, 1), torch.tensor([[1.0, 60.0], [3.0, 40.0]]))
    prediction = torch.tensor([[3.0, 60.0], [3.0, 70.0]])
    # Errors are 1 and 0, 0 and 3 deviations.
    assert task.scores(means(task, prediction, batch)) == {
        "mse": pytest.approx(10 / 4),
        "mae": pytest.approx(4 / 4),
    }
    assert task.count(batch) == 4


def test_only_positions_that_are_asked_about_count() -> None:
    task = PositionRegression(("load",))
    y = torch.tensor([[[1.0], [2.0], [3.0]], [[4.0], [5.0], [6.0]]])
    prediction = y + torch.tensor([[[100.0], [1.0], [2.0]], [[3.0], [100.0], [100.0]]])
    batch = Batch(torch.zeros(2, 3, 1), y, asked=ASKED)
    assert task.count(batch) == 3
    assert task.scores(means(task, prediction, batch)) == {
        "mse": pytest.approx(14 / 3),
        "mae": pytest.approx(6 / 3),
    }
    # Without a mask, all real positions are asked about.
    real = Batch(torch.zeros(2, 3, 1), y, LENGTHS)
    assert task.count(real) == 4
    assert means(task, prediction, real)[1] == pytest.approx((100 + 1 + 2 + 3) / 4)


def test_next_token_is_measured_in_bits_and_perplexity() -> None:
    task = NextToken(4, unit="character")
    batch = Batch(torch.zeros(2, 3, dtype=torch.int64), torch.tensor([[1, 2, 3], [0, 0, 0]]), asked=ASKED)
    values = means(task, torch.zeros(2, 3, 4), batch)
    assert task.count(batch) == 3
    assert task.scores(values) == {"bits": pytest.approx(2.0), "perplexity": pytest.approx(4.0)}
    assert task.metrics[0].title == "bits per character"
    assert task.output.causal
    assert task.scores([1e6])["perplexity"] < math.inf


TASKS: dict[str, tuple[Task, Any]] = {
    "classification": (Classification(("a", "b", "c")), lambda n: torch.arange(n) % 3),
    "regression": (Regression(("a", "b", "c"), Scaling((0, 0, 0), (1, 2, 3))), lambda n: torch.randn(n, 3)),
    "positions": (PositionRegression(("a", "b", "c")), lambda n: torch.randn(n, 5, 3)),
    "tokens": (NextToken(3), lambda n: torch.arange(5 * n).view(n, 5) % 3),
}


@pytest.mark.parametrize("name", list(TASKS))
def test_sums_and_counts_of_parts_add_up(name: str) -> None:
    task, answers = TASKS[name]
    torch.manual_seed(0)
    x = torch.zeros(6, 5, 1)
    lengths = torch.tensor([5, 1, 2, 3, 4, 5]) if task.output.per_position else None
    batch = Batch(x, answers(6), lengths)
    prediction = torch.randn(6, 5, 3) if task.output.per_position else torch.randn(6, 3)
    parts = [batch.map(lambda tensor, part=part: tensor[part]) for part in (slice(0, 2), slice(2, 6))]
    sums = [task.sums(p, part) for p, part in zip((prediction[:2], prediction[2:]), parts, strict=True)]
    torch.testing.assert_close(sums[0] + sums[1], task.sums(prediction, batch))
    assert sum(map(task.count, parts)) == task.count(batch)
    assert len(sums[0]) == task.sum_count
    assert set(task.scores(sums[0].tolist())) == {metric.name for metric in task.metrics}


@pytest.mark.parametrize("name", list(TASKS))
def test_the_loss_teaches_a_perfect_answer(name: str) -> None:
    task, answers = TASKS[name]
    torch.manual_seed(0)
    batch = Batch(torch.zeros(6, 5, 1), answers(6))
    prediction = torch.zeros(6, 5, 3) if task.output.per_position else torch.zeros(6, 3)
    prediction.requires_grad_()
    optimizer = torch.optim.Adam([prediction], lr=0.3)
    before = means(task, prediction, batch)[0]
    for _ in range(200):
        optimizer.zero_grad()
        (task.sums(prediction, batch)[0] / task.count(batch)).backward()
        optimizer.step()
    assert means(task, prediction, batch)[0] < 0.05 * before


def test_metrics_know_which_way_is_better_and_how_to_say_it() -> None:
    assert ACCURACY.is_better(0.9, 0.8)
    assert not ACCURACY.is_better(0.8, 0.8)
    assert MSE.is_better(0.1, 0.2)
    assert MSE.is_better(0.1, None)
    assert MSE.is_better(0.1, math.nan)
    assert not MSE.is_better(math.nan, None)
    assert ACCURACY.tell(0.98765) == "accuracy 98.77 %"
    assert ACCURACY.label == "accuracy in %"
    assert MSE.tell(0.25) == "MSE 0.2500"


def test_another_rate_makes_no_sense_for_tokens_and_for_positions() -> None:
    signal = Batch(torch.zeros(2, 6, 1), torch.zeros(2, dtype=torch.int64), torch.tensor([6, 3]))
    slower = Classification(("a", "b")).at_rate(signal, 2.0)
    assert slower.x.shape == (2, 3, 1)
    assert slower.lengths is not None
    assert slower.lengths.tolist() == [3, 2]
    with pytest.raises(ValueError, match="not for tokens"):
        Classification(("a", "b")).at_rate(signal._replace(x=signal.x.long()), 2.0)
    with pytest.raises(ValueError, match="one answer per signal"):
        PositionRegression(("a",)).at_rate(signal, 2.0)
