"""A stream: samples come in as they arrive, predictions come out, and what is remembered does not grow.

Axes: B sequences, L positions, O numbers per prediction.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from torchs4.configuration import require_whole
from torchs4.inference.samples import Samples, as_samples, read_piece, require_streaming
from torchs4.inference.states import compact, content_digest, fingerprint
from torchs4.layers.inputs import require_rate
from torchs4.models.states import from_named, named_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Float

    from torchs4.models import SequenceModel

# Raised when older files stop meaning what they say.
_FORMAT = "torchs4 stream 1"
# Positions of a piece, all sequences of a batch together: bounds the memory that a long chunk needs.
_AT_ONCE = 8192
# Any chunk is made of pieces of these lengths: their operators stay remembered, others would be made anew.
_PIECES = (64, 16, 4, 1)


class Stream:
    """One sequence, or a batch of them, that goes on for as long as samples come.

    `Stream(model).push(samples)` takes one position (features,), or any number (L, features); for a model of
    tokens one number, or (L,). Arrays, tensors and lists will do. With a batch_size, its axis comes first.
    What is remembered stays the same size, except for attention, which remembers everything.

    rate: step size of the samples relative to training: 2.0 when only every second one comes.
    allow_nan: pass NaN and infinity on to the model instead of refusing them.
    Several threads may use one model, each with a stream of its own.
    """

    def __init__(
        self,
        model: SequenceModel,
        *,
        batch_size: int | None = None,
        rate: float = 1.0,
        allow_nan: bool = False,
    ) -> None:
        require_streaming(model)
        require_rate(rate)
        if batch_size is not None:
            require_whole("batch_size", batch_size, 1)
        self.model = model
        self.batch_size = batch_size
        self.rate = rate
        self.allow_nan = allow_nan
        self._restart()

    def _restart(self) -> None:
        with torch.inference_mode():
            self.state: Any = self.model.initial_state(self.batch_size or 1)
        self._positions = 0
        self._prediction: Tensor | None = None

    @property
    def positions(self) -> int:
        """How many positions have come so far."""
        return self._positions

    @property
    def prediction(self) -> Float[Tensor, "*B O"]:
        """The prediction from everything so far; without pooling, the one for the last position."""
        if self._prediction is None:
            raise ValueError("Nothing has come yet: push at least one sample first.")
        return self._prediction if self.batch_size is not None else self._prediction[0]

    def push(self, samples: Any) -> Float[Tensor, "*B_L O"]:
        """Read samples. With pooling, the prediction from everything so far; without, one for each position.

        A call that fails changes nothing.
        """
        taken = as_samples(self.model, samples, self.batch_size)
        outputs, state = advance(self.model, taken, self.state, self.rate, self.allow_nan)
        return self.accept(taken, outputs, state)

    def push_each(self, samples: Any) -> Float[Tensor, "*B_L O"]:
        """Read samples. The prediction after each of them, also with pooling: one step for every position."""
        taken = as_samples(self.model, samples, self.batch_size)
        outputs, state = advance_by_steps(self.model, taken, self.state, self.rate, self.allow_nan)
        self.accept(taken, outputs[:, -1].clone(), state)
        outputs = outputs[:, 0] if taken.is_single else outputs
        return outputs if self.batch_size is not None else outputs[0]

    def accept(
        self, taken: Samples, outputs: Float[Tensor, "B ... O"], state: Any
    ) -> Float[Tensor, "*B_L O"]:
        """Take over what the model made of samples."""
        self.state = state
        self._positions += taken.length
        # A copy: a view would keep the outputs of the whole chunk.
        self._prediction = outputs if outputs.ndim == 2 else outputs[:, -1].clone()
        if taken.is_single:
            outputs = self._prediction
        return outputs if self.batch_size is not None else outputs[0]

    def probabilities(self, sequence: int | None = None) -> dict[str, float]:
        """How likely each class, or each next token, is by now, by name; of a batch, for one sequence."""
        config = self.model.config
        if config.output_scaling is not None:
            raise ValueError("This model predicts values, which have no probabilities. Read .prediction.")
        if sequence is None and (self.batch_size or 1) > 1:
            raise ValueError(
                f"These are {self.batch_size} sequences: say which one, probabilities(sequence=0)."
            )
        prediction = self.prediction if self.batch_size is None else self.prediction[sequence or 0]
        values = prediction.cpu().double().softmax(-1).tolist()
        names = config.names or tuple(map(str, range(len(values))))
        return dict(zip(names, values, strict=True))

    def save(self, path: str | Path) -> None:
        """Write what is remembered, to go on after a restart; an interrupted save leaves the old file."""
        path = Path(path)
        tensors = {
            f"state.{name}": tensor.cpu().contiguous().clone() for name, tensor in named_tensors(self.state)
        }
        if self._prediction is not None:
            tensors["prediction"] = self._prediction.cpu().contiguous()
        metadata = {
            "format": _FORMAT,
            "model": fingerprint(self.model),
            "batch_size": "" if self.batch_size is None else str(self.batch_size),
            "rate": repr(self.rate),
            "positions": str(self._positions),
            "content": content_digest(tensors),
        }
        if not path.parent.is_dir():
            raise ValueError(f"There is no folder {path.parent} to save a stream in. Make it first.")
        new = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            new.write_bytes(save(tensors, metadata))
            os.replace(new, path)
        finally:
            new.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path, model: SequenceModel, *, allow_nan: bool = False) -> Self:
        """Go on where a stream was when it was saved. The state of another model is refused."""
        require_streaming(model)
        metadata, tensors = _read(Path(path))
        if metadata["model"] != fingerprint(model):
            raise ValueError(
                f"{path} is the state of another model: weights or configuration differ. Load it with the "
                f"model that it was saved with, or start a new stream."
            )
        batch_size = int(metadata["batch_size"]) if metadata["batch_size"] else None
        stream = cls(model, batch_size=batch_size, rate=float(metadata["rate"]), allow_nan=allow_nan)
        place = next(model.parameters()).device
        stream._positions = int(metadata["positions"])
        stream._prediction = tensors["prediction"].to(place) if "prediction" in tensors else None
        states = {name.removeprefix("state."): tensor.to(place) for name, tensor in tensors.items()}
        stream.state = from_named(stream.state, states)
        return stream


@torch.inference_mode()
def advance(
    model: SequenceModel, samples: Samples, state: Any, rate: float, allow_nan: bool
) -> tuple[Float[Tensor, "B ... O"], Any]:
    """What a model predicts from samples and what it remembers then, by whichever verb is faster."""
    outputs: list[Tensor] = []
    for start, stop in _pieces(model, samples, rate):
        piece = read_piece(model, samples, start, stop, allow_nan)
        if stop - start == 1:
            output, state = model.step(piece[:, 0], state, rate)
            output = output[:, None] if model.config.pooling == "none" else output
        else:
            output, state = model.prefill(piece, state, rate)
            state = compact(state)
        if model.config.pooling != "none":
            # Only the last of them is wanted.
            outputs.clear()
        outputs.append(output)
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=1), state


@torch.inference_mode()
def advance_by_steps(
    model: SequenceModel, samples: Samples, state: Any, rate: float, allow_nan: bool
) -> tuple[Float[Tensor, "B L O"], Any]:
    """What a model predicts after every one of these samples, and what it remembers then."""
    outputs = []
    for start in range(0, samples.length, _AT_ONCE):
        stop = min(start + _AT_ONCE, samples.length)
        for x_t in read_piece(model, samples, start, stop, allow_nan).unbind(1):
            output, state = model.step(x_t, state, rate)
            outputs.append(output)
    return torch.stack(outputs, dim=1), compact(state)


def _pieces(model: SequenceModel, samples: Samples, rate: float) -> Iterator[tuple[int, int]]:
    """Where pieces of a chunk begin and end."""
    # Behind a stem, the blocks see frames: pieces of whole frames make pieces of known lengths for them.
    stride = model.period(rate)
    largest = _PIECES[0] * stride
    most = max(largest, _AT_ONCE // samples.values.shape[0] // largest * largest)
    start, length = 0, samples.length
    while start < length:
        left = length - start
        if left >= largest:
            size = min(left // largest * largest, most)
        else:
            size = next((piece * stride for piece in _PIECES if piece * stride <= left), left)
        yield start, start + size
        start += size


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    if not path.is_file():
        raise ValueError(f"There is no file {path}. Pass one that Stream.save wrote.")
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"{path} is cut short, damaged or no state of a stream ({error}). Pass a file that "
            f"Stream.save wrote."
        ) from error
    if metadata.get("format") != _FORMAT:
        raise ValueError(
            f"{path} is not the state of a stream that this version reads: its format is "
            f"{metadata.get('format')!r} instead of {_FORMAT!r}. Pass a file that Stream.save wrote."
        )
    if metadata.get("content") != content_digest(tensors):
        raise ValueError(f"{path} is damaged: its numbers are not those that were saved. Start a new stream.")
    return metadata, tensors
