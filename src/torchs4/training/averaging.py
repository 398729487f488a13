"""An average of the weights over the last steps: it validates more evenly than the weights themselves."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Generic, TypeVar

import torch
from torch import nn

if TYPE_CHECKING:
    from torch import Tensor

Model = TypeVar("Model", bound=nn.Module)


class WeightAverage(Generic[Model]):
    """A second model that follows the one in training: θ' ← d θ' + (1 - d) θ after each step.

    Running statistics are averaged like weights: those of a batch norm belong to the activations of the
    weights around the same steps. `decay` is reached gradually, because the first weights are of no use.
    """

    def __init__(self, model: Model, decay: float) -> None:
        self.model = deepcopy(model).requires_grad_(False).eval()
        self._decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Follow the model, which has just taken the step of that number, counted from 0."""
        decay = min(self._decay, (1 + step) / (10 + step))
        for mine, its in zip(_tensors(self.model), _tensors(model), strict=True):
            if mine.is_floating_point():
                mine.lerp_(its, 1 - decay)
            else:
                mine.copy_(its)


def _tensors(model: nn.Module) -> list[Tensor]:
    return [*model.parameters(), *model.buffers()]
