"""Dropout whose mask is a hash of places."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float, Int

_32_BITS = 0xFFFFFFFF


def dropout(x: Float[Tensor, "*shape"], seed: Int[Tensor, ""], probability: float) -> Float[Tensor, "*shape"]:
    """Each number becomes 0 with this probability, the others grow to make up for it.

    Number i stays where a 32-bit hash of i and the seed reaches the probability. The gradient is the same
    function of the gradient.
    """
    number = torch.arange(x.numel(), device=x.device)
    # The halves of the seed are two keys; numbers beyond the first 2³² would repeat.
    key = (seed >> 32) + (number >> 32)
    bits = _mixed(((number & _32_BITS) + (seed & _32_BITS)) & _32_BITS)
    bits = _mixed(bits ^ (key & _32_BITS))
    stays = (bits >= round(probability * 2**32)).view(x.shape)
    return torch.where(stays, x * (1 / (1 - probability)), 0)


def _mixed(bits: Int[Tensor, " n"]) -> Int[Tensor, " n"]:
    """A hash of 32 bits in which every bit of the input reaches every bit of the output."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        bits = bits ^ (bits >> shift)
        bits = (bits * factor) & _32_BITS
    return bits ^ (bits >> 16)
