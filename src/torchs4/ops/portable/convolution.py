"""Long convolutions by torch.fft, some features at a time: spectra are several times as large as signals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Complex, Float

# How many numbers the padded signals of one group of features may have: 128 MB in single precision.
_GROUP_ELEMENTS = 2**25


def long_convolution(
    u: Float[Tensor, "B L H"],
    kernel: Float[Tensor, "M H L"],
    backward_kernel: Float[Tensor, "M H L"] | None,
    skip: Float[Tensor, "M H"] | None,
) -> Float[Tensor, "M B L H"]:
    """y_t = Σ_{j≤t} k_{t-j} u_j + Σ_{j≥0} k'_j u_{t+1+j} + D u_t, the last two where they are given."""
    length, size = u.shape[1], fast_size(2 * u.shape[1])
    parts = []
    for group in _groups(u, kernel, size):
        filters = _filters(kernel, backward_kernel, skip, group, size)
        spectrum = _spectrum(u[..., group], kernel.dtype, size)
        parts.append(torch.fft.irfft(filters[:, None] * spectrum, n=size)[..., :length].mT)
    return torch.cat(parts, dim=-1)


def long_convolution_backward(
    grad: Float[Tensor, "M B L H"],
    u: Float[Tensor, "B L H"],
    kernel: Float[Tensor, "M H L"],
    backward_kernel: Float[Tensor, "M H L"] | None,
    skip: Float[Tensor, "M H"] | None,
) -> list[Tensor]:
    """The gradients of `long_convolution` for the signal and each kernel: correlations.

    The gradient of the skip is that of the kernel's first sample.
    """
    length, size = u.shape[1], fast_size(2 * u.shape[1])
    u_grads, kernel_grads, backward_grads = [], [], []
    for group in _groups(u, kernel, size):
        filters = _filters(kernel, backward_kernel, skip, group, size)
        grad_spectrum = _spectrum(grad[..., group], kernel.dtype, size)
        back = (grad_spectrum * filters[:, None].conj_physical()).sum(0)
        u_grads.append(torch.fft.irfft(back, n=size)[..., :length].mT)
        spectrum = _spectrum(u[..., group], kernel.dtype, size).conj_physical()
        lags = torch.fft.irfft((grad_spectrum * spectrum).sum(1), n=size)
        kernel_grads.append(lags[..., :length])
        if backward_kernel is not None:
            # Lag -1-j sits at the end; the farthest lag reaches no sample.
            backward_grads.append(F.pad(lags[..., size - length + 1 :].flip(-1), (0, 1)))
    grads = [torch.cat(u_grads, dim=-1).to(u.dtype), torch.cat(kernel_grads, dim=1)]
    return [*grads, torch.cat(backward_grads, dim=1)] if backward_grads else grads


def fast_size(least: int) -> int:
    """The smallest size from `least` on that is 2^a, 3·2^a, 5·2^a, 9·2^a or 15·2^a: quick on every device."""
    sizes = []
    for odd in (1, 3, 5, 9, 15):
        size = 2 * odd
        while size < least:
            size *= 2
        sizes.append(size)
    return min(sizes)


def _groups(u: Tensor, kernel: Tensor, size: int) -> Iterator[slice]:
    H, rows = u.shape[2], max(u.shape[0], 1) * kernel.shape[0]
    width = max(1, _GROUP_ELEMENTS // (rows * size))
    for start in range(0, H, width):
        yield slice(start, min(start + width, H))


def _spectrum(signals: Float[Tensor, "... L h"], dtype: torch.dtype, size: int) -> Complex[Tensor, "... h K"]:
    return torch.fft.rfft(signals.to(dtype).mT, n=size)


def _filters(
    kernel: Tensor, backward_kernel: Tensor | None, skip: Tensor | None, group: slice, size: int
) -> Complex[Tensor, "M h K"]:
    lags = kernel[:, group]
    length = lags.shape[-1]
    if skip is not None:
        first = lags[..., :1] + skip[:, group, None].to(kernel.dtype)
        lags = torch.cat([first, lags[..., 1:]], dim=-1)
    if backward_kernel is not None:
        # Lag -1-j of a circular convolution sits at the end of the buffer.
        future = backward_kernel[:, group, : length - 1].flip(-1)
        lags = torch.cat([F.pad(lags, (0, size - 2 * length + 1)), future], dim=-1)
    return torch.fft.rfft(lags, n=size)
