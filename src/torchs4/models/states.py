"""What a model remembers, as named tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def named_tensors(state: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of nested dictionaries and tuples, each with its path: blocks.0, pooling.1."""
    if isinstance(state, Tensor):
        yield name, state
        return
    for key, part in _entries(state):
        yield from named_tensors(part, f"{name}.{key}" if name else str(key))


def from_named(like: Any, tensors: Mapping[str, Tensor], name: str = "") -> Any:
    """A state of the same structure as another one, made of these tensors."""
    if isinstance(like, Tensor):
        return tensors[name]
    parts = {
        key: from_named(part, tensors, f"{name}.{key}" if name else str(key)) for key, part in _entries(like)
    }
    return parts if isinstance(like, dict) else tuple(parts.values())


def map_state(state: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """The state with something done to all of its tensors."""
    return from_named(state, {name: change(tensor) for name, tensor in named_tensors(state)})


def _entries(state: Any) -> list[tuple[Any, Any]]:
    return list(state.items()) if isinstance(state, dict) else list(enumerate(state))
