"""Gradients that keep only the inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.utils.checkpoint import checkpoint

from torchs4.ops.transforms import inside_transform

if TYPE_CHECKING:
    from collections.abc import Callable


def recomputed(function: Callable[..., Any], *inputs: Any) -> Any:
    """What the function gives; what its backward pass needs is computed again, not kept.

    A compiler decides by itself what to keep, and transforms of functions have to see everything.
    """
    if not torch.is_grad_enabled() or torch.compiler.is_compiling() or inside_transform():
        return function(*inputs)
    if not any(isinstance(x, torch.Tensor) and x.requires_grad for x in inputs):
        return function(*inputs)
    # Nothing is drawn at random: the generator's state need not be kept.
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)
