"""What S4 costs without this library's operators: the kernel written out over features, modes and nodes."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from torchs4 import S4


def naive_dplr_kernel(A: Tensor, P: Tensor, B: Tensor, C_tilde: Tensor, dt: Tensor, length: int) -> Tensor:
    """The Cauchy products as one tensor of 4·H·N·(L/2+1) complex numbers, from the C̃ of this length.

    Complex float32 inputs: A (n), P (n), B (n) shared, C̃ (H, n), dt (H). Returns (H, L).
    """
    omega = torch.exp(-2j * math.pi * torch.arange(length // 2 + 1) / length)
    # A tiny shift keeps the Nyquist frequency off the pole at ω = -1.
    z = 2 * (1 - omega) / (1 + omega + 1e-7)
    scaled = dt[:, None] * A
    columns = torch.stack([B.expand(len(dt), -1), P.expand(len(dt), -1)])
    rows = torch.stack([C_tilde, P.conj().expand(len(dt), -1)])
    products = rows[:, None] * columns * dt[:, None]
    products = torch.cat([products, products.conj()], dim=-1)
    modes = torch.cat([scaled, scaled.conj()], dim=-1)
    sums = (products[..., None] / (z - modes[..., None])).sum(-2)
    spectrum = sums[0, 0] - sums[0, 1] * sums[1, 0] / (1 + sums[1, 1])
    return torch.fft.irfft(spectrum * (2 / (1 + omega + 1e-7)), n=length)


def naive_diagonal_kernel(A: Tensor, B: Tensor, C: Tensor, dt: Tensor, length: int) -> Tensor:
    """Zero-order hold with one exponential for each of H·n·L elements."""
    scaled = dt[:, None] * A
    weights = C * B * torch.expm1(scaled) / A
    powers = torch.exp(scaled[..., None] * torch.arange(length))
    return 2 * torch.einsum("hn,hnl->hl", weights, powers).real


def torch_fft_convolution(u: Tensor, kernel: Tensor) -> Tensor:
    """(B, H, L) with (H, L): the usual three lines."""
    length = u.shape[-1]
    spectrum = torch.fft.rfft(u, n=2 * length) * torch.fft.rfft(kernel, n=2 * length)
    return torch.fft.irfft(spectrum, n=2 * length)[..., :length]


class NaiveBlock(nn.Module):
    """Kernel, convolution, GELU, GLU mixing and residual, written naively around an S4 layer's weights."""

    def __init__(self, layer: S4) -> None:
        super().__init__()
        self.layer = layer
        self.norm = nn.LayerNorm(layer.features)
        self.mixing = nn.Conv1d(layer.features, 2 * layer.features, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, H) to (B, L, H); inside, features come before the length as public code has it."""
        layer = self.layer
        parameters = naive_parameters(layer)
        u = self.norm(x).transpose(1, 2)
        y = torch_fft_convolution(u, naive_dplr_kernel(*parameters, x.shape[1]))
        y = nn.functional.gelu(y + layer.D.T * u)
        return x + nn.functional.glu(self.mixing(y), dim=1).transpose(1, 2)


def naive_parameters(layer: S4) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """A layer's weights as complex numbers; its C stands in for C̃, which costs the same."""
    A = torch.complex(-layer.log_decay.exp(), layer.frequency)[0]
    P, B, C = (torch.view_as_complex(x) for x in (layer.P[0, 0], layer.B[0], layer.C[0]))
    return A, P, B, C, layer.log_step_size.exp()
