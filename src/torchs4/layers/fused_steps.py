"""Steps of usual blocks without gradients, all of them in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from torchs4 import ops
from torchs4.layers.weight_cache import WeightCache, weight_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torchs4.layers.modal_layer import ModalLayer


class StepParts(NamedTuple):
    """What a usual block steps through, before GELU, gates and residual."""

    norm: nn.LayerNorm | nn.BatchNorm1d
    layer: ModalLayer
    mixing: nn.Linear


class FusedSteps:
    """Blocks made ready to step, and made ready again when their weights change."""

    def __init__(self) -> None:
        self._cache = WeightCache()

    def forget(self) -> None:
        """Make everything ready anew when it is next asked for."""
        self._cache.forget()

    def prepare(
        self,
        parts: Sequence[StepParts | None],
        x_t: Tensor,
        rate: float,
        final_norm: nn.LayerNorm | nn.BatchNorm1d | None = None,
    ) -> ops.PreparedBlocks | None:
        """The blocks and what follows them, ready to step; None where they have to go module by module.

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
        norms = [part.norm for part in usual]
        if final_norm is not None:
            norms.append(final_norm)
        systems = [weight for part in usual for weight in part.layer.system_weights()]
        plain = [weight for norm in norms for weight in _read_in_place(norm)]
        for _, layer, mixing in usual:
            plain += [weight_of(layer, "D"), weight_of(mixing, "weight"), weight_of(mixing, "bias")]
        how = ops.get_implementation(), ops.steps_in_triton()
        key = rate, tuple(norm.eps for norm in norms), x_t.dtype, x_t.device, how

        def build() -> ops.PreparedBlocks | None:
            # Parts that were moved or converted by themselves: PyTorch knows what to do, or what to say.
            if any(w.dtype != x_t.dtype or w.device != x_t.device or not w.is_contiguous() for w in plain):
                return None
            after = None if final_norm is None else _norm_weights(final_norm)
            return ops.prepare_blocks([_block_weights(part, rate) for part in usual], after)

        return self._cache.get("steps", key, systems, build, plain)


def _read_in_place(norm: nn.LayerNorm | nn.BatchNorm1d) -> list[Tensor]:
    weights = [weight_of(norm, "weight"), weight_of(norm, "bias")]
    if isinstance(norm, nn.BatchNorm1d):
        statistics: dict[str, Any] = norm._buffers
        weights += [statistics["running_mean"], statistics["running_var"]]
    return weights


def _norm_weights(norm: nn.LayerNorm | nn.BatchNorm1d) -> ops.NormWeights:
    weight, bias, *statistics = _read_in_place(norm)
    return ops.NormWeights(weight, bias, norm.eps, *statistics)


def _block_weights(part: StepParts, rate: float) -> ops.BlockWeights:
    norm, layer, mixing = part
    system, C = layer.recurrence(rate)
    return ops.BlockWeights(_norm_weights(norm), system, C, layer.D, mixing.weight, mixing.bias)
