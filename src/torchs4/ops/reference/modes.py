"""Modes as complex numbers. One stored mode stands for a conjugate pair."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Complex, Float


class ModalSystem(NamedTuple):
    """The discrete system in complex form. `decay` is 1 - a, kept apart because a is close to 1."""

    decay: Complex[Tensor, "H n"]
    p: Complex[Tensor, "R H n"]
    q: Complex[Tensor, "R H n"]
    b: Complex[Tensor, "H n"]


def as_complex(pairs: Float[Tensor, "*shape 2"]) -> Complex[Tensor, "*shape"]:
    """Real pairs as double-precision complex numbers."""
    if pairs.numel() == 0:
        # An empty tensor is contiguous whatever its strides; the view asks for usual ones.
        return pairs.new_zeros(pairs.shape[:-1], dtype=torch.complex128)
    return torch.view_as_complex(pairs.double().contiguous())


def pair_sum(equation: str, v: Tensor, w: Tensor) -> Tensor:
    """A sum over all modes from the stored half of them."""
    return 2 * torch.einsum(equation, v, w).real
