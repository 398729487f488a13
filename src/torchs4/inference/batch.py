"""Many streams through one model at once. They join and leave when they like; none notices the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch
from torch import Tensor

from torchs4.inference.samples import Samples, as_samples, read_piece, require_streaming
from torchs4.inference.states import join_states, split_state
from torchs4.inference.stream import Stream, advance
from torchs4.layers.inputs import require_rate
from torchs4.models.states import named_tensors

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Mapping

    from jaxtyping import Float

    from torchs4.models import SequenceModel

Key = TypeVar("Key", bound="Hashable")


class StreamBatch(Generic[Key]):
    """Streams by key. Those that have as many samples in a call go through the model together.

    rate, allow_nan: as in Stream, for all of them.
    """

    def __init__(self, model: SequenceModel, *, rate: float = 1.0, allow_nan: bool = False) -> None:
        require_streaming(model)
        require_rate(rate)
        self.model = model
        self.rate = rate
        self.allow_nan = allow_nan
        self._streams: dict[Key, Stream] = {}

    def join(self, key: Key, stream: Stream | None = None) -> None:
        """A new stream begins, or one that ran alone goes on here."""
        if key in self._streams:
            raise ValueError(f"There is a stream {key!r} already. Let it leave first, or choose another key.")
        if stream is None:
            stream = Stream(self.model, rate=self.rate, allow_nan=self.allow_nan)
        elif stream.model is not self.model or stream.rate != self.rate or stream.batch_size is not None:
            raise ValueError(
                f"The stream {key!r} cannot join: it needs the same model, the same rate ({self.rate}) and "
                f"no batch_size of its own."
            )
        self._streams[key] = stream

    def leave(self, key: Key) -> Stream:
        """The stream goes on alone, or is forgotten, or joins again later."""
        self._require(key)
        return self._streams.pop(key)

    def push(self, samples: Mapping[Key, Any]) -> dict[Key, Float[Tensor, "*L O"]]:
        """Read samples of some streams, of each as many as it has. A call that fails changes nothing."""
        groups: dict[Hashable, dict[Key, Samples]] = {}
        for key, values in samples.items():
            self._require(key)
            taken = self._taken(key, values)
            groups.setdefault(self._kind(self._streams[key], taken), {})[key] = taken
        accepted: dict[Key, tuple[Samples, Tensor, Any]] = {}
        for group in groups.values():
            accepted.update(self._advance(group))
        return {key: self._streams[key].accept(*accepted[key]) for key in samples}

    def __getitem__(self, key: Key) -> Stream:
        self._require(key)
        return self._streams[key]

    def __len__(self) -> int:
        return len(self._streams)

    def __iter__(self) -> Iterator[Key]:
        return iter(self._streams)

    def __contains__(self, key: object) -> bool:
        return key in self._streams

    def _require(self, key: Key) -> None:
        if key not in self._streams:
            raise ValueError(f"There is no stream {key!r}. Let it join first.")

    def _taken(self, key: Key, values: Any) -> Samples:
        try:
            taken = as_samples(self.model, values, None)
            return Samples(read_piece(self.model, taken, 0, taken.length, self.allow_nan), taken.is_single)
        except ValueError as error:
            raise ValueError(f"Stream {key!r}: {error}") from error

    def _kind(self, stream: Stream, taken: Samples) -> Hashable:
        """What streams must have in common to go through the model together."""
        shapes = tuple(tensor.shape for _, tensor in named_tensors(stream.state))
        return taken.length, shapes, self._phase(stream)

    def _phase(self, stream: Stream) -> int:
        """How many samples the current frame has had, of a stem or of a U-Net's coarsest level."""
        return stream.positions % self.model.period(self.rate)

    @torch.inference_mode()
    def _advance(self, group: Mapping[Key, Samples]) -> dict[Key, tuple[Samples, Tensor, Any]]:
        streams = [self._streams[key] for key in group]
        states = [self._counted_in_phase(stream) for stream in streams]
        joined = Samples(torch.cat([taken.values for taken in group.values()]), False)
        outputs, state = advance(self.model, joined, join_states(states), self.rate, allow_nan=True)
        rows = zip(group.items(), outputs.split(1), split_state(state), strict=True)
        return {key: (taken, output, own) for (key, taken), output, own in rows}

    def _counted_in_phase(self, stream: Stream) -> Any:
        """A stream's state. A stem asks only where in a frame it is, but all of a batch must say the same."""
        if self.model.stem is None:
            return stream.state
        *histories, position = stream.state["stem"]
        return {**stream.state, "stem": (*histories, torch.full_like(position, self._phase(stream)))}
