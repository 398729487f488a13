"""Forecasts that hardly need training, for every other one to be measured against.

Axes: B windows, T positions of a history, H of a horizon, F numbers that are read, O that are predicted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from jaxtyping import Float

    from torchs4.description import Batch

# From hardly any to one that leaves next to nothing of the map.
PENALTIES = tuple(10.0**power for power in range(-1, 7))


class SeasonalForecast(nn.Module):
    """What was there one season before; with a season of 1 that is the last value.

    continues: which columns of the input are predicted.
    """

    def __init__(self, horizon: int, continues: Sequence[int], season: int = 1) -> None:
        super().__init__()
        self.horizon = horizon
        self.continues = list(continues)
        self.season = season

    def forward(
        self, x: Float[Tensor, "B T+H F"], lengths: None = None, rate: float = 1.0
    ) -> Float[Tensor, "B T+H O"]:
        """The forecast, behind the history."""
        past = x[:, : -self.horizon, self.continues]
        if past.shape[1] < self.season:
            raise ValueError(f"A history of {past.shape[1]:,} positions holds no season of {self.season:,}.")
        last = past[:, -self.season :]
        repeated = last.repeat(1, -(-self.horizon // self.season), 1)[:, : self.horizon]
        return torch.cat([past, repeated], dim=1)


class LinearForecast(nn.Module):
    """A linear map of the history's differences from its last value, one for all columns."""

    weight: Tensor

    def __init__(self, weight: Float[Tensor, "T H"], continues: Sequence[int]) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.continues = list(continues)

    def forward(
        self, x: Float[Tensor, "B T+H F"], lengths: None = None, rate: float = 1.0
    ) -> Float[Tensor, "B T+H O"]:
        """The forecast, behind the history."""
        past = x[:, : -self.weight.shape[1], self.continues]
        last = past[:, -1:]
        ahead = last + torch.einsum("btc,th->bhc", past - last, self.weight.to(past.dtype))
        return torch.cat([past, ahead], dim=1)


def fit_linear(
    training: Iterable[Batch],
    error: Callable[[LinearForecast], float],
    horizon: int,
    continues: Sequence[int],
    scale: Sequence[float],
    penalties: Sequence[float] = PENALTIES,
) -> tuple[LinearForecast, float]:
    """The map with the least squares on training windows, in closed form, and its penalty.

    error: of a map on validation windows, by which the penalty is chosen.
    scale: of each predicted column, so that all count alike.
    """
    scales = torch.tensor(scale, dtype=torch.float64)
    products: Tensor | float = 0.0
    moments: Tensor | float = 0.0
    for batch in training:
        past = batch.x[:, :-horizon, list(continues)].double()
        last = past[:, -1:]
        # Windows and columns are examples alike.
        differences = ((past - last) / scales).transpose(1, 2).flatten(0, 1)
        answers = ((batch.y[:, -horizon:].double() - last) / scales).transpose(1, 2).flatten(0, 1)
        products = products + differences.T @ differences
        moments = moments + differences.T @ answers
    if not isinstance(products, Tensor) or not isinstance(moments, Tensor):
        raise ValueError("There are no training windows.")
    found: tuple[float, LinearForecast, float] | None = None
    identity = torch.eye(len(products), dtype=torch.float64)
    for penalty in penalties:
        weight = torch.linalg.solve(products + penalty * identity, moments).float()
        candidate = LinearForecast(weight, continues)
        wrong = error(candidate)
        if found is None or wrong < found[0]:
            found = wrong, candidate, penalty
    assert found is not None
    return found[1], found[2]
