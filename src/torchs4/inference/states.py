"""What a model remembers of a stream: joined, taken apart, recognised."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchs4.configuration import to_plain
from torchs4.models.states import from_named, named_tensors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torchs4.models import SequenceModel


def join_states(states: Sequence[Any]) -> Any:
    """One state for a batch of sequences, each of which had a state of its own."""
    if len(states) == 1:
        return states[0]
    named = [dict(named_tensors(state)) for state in states]
    return from_named(states[0], {name: torch.cat([one[name] for one in named]) for name in named[0]})


def split_state(state: Any) -> list[Any]:
    """A state for each sequence of a batch."""
    tensors = dict(named_tensors(state))
    count = len(next(iter(tensors.values())))
    if count == 1:
        return [state]
    # Copies: a view would keep the whole batch in memory for as long as one of its streams lasts.
    return [
        from_named(state, {name: tensor[row : row + 1].clone() for name, tensor in tensors.items()})
        for row in range(count)
    ]


def compact(state: Any) -> Any:
    """The state without what its tensors keep in memory beside their own numbers."""
    tensors = {}
    for name, tensor in named_tensors(state):
        held = tensor.untyped_storage().nbytes()
        tensors[name] = tensor.clone() if held > tensor.numel() * tensor.element_size() else tensor
    return from_named(state, tensors)


def fingerprint(model: SequenceModel) -> str:
    """Tells models with other weights or another configuration apart."""
    return content_digest(model.state_dict(), json.dumps(to_plain(model.config), sort_keys=True))


def content_digest(tensors: Mapping[str, Tensor], about: str = "") -> str:
    """Tells named tensors with other names, kinds, shapes or numbers apart."""
    digest = hashlib.sha256(about.encode())
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
