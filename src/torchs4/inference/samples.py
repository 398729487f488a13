"""What people push into a stream becomes tensors that a model reads.

Axes: B sequences, L positions, F columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torchs4.models import SequenceModel

if TYPE_CHECKING:
    from jaxtyping import Shaped


class Samples(NamedTuple):
    """Checked for shape, (B, L, F) or (B, L) tokens; its numbers are read and checked a piece at a time.

    is_single: they came without an axis of positions, so what comes out has none either.
    """

    values: Any
    is_single: bool

    @property
    def length(self) -> int:
        """How many positions there are."""
        return int(self.values.shape[1])


def require_streaming(model: object) -> None:
    """Only a causal SequenceModel that does not train can stream."""
    if not isinstance(model, SequenceModel):
        why = (
            "Two texts that are compared, and the history of a forecast, have to be there as a whole."
            if isinstance(model, torch.nn.Module)
            else "load_model(FOLDER) gives one."
        )
        raise ValueError(f"model is a {type(model).__name__}; expected a SequenceModel. {why}")
    if not model.causal:
        raise ValueError(
            "This model is bidirectional: every prediction needs the whole sequence, so it can be neither "
            "streamed nor exported. One that is trained with bidirectional=False can."
        )
    if model.training:
        raise ValueError("The model is in training mode, where dropout is random. Call model.eval() first.")


def as_samples(model: SequenceModel, samples: Any, batch_size: int | None) -> Samples:
    """Arrays, tensors or lists, one position or several, for one sequence or for a batch."""
    config = model.config
    if not isinstance(samples, Tensor):
        try:
            samples = np.asarray(samples)
        except ValueError as error:
            raise ValueError(f"These samples are no array of numbers ({error}).") from error
        if samples.dtype.kind not in "fiu":
            raise ValueError(f"Samples are of type {samples.dtype}; expected real numbers.")
    elif samples.is_complex() or samples.dtype == torch.bool:
        raise ValueError(f"Samples have dtype {samples.dtype}; expected real numbers.")
    shape = tuple(samples.shape)
    batch = () if batch_size is None else (batch_size,)
    columns = () if config.vocabulary_size is not None else (config.input_features,)
    is_single = shape == (*batch, *columns)
    fits = len(shape) == len(batch) + 1 + len(columns)
    fits = fits and shape[: len(batch)] == batch and shape[len(batch) + 1 :] == columns
    if not (is_single or fits):
        chunk, one = (*batch, "length", *columns), (*batch, *columns)
        hint = " Add an axis: samples[..., None]." if columns == (1,) and len(shape) == len(chunk) - 1 else ""
        raise ValueError(
            f"Samples have shape {shape}; expected {_told(chunk)}, or {_told(one)} for one.{hint}"
        )
    if is_single:
        samples = samples[(slice(None),) * len(batch) + (None,)]
    if batch_size is None:
        samples = samples[None]
    if samples.shape[1] == 0:
        raise ValueError("These samples are a chunk of length 0: push at least one, and skip empty chunks.")
    if columns == () and not _is_whole(samples):
        raise ValueError(f"Samples are of type {samples.dtype}; this model reads tokens, which are integers.")
    return Samples(samples, is_single)


def read_piece(
    model: SequenceModel, samples: Samples, start: int, stop: int, allow_nan: bool
) -> Shaped[Tensor, "B n ..."]:
    """Some positions in the model's place and precision, checked."""
    weight = next(model.parameters())
    is_tokens = model.config.vocabulary_size is not None
    part = samples.values[:, start:stop]
    # A copy: tensors cannot share arrays that are read-only, reversed or in foreign byte order.
    piece = (
        torch.as_tensor(np.array(part, part.dtype.newbyteorder("=")))
        if isinstance(part, np.ndarray)
        else part
    )
    piece = piece.detach().to(weight.device, torch.int64 if is_tokens else weight.dtype)
    finite = torch.isfinite(piece)
    if not is_tokens and not allow_nan and not bool(finite.all()):
        row, position, column = (~finite).nonzero()[0].tolist()
        raise ValueError(
            f"Sample {start + position} of this call is {piece[row, position, column].item()} in column "
            f"{column}: from there on every prediction would be. Leave it out or repair it; allow_nan=True "
            f"passes it on."
        )
    return piece


def _is_whole(samples: Any) -> bool:
    if isinstance(samples, Tensor):
        return not samples.is_floating_point()
    return samples.dtype.kind in "iu"


def _told(shape: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"
