"""Streaming with gradients on keeps everything that led to a state: somebody should hear of it once."""

from __future__ import annotations

import warnings
from typing import Any

import torch

# Steps after which nobody means to differentiate through all of them.
MANY_STEPS = 1000


class GraphWatch:
    """Counts how long a state has carried a graph along."""

    def __init__(self) -> None:
        self._steps = 0

    def saw(self, state: Any) -> None:
        """A step with gradients on begins with this state."""
        self._steps = self._steps + 1 if _carries_graph(state) else 0
        if self._steps == MANY_STEPS:
            warnings.warn(
                f"A state has carried the graph of {MANY_STEPS:,} steps along, which fills the memory. To "
                f"predict, step inside `with torch.inference_mode():`; to train, detach the state now and "
                f"then.",
                stacklevel=4,
            )


def _carries_graph(state: Any) -> bool:
    # One tensor tells: every part of a state follows from weights.
    while isinstance(state, tuple | list | dict) and state:
        state = next(iter(state.values() if isinstance(state, dict) else state))
    return isinstance(state, torch.Tensor) and state.requires_grad
