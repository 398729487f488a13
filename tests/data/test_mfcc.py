import math

import pytest
import torch

from torchs4.data.mfcc import mfcc

# torchaudio 2.11.0 (with torch 2.13.0, default dtype float64):
# MFCC(log_mels=True, n_mfcc=20, melkwargs={"n_fft": 200, "n_mels": 64}) of the two waveforms below.
# fmt: off
ORACLE = {
    (0, 0): [-2.811797, 15.615334, -9.553389, -0.80333, -9.114856, -0.617843, -13.807328, -5.500314, -4.26298,
             0.021812, 2.577637, -6.817146, -0.634229, -5.318748, 4.171261, 0.514667, 0.344717, -0.737797,
             -2.118635, 2.457183],
    (0, 80): [-49.295994, 30.58816, -2.423137, -20.386604, -10.248237, 6.67671, -25.729652, -6.884123,
              -9.933742, 7.665147, 11.00936, -6.013858, 3.465414, -7.547818, 5.902179, 0.282922, -3.85257,
              1.049561, -4.094562, 5.772404],
    (1, 160): [1.561746, 8.408606, -2.481494, -8.815629, 0.771835, -4.67022, -13.301738, -5.210408, -7.91519,
               2.836566, 1.008131, -5.116833, -1.020992, -4.968822, 1.927029, 2.259754, 0.049643, 2.05136,
               -2.205153, -0.928087],
}
# fmt: on
# The oracle's numbers are written with six digits after the point.
WRITTEN = 1e-6
# Single precision loses this much to the logarithm of bands that hold almost nothing.
SINGLE_PRECISION = 2e-3


def three_sines() -> torch.Tensor:
    """Three steady sines, and the same growing from silence."""
    time = torch.arange(16_000, dtype=torch.float64) / 16_000
    tones = (
        0.5 * torch.sin(2 * math.pi * 440 * time)
        + 0.3 * torch.sin(2 * math.pi * 1320 * time + 1)
        + 0.1 * torch.sin(2 * math.pi * 5000 * time + 2)
    )
    return torch.stack([tones, tones * time])


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, WRITTEN), (torch.float32, SINGLE_PRECISION)]
)
def test_coefficients_are_torchaudios(dtype: torch.dtype, tolerance: float) -> None:
    coefficients = mfcc(three_sines().to(dtype))
    assert coefficients.shape == (2, 161, 20)
    assert coefficients.dtype == dtype
    for (recording, position), expected in ORACLE.items():
        received = coefficients[recording, position]
        torch.testing.assert_close(received, torch.tensor(expected, dtype=dtype), rtol=0, atol=tolerance)


def test_silence_is_finite_and_only_in_the_first_coefficient() -> None:
    coefficients = mfcc(torch.zeros(1, 16_000, dtype=torch.float64))
    # The sum of 64 equal logarithms, each weighted by 1/√64.
    torch.testing.assert_close(coefficients[..., 0], torch.full((1, 161), 8 * math.log(1e-6)).double())
    assert coefficients[..., 1:].abs().max() < 1e-9


def test_louder_means_a_larger_first_coefficient_and_nothing_else() -> None:
    noise = torch.randn(1, 16_000, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 1000
    difference = mfcc(2 * noise) - mfcc(noise)
    # Bands without a frequency stay at the floor, so 62 of 64 bands rise by log 4.
    assert (difference[..., 0] - 62 / 8 * math.log(4)).abs().max() < 1e-6


def test_recordings_do_not_touch_one_another() -> None:
    together = mfcc(three_sines())
    apart = torch.cat([mfcc(waveform[None]) for waveform in three_sines()])
    torch.testing.assert_close(together, apart, rtol=0, atol=1e-10)


def test_a_click_is_heard_in_the_windows_around_it() -> None:
    waveform = torch.zeros(1, 16_000, dtype=torch.float64)
    waveform[0, 5050] = 1
    changed = (mfcc(waveform) - mfcc(torch.zeros_like(waveform))).abs().amax(dim=(0, 2)) > 1e-3
    assert changed.nonzero().flatten().tolist() == [50, 51]


def test_options_decide_the_shape() -> None:
    short = mfcc(three_sines()[:, :1000], coefficients=5, mel_bands=10, window=64)
    assert short.shape == (2, 1000 // 32 + 1, 5)


def test_gradients_reach_the_samples() -> None:
    waveform = three_sines()[:1, :400].requires_grad_()
    mfcc(waveform).sum().backward()
    assert waveform.grad is not None
    assert waveform.grad.isfinite().all()
    assert waveform.grad.abs().min() > 0


@pytest.mark.parametrize(
    "waveforms",
    [
        torch.zeros(16_000),
        torch.zeros(2, 1, 16_000),
        torch.zeros(2, 100),
        torch.zeros(2, 500, dtype=torch.int16),
    ],
)
def test_what_is_no_batch_of_recordings_is_refused(waveforms: torch.Tensor) -> None:
    with pytest.raises(ValueError, match=r"expected floating-point numbers of shape \(recordings, samples\)"):
        mfcc(waveforms)


@pytest.mark.parametrize("coefficients", [0, 65])
def test_number_of_coefficients_is_bounded_by_the_bands(coefficients: int) -> None:
    with pytest.raises(ValueError, match=f"coefficients is {coefficients}; .* mel_bands, which is 64"):
        mfcc(torch.zeros(1, 16_000), coefficients=coefficients)
