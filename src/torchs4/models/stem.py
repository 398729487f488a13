"""Strided convolutions before the blocks: a long raw signal becomes a shorter one of frames.

Axes: B batch, L samples, F frames, I input columns, H features, k taps.
Frame j of a convolution sees the samples up to and including number j·stride: it is there as soon as that
sample is, and a sequence of any length has at least one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchs4.layers.inputs import require_rate
from torchs4.layers.precision import full_precision, unrounded

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Float

# Taps of a convolution for each sample of its stride: frames overlap, so that none cuts an event in two.
_REACH = 2


class _Stage(NamedTuple):
    """One convolution as it is at some sampling rate."""

    weight: Float[Tensor, "H I k"]
    bias: Float[Tensor, " H"]
    stride: int

    @property
    def memory(self) -> int:
        """How many samples before the newest one a frame sees."""
        return self.weight.shape[2] - 1


class AtRate(NamedTuple):
    """A stem at some sampling rate: its convolutions, samples per frame, and the rate of the frames."""

    stages: list[_Stage]
    stride: int
    rate: float


class Stem(nn.Module):
    """Convolutions with these strides and GELU between them, (B, L, I) to (B, ⌈L / strides⌉, H).

    At another sampling rate the kernels read the same points of time, and strides are scaled as far as they
    can be, so that the frames come at nearly the rate that the blocks were trained on.
    """

    def __init__(self, inputs: int, features: int, strides: Sequence[int]) -> None:
        super().__init__()
        widths = [inputs, *[features] * (len(strides) - 1)]
        self.convolutions = nn.ModuleList(
            nn.Conv1d(width, features, _REACH * stride, stride)
            for width, stride in zip(widths, strides, strict=True)
        )

    def at_rate(self, rate: float) -> AtRate:
        """The same filters for signals with another number of samples per second."""
        require_rate(rate)
        stages, total = [], 1
        for convolution in self._ordered():
            weight, bias, stride = convolution.weight, convolution.bias, convolution.stride[0]
            scaled = max(1, round(stride / rate))
            stages.append(_Stage(_resampled(weight, rate), cast("Tensor", bias), scaled))
            total *= scaled
            # Frames are as far apart as in training, or as nearly so as whole strides allow.
            rate *= scaled / stride
        return AtRate(stages, total, rate)

    def forward(self, x: Float[Tensor, "B L I"], at_rate: AtRate) -> Float[Tensor, "B F H"]:
        """All frames of whole sequences."""
        silence = [x.new_zeros(x.shape[0], 0, stage.weight.shape[1]) for stage in at_rate.stages]
        return _convolve(x, silence, 0, at_rate.stages)[0]

    def prefill(
        self, x: Float[Tensor, "B L I"], state: tuple[Tensor, ...], at_rate: AtRate
    ) -> tuple[Float[Tensor, "B F H"], tuple[Tensor, ...]]:
        """The frames that become due in a chunk, which may be none, and the state after it."""
        *histories, position = state
        seen = self.position(state) % at_rate.stride
        frames, histories = _convolve(x, histories, seen, at_rate.stages)
        return frames, (*histories, position + x.shape[1])

    def initial_state(self, like: Float[Tensor, "B ..."]) -> tuple[Tensor, ...]:
        """Silence: for each convolution the samples that it still sees, and how many samples there were."""
        batch = like.shape[0]
        histories = (
            like.new_zeros(batch, convolution.kernel_size[0] - 1, convolution.in_channels)
            for convolution in self._ordered()
        )
        return (*histories, like.new_zeros(batch, dtype=torch.int64))

    def _ordered(self) -> list[nn.Conv1d]:
        return cast("list[nn.Conv1d]", list(self.convolutions))

    def position(self, state: tuple[Tensor, ...]) -> int:
        """How many samples the sequences of a state have had."""
        position = state[-1]
        if bool((position != position[0]).any()):
            raise ValueError(
                f"The sequences of this state are at different positions ({position.tolist()}): with a stem, "
                f"frames are due at different times. Step sequences together that began together."
            )
        return int(position[0])


def _convolve(
    x: Tensor, histories: Sequence[Tensor], seen: int, stages: Sequence[_Stage]
) -> tuple[Tensor, list[Tensor]]:
    """The frames of a chunk after so many samples, and what each convolution still sees afterwards."""
    kept = []
    for number, (stage, history) in enumerate(zip(stages, histories, strict=True)):
        if number:
            x = F.gelu(x)
        signal = torch.cat([_fitted(history, stage.memory), x], dim=1)
        kept.append(signal[:, x.shape[1] :])
        first = -seen % stage.stride
        if first < x.shape[1]:
            columns = signal[:, first:].transpose(1, 2)
            x = F.conv1d(columns, stage.weight, stage.bias, stage.stride).transpose(1, 2)
        else:
            x = x.new_zeros(x.shape[0], 0, len(stage.bias))
        seen = math.ceil(seen / stage.stride)
    return unrounded(x, stages[-1].bias), kept


def _fitted(history: Float[Tensor, "B n I"], length: int) -> Float[Tensor, "B length I"]:
    """The last samples, with silence before them where there are not enough."""
    missing = length - history.shape[1]
    return F.pad(history, (0, 0, missing, 0)) if missing >= 0 else history[:, -missing:]


def _resampled(weight: Float[Tensor, "H I k"], rate: float) -> Float[Tensor, "H I n"]:
    """The kernel for samples `rate` apart: between them the signal is taken to be straight.

    A tap reads a point of time. Where there is no sample, it reads its two neighbours instead, so that a
    kernel need not be smooth to mean the same at every rate.
    """
    if rate == 1.0:
        return weight
    taps = weight.shape[2]
    times = torch.arange(taps, device=weight.device, dtype=weight.dtype)
    samples = rate * torch.arange(math.ceil((taps - 1) / rate) + 1, device=weight.device, dtype=weight.dtype)
    shares = (1 - (times[:, None] - samples).abs() / rate).clamp(min=0)
    with full_precision(weight):
        return (weight.flip(2) @ shares).flip(2)
