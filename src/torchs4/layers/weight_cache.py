"""Remembers what was computed from weights until the weights change."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray

    Value = TypeVar("Value")


class WeightCache:
    """One value per slot, valid for one content of the weights and one key.

    The weights' content is compared, not their version counters: `parameter.data.copy_()`, which averaging
    code likes, leaves no trace in a version counter.
    """

    def __init__(self) -> None:
        self._weights: list[_Snapshot] = []
        self._slots: dict[str, tuple[Hashable, Any]] = {}

    def get(self, slot: str, key: Hashable, weights: Sequence[Tensor], compute: Callable[[], Value]) -> Value:
        """The slot's value, computed now if the weights or the key are new.

        With gradients on, or inside a compiler, nothing is remembered: the value must stay connected.
        """
        if torch.is_grad_enabled() or torch.compiler.is_compiling():
            return compute()
        if not self._matches(weights):
            self._weights = [_Snapshot(weight) for weight in weights]
            self._slots = {}
        if slot not in self._slots or self._slots[slot][0] != key:
            # Tensors made in inference mode could not be used outside of it.
            with torch.inference_mode(False), torch.no_grad():
                self._slots[slot] = (key, compute())
        value: Value = self._slots[slot][1]
        return value

    def _matches(self, weights: Sequence[Tensor]) -> bool:
        if len(weights) != len(self._weights):
            return False
        return all(map(_Snapshot.matches, self._weights, weights))


class _Snapshot:
    """What a weight was. Every step asks about every weight, so the question has to be cheap."""

    def __init__(self, weight: Tensor) -> None:
        self.content = weight.detach().clone()
        self.address = weight.data_ptr()
        self.memory: NDArray[Any] | None = None
        if weight.device.type == "cpu" and weight.is_contiguous() and weight.dtype != torch.bfloat16:
            # The array shares the weight's memory and keeps it from being reused, so an equal address later
            # means the same memory.
            self.memory = weight.detach().numpy()
            self.bytes = self.memory.tobytes()

    def matches(self, weight: Tensor) -> bool:
        content = self.content
        if weight.dtype != content.dtype or weight.shape != content.shape:
            return False
        if self.memory is not None and weight.data_ptr() == self.address and weight.is_contiguous():
            return bool(self.memory.tobytes() == self.bytes)
        return weight.device == content.device and torch.equal(weight, content)

    def __getstate__(self) -> dict[str, Any]:
        # A copy of a module has its weights elsewhere.
        return {"content": self.content, "address": 0, "memory": None}
