"""Long convolutions by torch.fft."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchs4.ops.reference.contour import fast_transform_length

if TYPE_CHECKING:
    from jaxtyping import Complex, Float


def long_convolution(
    u: Float[Tensor, "B L H"],
    kernel: Float[Tensor, "M H L"],
    backward_kernel: Float[Tensor, "M H L"] | None,
    skip: Float[Tensor, "M H"] | None,
) -> Float[Tensor, "M B L H"]:
    """y_t = Σ_{j≤t} k_{t-j} u_j + Σ_{j≥0} k'_j u_{t+1+j} + D u_t, the last two where they are given."""
    size = fast_transform_length(2 * u.shape[1])
    spectrum = _signal_spectrum(u, kernel.dtype, size) * _kernel_spectrum(kernel, backward_kernel, skip, size)
    y = torch.fft.irfft(spectrum, n=size)[..., : u.shape[1]]
    return y.permute(1, 0, 3, 2).contiguous()


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
    length = u.shape[1]
    size = fast_transform_length(2 * length)
    grad_spectrum = torch.fft.rfft(grad.to(kernel.dtype).permute(1, 0, 3, 2), n=size)
    filters = _kernel_spectrum(kernel, backward_kernel, skip, size)
    u_grad = torch.fft.irfft((grad_spectrum * filters.conj_physical()).sum(1), n=size)[..., :length]
    signal = _signal_spectrum(u, kernel.dtype, size)
    lags = torch.fft.irfft((grad_spectrum * signal.conj_physical()).sum(0), n=size)
    grads = [u_grad.transpose(1, 2).to(u.dtype, memory_format=torch.contiguous_format), lags[..., :length]]
    if backward_kernel is not None:
        # Lag -1-j sits at the end; the farthest lag reaches no sample.
        future = lags[..., size - length + 1 :].flip(-1)
        grads.append(torch.nn.functional.pad(future, (0, 1)))
    return [g.contiguous() for g in grads]


def _signal_spectrum(u: Tensor, dtype: torch.dtype, size: int) -> Complex[Tensor, "B 1 H K"]:
    return torch.fft.rfft(u.to(dtype).transpose(1, 2), n=size)[:, None]


def _kernel_spectrum(
    kernel: Tensor, backward_kernel: Tensor | None, skip: Tensor | None, size: int
) -> Complex[Tensor, "M H K"]:
    spectrum = torch.fft.rfft(kernel, n=size)
    if skip is not None:
        spectrum = spectrum + skip.to(kernel.dtype)[..., None]
    if backward_kernel is None:
        return spectrum
    length = kernel.shape[-1]
    # Lag -1-j of a circular convolution sits at the end of the buffer.
    reversed_kernel = backward_kernel[..., : length - 1].flip(-1)
    return spectrum + torch.fft.rfft(torch.nn.functional.pad(reversed_kernel, (size - length + 1, 0)))
