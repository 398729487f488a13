"""Remembers what was computed from weights until the weights change."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from torchs4 import ops

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from numpy.typing import NDArray

    Value = TypeVar("Value")


# Values of a slot: streams of a few rates or lengths side by side; kernels are large.
_REMEMBERED = 4


def weight_of(module: nn.Module, name: str) -> Any:
    """A module's parameter, found several times faster than its attribute: every step asks for many."""
    own: dict[str, Any] = module._parameters
    # A parametrised weight is not among the parameters.
    return own[name] if name in own else getattr(module, name)


class WeightCache:
    """Values by slot and key, valid for one content of the weights. Several threads may ask at once.

    The weights' content is compared, not their version counters: `parameter.data.copy_()`, which averaging
    code likes, leaves no trace in a version counter. On other devices than the CPU reading the content would
    make every step wait, so there it is the counters, and whoever writes through `.data` calls `forget`.
    """

    def __init__(self) -> None:
        self._weights: list[_Snapshot] = []
        self._places: list[_Place] = []
        self._slots: dict[str, dict[Hashable, Any]] = {}
        self._lock = threading.Lock()

    def get(
        self,
        slot: str,
        key: Hashable,
        weights: Sequence[Tensor],
        compute: Callable[[], Value],
        places: Sequence[Tensor] = (),
    ) -> Value:
        """The slot's value for this key, computed now if the weights or the key are new.

        places: weights that the value reads where they lie; they matter only if they lie elsewhere now.
        With gradients on, or inside a compiler or a transform of functions, nothing is remembered: the value
        must stay connected.
        """
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or ops.inside_transform():
            return compute()
        with self._lock:
            if not (_all_match(self._weights, weights) and _all_match(self._places, places)):
                self._weights = [_Snapshot(weight) for weight in weights]
                self._places = [_Place(weight) for weight in places]
                self._slots = {}
            # Belongs to these weights, even if another thread comes with others before the value is ready.
            values: dict[Hashable, Any] = self._slots.setdefault(slot, {})
            if key in values:
                # The one used last is last.
                values[key] = value = values.pop(key)
                return value
        # Tensors made in inference mode could not be used outside of it.
        with torch.inference_mode(False), torch.no_grad():
            value = compute()
        with self._lock:
            values[key] = value
            while len(values) > _REMEMBERED:
                del values[next(iter(values))]
        return value

    def forget(self) -> None:
        """Compute everything anew when it is next asked for."""
        with self._lock:
            self._weights, self._places, self._slots = [], [], {}

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy of a module has its weights elsewhere: it starts with nothing.
        return WeightCache, ()


def _all_match(remembered: Sequence[_Place], weights: Sequence[Tensor]) -> bool:
    return len(remembered) == len(weights) and all(
        then.matches(now) for then, now in zip(remembered, weights, strict=True)
    )


class _Place:
    """Where a weight lay. Every step asks about every weight, so the question has to be cheap."""

    def __init__(self, weight: Tensor) -> None:
        # Keeps the memory from being reused: an equal address later means the same memory.
        self.weight = weight.detach()
        self.address = weight.data_ptr()
        self.shape, self.dtype = weight.shape, weight.dtype

    def matches(self, weight: Tensor) -> bool:
        return weight.data_ptr() == self.address and weight.shape == self.shape and weight.dtype == self.dtype


class _Snapshot(_Place):
    """What a weight was."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__(weight)
        self.memory: NDArray[Any] | None = None
        self.version: int | None = None
        if weight.device.type != "cpu" and not weight.is_inference():
            self.version = weight._version
            return
        self.content = self.weight.clone()
        if weight.device.type == "cpu" and weight.is_contiguous() and weight.dtype != torch.bfloat16:
            self.memory = self.weight.numpy()
            # A bytearray compares itself with an array in place; bytes would have to be copied first.
            self.bytes = bytearray(self.memory.tobytes())

    def matches(self, weight: Tensor) -> bool:
        if self.memory is not None and super().matches(weight) and weight.is_contiguous():
            return self.bytes == self.memory
        if self.version is not None:
            return super().matches(weight) and not weight.is_inference() and weight._version == self.version
        content = self.content
        same_kind = weight.dtype == content.dtype and weight.shape == content.shape
        return same_kind and weight.device == content.device and torch.equal(weight, content)
