"""The circle on which a kernel's generating function is evaluated, and the way back to samples.

Axes: M output channels, H features, L length, K nodes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Complex, Float


class Contour(NamedTuple):
    """Nodes z = r·exp(-2πik/size) that see a kernel's first samples and next to nothing of the others.

    What aliases into sample l is r^size·K[l + size]; what rounding grows by is r^-length. Sums are in
    float64, so a float32 kernel affords r^size = 1e-8 with no more nodes than samples: both errors stay
    near 1e-8. A float64 kernel takes four times the nodes and r^size = 1e-16: both stay near 1e-12.
    """

    size: int
    length: int
    log_radius: float

    @classmethod
    def around(cls, length: int, dtype: torch.dtype) -> Contour:
        """The contour for a kernel of that many samples in float32 or float64."""
        if dtype == torch.float64:
            size, aliased = fast_transform_length(4 * length), 1e-16
        else:
            size, aliased = fast_transform_length(length), 1e-8
        return cls(size, length, math.log(aliased) / size)

    @property
    def half(self) -> int:
        """How many nodes there are: half the circle, because kernels are real."""
        return self.size // 2 + 1

    def nodes(
        self, start: int, stop: int, device: torch.device
    ) -> tuple[Complex[Tensor, " K"], Complex[Tensor, " K"]]:
        """Some of the nodes: z, and 1 - z without cancellation."""
        radius = math.exp(self.log_radius)
        angle = torch.arange(start, stop, dtype=torch.float64, device=device) * (2 * math.pi / self.size)
        z = torch.polar(torch.full_like(angle, radius), -angle)
        real = 2 * radius * torch.sin(angle / 2) ** 2 - math.expm1(self.log_radius)
        return z, torch.complex(real, radius * torch.sin(angle))

    def samples(self, spectrum: Complex[Tensor, "M H K"]) -> Float[Tensor, "M H L"]:
        """The kernel whose generating function has these values at the nodes."""
        damped = torch.fft.irfft(spectrum, n=self.size)[..., : self.length]
        return damped * self._growth(spectrum.device)

    def samples_backward(self, grad: Float[Tensor, "M H L"]) -> Complex[Tensor, "M H K"]:
        """The adjoint of `samples`."""
        spectrum = torch.fft.rfft(grad.double() * self._growth(grad.device), n=self.size) / self.size
        # Every node between the two real ones stands for its mirror image too.
        spectrum[..., 1:-1] *= 2
        return spectrum

    def _growth(self, device: torch.device) -> Float[Tensor, " L"]:
        steps = torch.arange(self.length, dtype=torch.float64, device=device)
        return torch.exp(-self.log_radius * steps)


def fast_transform_length(minimum: int) -> int:
    """The smallest even number ≥ minimum with no prime factor above 5."""
    best = 1 << max(1, (minimum - 1).bit_length())
    five = 1
    while five < best:
        three = five
        while three < best:
            rest = -(-minimum // three)
            even = three * (1 << max(1, (rest - 1).bit_length()))
            if minimum <= even < best:
                best = even
            three *= 3
        five *= 5
    return best
