"""One long text in order: every batch goes on where the one before it ended, and so does the model's state.

Gradients end where a batch begins (truncated backpropagation), memory does not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from torchs4.models.states import from_named, map_state, named_tensors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torchs4.data.sequences import SequenceData, Split


class CarriedStates:
    """What a model remembers between steps, for each part that a batch is cut into."""

    def __init__(self) -> None:
        self._states: list[Any] = []

    def before(self, part: int) -> Any:
        """The state in which a part of the next batch begins; None at the beginning of the text."""
        return self._states[part] if part < len(self._states) else None

    def keep(self, part: int, state: Any) -> None:
        """Remember what came after a part, but not how."""
        self._states[part : part + 1] = [map_state(state, torch.Tensor.detach)]

    def forget(self) -> None:
        """Begin anew."""
        self._states = []

    def saved(self) -> list[dict[str, torch.Tensor]]:
        """As a checkpoint holds it."""
        return [{name: tensor.cpu() for name, tensor in named_tensors(state)} for state in self._states]

    def restore(self, saved: list[dict[str, torch.Tensor]], model: Any, device: torch.device) -> None:
        """Take what a checkpoint holds."""
        like = model.initial_state(1)
        self._states = [
            from_named(like, {name: tensor.to(device) for name, tensor in tensors.items()})
            for tensors in saved
        ]


def require_carrying(model: Any) -> None:
    """Only a model with a state of constant size can carry it on through a whole text."""
    if not hasattr(model, "prefill") or not model.causal:
        raise ValueError(
            "This model sees the future (bidirectional is True): it has no state to carry on from one part "
            "of a text to the next."
        )
    if any(tensor.numel() == 0 for _, tensor in named_tensors(model.initial_state(1))):
        raise ValueError(
            "What this model remembers grows with every token (the keys and values of a Transformer): it "
            "cannot be carried on through a whole text. Layers such as s4 and lstm have a state of constant "
            "size."
        )


def require_text(split: Split) -> None:
    """Only examples that belong together can be read in order."""
    if split.in_order() is None:
        raise ValueError(
            "carry_state is True, but these examples do not follow one another: it is for one long text. Set "
            "it to False."
        )


def carried_rows(examples: int, batch_size: int) -> list[NDArray[np.int64]]:
    """Batches as row numbers: sequence b of every batch reads part b of the text, in order."""
    batch_size = min(batch_size, examples)
    steps = examples // batch_size
    return list(np.arange(steps)[:, None] + steps * np.arange(batch_size))


def ordered_split(data: SequenceData, seed: int, epoch: int) -> Split:
    """The text of an epoch, cut in other places than in the epoch before."""
    state = np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0]
    split = data.train.in_order(torch.Generator().manual_seed(int(state >> np.uint64(1))))
    assert split is not None
    return split
