"""A device that computes on the CPU but is none: its tensors have to be asked for, and every question counts.

Like Apple's it has no double precision. Like any accelerator it draws random numbers of its own, refuses to
mix its tensors with the host's, and makes the host wait when a number is read. What runs here looks at no
memory behind PyTorch's back and takes nothing for granted that only a CPU has.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import torch
from torch.utils._python_dispatch import return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from torchs4.layers.precision import WITHOUT_DOUBLE_PRECISION

NAME = "gadget"
WIDE = (torch.float64, torch.complex128)
aten = torch.ops.aten
# Between host and device, by whoever asks for it.
_TRANSFERS = (aten.copy_.default, aten._to_copy.default)
_generator = torch.Generator()
# How often the host read a number, or fetched a tensor, since somebody looked.
waits: Counter[str] = Counter()


class GadgetTensor(torch.Tensor):
    """A tensor on the device; `inner` is what the device holds."""

    inner: torch.Tensor

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> GadgetTensor:
        if inner.dtype in WIDE:
            raise TypeError(f"The device has no {inner.dtype}.")
        result = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), dtype=inner.dtype, device=f"{NAME}:0"
        )
        result.inner = inner
        return result

    @classmethod
    def __torch_dispatch__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        # In inference mode operators come here before PyTorch has taken them apart.
        parts = function.decompose(*args, **kwargs)
        if parts is not NotImplemented:
            return parts
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        to_host = _goes_to_host(function, args, kwargs)
        if function not in _TRANSFERS and any(x.ndim and not isinstance(x, cls) for x in tensors):
            raise TypeError(f"{function} mixes tensors of the host and of the device")
        if to_host or function is aten._local_scalar_dense.default:
            waits["fetched" if to_host else "read"] += 1
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        if "generator" in {argument.name for argument in function._schema.arguments}:
            kwargs["generator"] = _generator
        inner_args, inner_kwargs = tree_map(_inner, (args, kwargs))
        result = function(*inner_args, **inner_kwargs)
        if to_host or function is aten._local_scalar_dense.default:
            return args[0] if function is aten.copy_.default else result
        wrapped = tree_map(lambda x: cls(x) if isinstance(x, torch.Tensor) else x, result)
        return return_and_correct_aliasing(function, args, kwargs, wrapped)

    def tolist(self) -> Any:
        """PyTorch has none for tensors of this kind; a real device would fetch it like this."""
        return self.cpu().tolist()

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"GadgetTensor({self.inner})"


def _inner(x: Any) -> Any:
    return x.inner if isinstance(x, GadgetTensor) else x


def _goes_to_host(function: Any, args: Any, kwargs: dict[str, Any]) -> bool:
    if function is aten.copy_.default:
        return not isinstance(args[0], GadgetTensor)
    device = kwargs.get("device")
    return function is aten._to_copy.default and device is not None and torch.device(device).type == "cpu"


def _empty(size: Any, *, dtype: Any = None, **_: Any) -> GadgetTensor:
    return GadgetTensor(torch.empty(size, dtype=dtype, device="cpu"))


def _empty_strided(size: Any, stride: Any, *, dtype: Any = None, **_: Any) -> GadgetTensor:
    return GadgetTensor(torch.empty_strided(size, stride, dtype=dtype, device="cpu"))


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    _inner(target).copy_(_inner(source))
    return target


class _Module:
    """What PyTorch and accelerate ask a device's module."""

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def manual_seed_all(self, seed: int) -> None:
        _generator.manual_seed(seed)

    def get_rng_state(self, device: Any = None) -> torch.Tensor:
        return _generator.get_state()

    def set_rng_state(self, state: torch.Tensor, device: Any = None) -> None:
        _generator.set_state(state)


_library = torch.library.Library("aten", "IMPL")


def plug_in() -> None:
    """Make the device known, for as long as the process lives."""
    _setup_privateuseone_for_python_backend(NAME, backend_module=_Module())
    _library.impl("empty.memory_format", _empty, "PrivateUse1")
    _library.impl("empty_strided", _empty_strided, "PrivateUse1")
    _library.impl("_copy_from", _copy_from, "PrivateUse1")
    WITHOUT_DOUBLE_PRECISION.add(NAME)
