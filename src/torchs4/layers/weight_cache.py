"""Remembers what was computed from weights until the weights change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    Value = TypeVar("Value")


class WeightCache:
    """One value per slot, valid for one content of the weights and one key.

    The weights' content is compared, not their version counters: `parameter.data.copy_()`, which averaging
    code likes, leaves no trace in a version counter.
    """

    def __init__(self) -> None:
        self._weights: list[Tensor] = []
        self._slots: dict[str, tuple[Hashable, Any]] = {}

    def get(self, slot: str, key: Hashable, weights: Sequence[Tensor], compute: Callable[[], Value]) -> Value:
        """The slot's value, computed now if the weights or the key are new.

        With gradients on, or inside a compiler, nothing is remembered: the value must stay connected.
        """
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return compute()
        if not self._matches(weights):
            self._weights = [weight.detach().clone() for weight in weights]
            self._slots = {}
        if slot not in self._slots or self._slots[slot][0] != key:
            # Tensors made in inference mode could not be used outside of it.
            with torch.inference_mode(False), torch.no_grad():
                self._slots[slot] = (key, compute())
        value: Value = self._slots[slot][1]
        return value

    def _matches(self, weights: Sequence[Tensor]) -> bool:
        return len(weights) == len(self._weights) and all(
            _same(new, old) for new, old in zip(weights, self._weights, strict=True)
        )


def _same(new: Tensor, old: Tensor) -> bool:
    if new.dtype != old.dtype or new.device != old.device or new.shape != old.shape:
        return False
    if new.device.type == "cpu" and new.dtype in (torch.float32, torch.float64):
        # Every step asks this: comparing bytes is several times faster than torch.equal.
        return bool(new.detach().numpy().tobytes() == old.numpy().tobytes())
    return torch.equal(new, old)
