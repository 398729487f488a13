"""Steps of a stream as a CUDA graph: recorded once, then one launch each."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchs4 import ops
from torchs4.configuration import require_whole
from torchs4.inference.samples import require_streaming
from torchs4.layers.block import S4Block
from torchs4.layers.inputs import require_rate
from torchs4.models.states import from_named, named_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from jaxtyping import Float, Int

    from torchs4.models import SequenceModel

# Libraries choose their algorithms and allocate at the first calls, which must not be recorded.
_WARM_UP = 3


class RecordedSteps:
    """A model's steps for a device where launching them takes longer than running them.

    `steps = RecordedSteps(model)`, then `steps.step(x_t)` gives the predictions that `model.step` would. What
    is remembered stays inside: `steps.state` reads it, and a state from `model.prefill` can be put in its
    place. The first step records; so does the first one after weights have changed.

    batch_size: of every x_t. rate: as in `model.step`.
    in_triton: two launches for each block, by kernels in Triton, instead of one for each operation.
    Needs CUDA, or ROCm, which PyTorch calls so too. Not for several threads.
    """

    def __init__(
        self, model: SequenceModel, batch_size: int = 1, rate: float = 1.0, *, in_triton: bool = False
    ) -> None:
        require_streaming(model)
        require_whole("batch_size", batch_size, 1)
        require_rate(rate)
        weight = next(model.parameters())
        if weight.device.type not in _RECORDERS:
            raise ValueError(
                f"The model is on {weight.device}, where steps cannot be recorded: that takes a CUDA device. "
                f"Use model.step, or model.to('cuda') first."
            )
        if model.stem is not None:
            raise ValueError(
                "This model has a stem, which makes a step of its blocks only now and then: there is no one "
                "step to record. Use model.step or Stream."
            )
        if in_triton:
            _require_triton(model, weight)
        config = model.config
        self.model, self.rate, self.in_triton = model, rate, in_triton
        # Everything that a step reads or writes keeps its place from here on.
        if config.vocabulary_size is None:
            self._x = weight.new_zeros(batch_size, config.input_features)
        else:
            self._x = torch.zeros(batch_size, dtype=torch.int64, device=weight.device)
        self._state = _copied(model.initial_state(batch_size))
        self._prediction: Tensor | None = None
        self._replay: Callable[[], None] | None = None
        self._recorded_weights: tuple[Any, ...] | None = None

    @torch.no_grad()
    def step(self, x_t: Float[Tensor, "B F"] | Int[Tensor, " B"]) -> Float[Tensor, "B O"]:
        """One position: the prediction after it."""
        if x_t.shape != self._x.shape:
            raise ValueError(f"x_t has shape {tuple(x_t.shape)}; expected {tuple(self._x.shape)}.")
        if x_t.is_floating_point() != self._x.is_floating_point():
            raise ValueError(f"x_t has dtype {x_t.dtype}; expected {self._x.dtype}.")
        weights = self._weights()
        if self._replay is None or self._prediction is None or weights != self._recorded_weights:
            self._replay, self._prediction = self._record()
            self._recorded_weights = weights
        # From pinned memory it does not wait.
        self._x.copy_(x_t, non_blocking=True)
        self._replay()
        # The next step writes to the same place.
        return self._prediction.clone()

    @property
    def state(self) -> Any:
        """What is remembered, as `model.step` would return it."""
        return _copied(self._state)

    @state.setter
    def state(self, state: Any) -> None:
        theirs, ours = dict(named_tensors(state)), dict(named_tensors(self._state))
        if {name: x.shape for name, x in theirs.items()} != {name: x.shape for name, x in ours.items()}:
            raise ValueError(
                f"This is no state of {len(self._x)} sequences of this model; pass what its initial_state, "
                f"prefill or step returned."
            )
        for name, tensor in ours.items():
            tensor.copy_(theirs[name])

    def _record(self) -> tuple[Callable[[], None], Tensor]:
        before = _copied(self._state)
        prediction = torch.empty_like(self._run_once())
        replay = _RECORDERS[self._x.device.type](lambda: prediction.copy_(self._run_once()), self._x.device)
        # Trials are no positions of the stream.
        self.state = before
        return replay, prediction

    def _run_once(self) -> Tensor:
        with ops.step_in_triton(self.in_triton):
            prediction, new = self.model.step(self._x, self._state, self.rate)
        news = dict(named_tensors(new))
        for name, tensor in named_tensors(self._state):
            if news[name].shape != tensor.shape:
                raise ValueError(
                    f"What this model remembers grows with every step ({name}: {tuple(tensor.shape)}, then "
                    f"{tuple(news[name].shape)}), as attention does: its steps cannot be recorded."
                )
        # Nothing is overwritten before everything has been read.
        for name, tensor in named_tensors(self._state):
            if news[name] is not tensor:
                tensor.copy_(news[name])
        return prediction

    def _weights(self) -> tuple[Any, ...]:
        """Tells when what was recorded holds no more; see weight_cache for what leaves no trace."""
        model = self.model
        tensors = (*model.parameters(), *model.buffers())
        return ops.get_implementation(), *((x.data_ptr(), x._version) for x in tensors)


def _require_triton(model: SequenceModel, weight: Tensor) -> None:
    if find_spec("triton") is None:
        raise ValueError(
            "in_triton=True needs the package triton, which comes with PyTorch for CUDA and ROCm on Linux: "
            "pip install triton, or leave it out."
        )
    blocks = list(model.stack.blocks)
    usual = all(isinstance(block, S4Block) and block.step_parts() is not None for block in blocks)
    if not usual or weight.dtype != torch.float32:
        raise ValueError(
            f"in_triton=True is for blocks of S4 or S4D with norm, GELU and gates, in float32; these are "
            f"{'other ones' if not usual else weight.dtype}. Leave it out."
        )


def _copied(state: Any) -> Any:
    return from_named(state, {name: tensor.clone() for name, tensor in named_tensors(state)})


def _record_cuda(run: Callable[[], object], device: torch.device) -> Callable[[], None]:
    with torch.cuda.device(device):
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(_WARM_UP):
                run()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
    return graph.replay


_RECORDERS: dict[str, Callable[[Callable[[], object], torch.device], Callable[[], None]]] = {
    "cuda": _record_cuda
}
