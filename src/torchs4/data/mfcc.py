"""Mel-frequency cepstral coefficients: a recording as a few smooth numbers per hundredth of a second.

Axes: B recordings, T samples, L windows, F frequencies of a window, M mel bands, C coefficients.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

# Keeps the logarithm finite in silence, and in bands too narrow to hold one of a window's frequencies.
_POWER_FLOOR = 1e-6


def mfcc(
    waveforms: Float[Tensor, "B T"],
    *,
    sample_rate: int = 16_000,
    coefficients: int = 20,
    mel_bands: int = 64,
    window: int = 200,
) -> Float[Tensor, "B L C"]:
    """Coefficients of samples between -1 and 1, in the samples' precision.

    Hann windows, the first centred on the first sample, half a window apart: 16,000 samples and the default
    window give 161 positions. What lies before the first sample and after the last is mirrored.
    """
    hop = window // 2
    if not waveforms.is_floating_point() or waveforms.ndim != 2 or waveforms.shape[1] <= hop:
        raise ValueError(
            f"waveforms are {waveforms.dtype} of shape {tuple(waveforms.shape)}; expected floating-point "
            f"numbers of shape (recordings, samples) with more than {hop} samples, half a window of {window}."
        )
    if not 0 < coefficients <= mel_bands:
        raise ValueError(
            f"coefficients is {coefficients}; it must lie between 1 and mel_bands, which is {mel_bands}."
        )
    spectrum = torch.stft(
        waveforms,
        n_fft=window,
        hop_length=hop,
        window=torch.hann_window(window, dtype=waveforms.dtype, device=waveforms.device),
        center=True,
        pad_mode="reflect",
        return_complex=True,
    )
    power = (spectrum.real.square() + spectrum.imag.square()).transpose(1, 2)
    filters = _mel_filters(window // 2 + 1, mel_bands, sample_rate).to(power)
    return (power @ filters + _POWER_FLOOR).log() @ _cosines(mel_bands, coefficients).to(power)


def _mel_filters(frequencies: int, bands: int, sample_rate: int) -> Float[Tensor, "F M"]:
    """Triangles of height 1 with corners equally far apart on HTK's mel scale, 2595·log10(1 + Hz/700)."""
    highest = sample_rate // 2
    hertz = torch.linspace(0, highest, frequencies, dtype=torch.float64)
    mels = torch.linspace(0, 2595 * math.log10(1 + highest / 700), bands + 2, dtype=torch.float64)
    corners = 700 * (10 ** (mels / 2595) - 1)
    width = corners.diff()
    distance = hertz[:, None] - corners
    rising = distance[:, :-2] / width[:-1]
    falling = -distance[:, 2:] / width[1:]
    return torch.minimum(rising, falling).clamp(min=0)


def _cosines(bands: int, coefficients: int) -> Float[Tensor, "M C"]:
    """The first columns of the orthonormal discrete cosine transform of type II."""
    middles = torch.arange(bands, dtype=torch.float64)[:, None] + 0.5
    cosines = torch.cos(math.pi / bands * middles * torch.arange(coefficients)) * math.sqrt(2 / bands)
    cosines[:, 0] *= math.sqrt(0.5)
    return cosines
