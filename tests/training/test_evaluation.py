"""Scores, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from torchs4.data.sequences import Split
from torchs4.description import Batch
from torchs4.tasks import Classification
from torchs4.training.evaluation import evaluate

# Example i has the logits (FIRST[i], 0): right when the label is 0 and the number positive.
FIRST = torch.tensor([2.0, -1.0, 0.5, 3.0, -2.0, 1.0, -0.5])
LABELS = torch.tensor([0, 0, 1, 0, 1, 1, 1])
TASK = Classification(("first", "second"))


class Signals(Split):
    """Each example is its number, repeated."""

    def __init__(self, lengths: bool = False, tokens: bool = False) -> None:
        self.tells_lengths = lengths
        self.tokens = tokens

    def __len__(self) -> int:
        return len(FIRST)

    def batch(self, rows: Any, generator: torch.Generator | None = None) -> Batch:
        assert generator is None, "evaluation must not augment"
        x = FIRST[rows][:, None, None].repeat(1, 6, 1) + torch.arange(6.0)[:, None]
        lengths = torch.full((len(rows),), 6) if self.tells_lengths else None
        return Batch(x.long() if self.tokens else x, LABELS[rows], lengths)


class FirstValue(nn.Module):
    """Classifies by the first sample, and remembers how it was called."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []

    def forward(self, x: Any, lengths: Any = None, rate: float = 1.0) -> Any:
        assert not self.training
        assert not torch.is_grad_enabled()
        self.calls.append((x[0].flatten().tolist(), lengths, rate))
        return torch.cat([x[:, 0], torch.zeros(len(x), 1)], dim=1)


def score(rows: list[int]) -> tuple[float, float]:
    losses = [
        math.log(1 + math.exp(-value if label == 0 else value))
        for value, label in zip(FIRST[rows].tolist(), LABELS[rows].tolist(), strict=True)
    ]
    right = [(value > 0) == (label == 0) for value, label in zip(FIRST[rows], LABELS[rows], strict=True)]
    return sum(losses) / len(rows), sum(map(bool, right)) / len(rows)


@pytest.mark.parametrize("batch_size", [1, 3, 7, 10])
def test_loss_and_accuracy_are_means_over_examples_however_they_are_batched(batch_size: int) -> None:
    model = FirstValue().train()
    measured = evaluate(model, Signals(), TASK, batch_size, accelerator=Accelerator(cpu=True))
    loss, accuracy = score(list(range(7)))
    assert measured.examples == 7
    assert measured.loss == pytest.approx(loss, rel=1e-6)
    assert measured.metrics["accuracy"] == pytest.approx(accuracy) == pytest.approx(4 / 7)
    assert model.training, "the mode must be as before"


def test_a_limit_measures_evenly_spread_examples() -> None:
    measured = evaluate(FirstValue(), Signals(), TASK, 2, accelerator=Accelerator(cpu=True), limit=3)
    loss, accuracy = score([0, 3, 6])
    assert measured.examples == 3
    assert measured.loss == pytest.approx(loss, rel=1e-6)
    assert measured.metrics["accuracy"] == pytest.approx(accuracy)


def test_rate_two_keeps_every_second_sample_and_tells_the_model() -> None:
    model = FirstValue()
    evaluate(model, Signals(), TASK, 7, accelerator=Accelerator(cpu=True), rate=2.0)
    ((samples, lengths, rate),) = model.calls
    assert samples == [2.0, 4.0, 6.0]
    assert lengths is None
    assert rate == 2.0


def test_another_rate_is_refused_for_tokens_and_for_parts_of_samples() -> None:
    with pytest.raises(ValueError, match="for signals, not for tokens"):
        evaluate(FirstValue(), Signals(tokens=True), TASK, 7, accelerator=Accelerator(cpu=True), rate=2.0)
    for rate in (1.5, 0.0, -2.0):
        with pytest.raises(ValueError, match=f"rate is {rate}; leaving out samples needs a whole number"):
            evaluate(FirstValue(), Signals(), TASK, 7, accelerator=Accelerator(cpu=True), rate=rate)


def test_lengths_shrink_with_the_samples() -> None:
    model = FirstValue()
    evaluate(model, Signals(lengths=True), TASK, 7, accelerator=Accelerator(cpu=True), rate=4.0)
    ((samples, lengths, _),) = model.calls
    assert samples == [2.0, 6.0]
    assert lengths.tolist() == [2] * 7


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    evaluate(
        FirstValue(),
        Signals(),
        TASK,
        3,
        accelerator=Accelerator(cpu=True),
        progress=lambda done, total: told.append((done, total)),
    )
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_an_error_leaves_the_model_in_its_mode() -> None:
    model = FirstValue().train()
    with pytest.raises(ValueError, match="not for tokens"):
        evaluate(model, Signals(tokens=True), TASK, 7, accelerator=Accelerator(cpu=True), rate=2.0)
    assert model.training
