"""Forecasts as a task: only the horizon counts, and quantiles cost what they should."""

from __future__ import annotations

import pytest
import torch

from torchs4.description import Batch, Scaling
from torchs4.tasks import Forecast, QuantileForecast

LEVELS = (0.1, 0.5, 0.9)


def some(columns: int = 2) -> Batch:
    generator = torch.Generator().manual_seed(0)
    asked = (torch.arange(9) >= 6).expand(4, 9)
    return Batch(
        torch.randn(4, 9, columns, generator=generator),
        torch.randn(4, 9, columns, generator=generator),
        asked=asked,
    )


def test_a_forecast_says_what_it_continues() -> None:
    output = Forecast(("a", "b"), horizon=3, continues=(1, 0)).output
    assert (output.horizon, output.continues, output.per_position) == (3, (1, 0), True)
    quantiles = QuantileForecast(
        ("a", "b"), Scaling((1.0, 2.0), (3.0, 4.0)), horizon=3, continues=(1, 0), levels=LEVELS
    ).output
    assert quantiles.size == 6
    assert quantiles.names[:3] == ("a 0.1", "a 0.5", "a 0.9")
    assert quantiles.continues == (1, 1, 1, 0, 0, 0)
    assert quantiles.scaling == Scaling((1.0,) * 3 + (2.0,) * 3, (3.0,) * 3 + (4.0,) * 3)


def test_pinball_loss_is_that_of_its_definition() -> None:
    batch, task = (
        some(),
        QuantileForecast(("a", "b"), Scaling((0.0, 0.0), (2.0, 5.0)), horizon=3, levels=LEVELS),
    )
    prediction = torch.randn(4, 9, 6)
    expected = magnitude = 0.0
    for example in range(4):
        for row in range(6, 9):
            for column, scale in enumerate((2.0, 5.0)):
                value = float(batch.y[example, row, column])
                for place, level in enumerate(LEVELS):
                    difference = (value - float(prediction[example, row, 3 * column + place])) / scale
                    expected += (level * difference if difference > 0 else (level - 1) * difference) / 3
                    magnitude += abs(difference) if level == 0.5 else 0.0
    assert task.sums(prediction, batch).tolist() == pytest.approx([expected, magnitude], rel=1e-4)
    assert task.count(batch) == 4 * 3 * 2


def test_the_best_constant_is_the_quantile() -> None:
    values = torch.linspace(0, 1, 101).reshape(1, 101, 1)
    batch = Batch(torch.zeros(1, 101, 1), values)
    task = QuantileForecast(("a",), horizon=101, levels=(0.25, 0.5, 0.75))

    def loss(constants: list[float]) -> float:
        return float(task.sums(torch.tensor(constants).expand(1, 101, 3), batch)[0])

    best = loss([0.25, 0.5, 0.75])
    for place in range(3):
        for change in (-0.05, 0.05):
            other = [0.25, 0.5, 0.75]
            other[place] += change
            assert loss(other) > best


@pytest.mark.parametrize(
    ("levels", "message"),
    [((0.1, 0.9), "hold 0.5"), ((0.9, 0.5), "must rise"), ((0.0, 0.5), "between 0 and 1")],
)
def test_impossible_levels_are_refused(levels: tuple[float, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        QuantileForecast(("a",), levels=levels)
