"""Strided convolutions before the blocks: what frames see, at any sampling rate."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from torchs4 import S4BlockConfig, S4Config, SequenceModel
from torchs4.models.stem import Stem

FLOAT64_TOLERANCE = {"rtol": 1e-11, "atol": 1e-11}


def stem(*strides: int, inputs: int = 2) -> Stem:
    torch.manual_seed(0)
    return Stem(inputs, 5, strides).double()


def test_a_frame_is_a_causal_convolution_at_every_stride() -> None:
    module, x = stem(4), torch.randn(3, 21, 2, dtype=torch.float64)
    weight, bias = module.convolutions[0].weight, module.convolutions[0].bias
    whole = F.conv1d(F.pad(x.transpose(1, 2), (weight.shape[2] - 1, 0)), weight, bias).transpose(1, 2)
    torch.testing.assert_close(module(x, module.at_rate(1.0)), whole[:, ::4], **FLOAT64_TOLERANCE)


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 50])
@pytest.mark.parametrize("strides", [(4, 4), (3,), (2, 1, 3), (1,)])
def test_every_sequence_has_a_frame_for_each_stride_begun(length: int, strides: tuple[int, ...]) -> None:
    module = stem(*strides)
    frames = module(torch.randn(2, length, 2, dtype=torch.float64), module.at_rate(1.0))
    assert frames.shape == (2, math.ceil(length / math.prod(strides)), 5)


@pytest.mark.parametrize(
    ("rate", "stride", "left"),
    [(1.0, 16, 1.0), (2.0, 8, 1.0), (8.0, 2, 1.0), (0.5, 32, 1.0), (3.0, 5, 0.9375), (32.0, 1, 2.0)],
)
def test_strides_follow_the_rate_as_far_as_they_can(rate: float, stride: int, left: float) -> None:
    at_rate = stem(4, 4).at_rate(rate)
    assert at_rate.stride == stride
    assert at_rate.rate == pytest.approx(left)


@pytest.mark.parametrize("rate", [2, 4, 0.5])
def test_a_smooth_signal_gives_the_same_frames_at_another_rate(rate: float) -> None:
    # Its kernels are random, as rough as can be: it is the signal that has to be smooth.
    module = stem(8, inputs=1)

    def frames(rate: float) -> torch.Tensor:
        time = torch.arange(0, 400, rate, dtype=torch.float64)
        x = (torch.sin(time / 40) + 0.5 * torch.cos(time / 25))[None, :, None]
        return module(x, module.at_rate(rate))

    full, other = frames(1.0), frames(rate)
    assert full.shape == other.shape
    # Frames of the beginning see silence before it, which is no smooth signal.
    error = (full - other)[:, 3:].abs().max() / full.abs().max()
    assert error < 3e-3


def build(**options: object) -> SequenceModel:
    torch.manual_seed(0)
    block = S4BlockConfig(layer=S4Config(state_size=8))
    return SequenceModel(input_features=1, output_size=2, features=4, block=block, **options).double().eval()  # type: ignore[arg-type]


@pytest.mark.parametrize("pooling", ["mean", "last", "shares", "none"])
@pytest.mark.parametrize("rate", [1.0, 2.0, 1.7, 0.5])
def test_chunks_of_any_size_and_steps_agree_at_every_rate(pooling: str, rate: float) -> None:
    model, x = build(stem=(2, 3), pooling=pooling), torch.randn(2, 40, 1, dtype=torch.float64)
    with torch.no_grad():
        whole = model(x, rate=rate)
        chunks, state = [], None
        for start, stop in ((0, 1), (1, 3), (3, 4), (4, 17), (17, 40)):
            y, state = model.prefill(x[:, start:stop], state, rate)
            chunks.append(y)
        steps, state = [], model.initial_state(2)
        for position in range(40):
            y, state = model.step(x[:, position], state, rate)
            steps.append(y)
    chunked = torch.cat(chunks, 1) if pooling == "none" else chunks[-1]
    stepped = torch.stack(steps, 1) if pooling == "none" else steps[-1]
    torch.testing.assert_close(chunked, whole, **FLOAT64_TOLERANCE)
    torch.testing.assert_close(stepped, whole, **FLOAT64_TOLERANCE)


def test_padding_before_the_signal_is_refused() -> None:
    model, x = build(stem=(4,)), torch.randn(2, 12, 1, dtype=torch.float64)
    mask = torch.ones(2, 12, dtype=torch.bool)
    mask[1, 0] = False
    with pytest.raises(ValueError, match="takes padding at the end only"):
        model(x, mask=mask)


def test_sequences_at_different_positions_are_refused() -> None:
    model = build(stem=(4,))
    state = model.initial_state(2)
    state["stem"] = (*state["stem"][:-1], torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=r"at different positions \(\[0, 1\]\)"):
        model.step(torch.zeros(2, 1, dtype=torch.float64), state)
