"""Steps of usual blocks without gradients, all of them in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from torchs4 import ops
from torchs4.layers.weight_cache import WeightCache, weight_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchs4.layers.modal_layer import ModalLayer


class StepParts(NamedTuple):
    """What a usual block steps through, before GELU, gates and residual."""

    norm: nn.LayerNorm
    layer: ModalLayer
    mixing: nn.Linear


class FusedSteps:
    """Blocks made ready to step, and made ready again when their weights change."""

    def __init__(self) -> None:
        self._cache = WeightCache()

    def prepare(
        self, parts: Sequence[StepParts | None], x_t: Tensor, rate: float
    ) -> ops.PreparedBlocks | None:
        """The blocks, ready to step; None where they have to go module by module.

        parts: of each block, or None for an unusual one.
        """
        if (
            # Gradients, compilers and transforms of functions want plain operations.
            torch.is_grad_enabled()
            or torch.compiler.is_compiling()
            or ops.inside_transform()
            or x_t.dtype not in (torch.float32, torch.float64)
            or torch.is_autocast_enabled(x_t.device.type)
        ):
            return None
        usual = [part for part in parts if part is not None]
        if len(usual) < len(parts):
            return None
        systems, plain, epsilons = [], [], []
        for norm, layer, mixing in usual:
            # A hook wants to be called: old-style weight norm and pruning compute the weight in one.
            if norm._forward_pre_hooks or norm._forward_hooks:
                return None
            if mixing._forward_pre_hooks or mixing._forward_hooks:
                return None
            epsilons.append(norm.eps)
            systems += layer.system_weights()
            plain += [weight_of(norm, "weight"), weight_of(norm, "bias"), weight_of(layer, "D")]
            plain += [weight_of(mixing, "weight"), weight_of(mixing, "bias")]
        key = rate, tuple(epsilons), x_t.dtype, x_t.device, ops.get_implementation()

        def build() -> ops.PreparedBlocks | None:
            # Parts that were moved or converted by themselves: PyTorch knows what to do, or what to say.
            if any(w.dtype != x_t.dtype or w.device != x_t.device or not w.is_contiguous() for w in plain):
                return None
            return ops.prepare_blocks([_weights_of(part, rate) for part in usual])

        return self._cache.get("steps", key, systems, build, plain)


def _weights_of(part: StepParts, rate: float) -> ops.BlockWeights:
    norm, layer, mixing = part
    system, C = layer.recurrence(rate)
    return ops.BlockWeights(norm.weight, norm.bias, norm.eps, system, C, layer.D, mixing.weight, mixing.bias)
