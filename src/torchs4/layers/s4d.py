"""S4D: a diagonal state matrix, S4 without its low-rank correction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

from torchs4 import hippo, ops
from torchs4.configuration import merge_options, require_choice
from torchs4.layers.modal_layer import ModalLayer
from torchs4.layers.placement import drawn_on_cpu
from torchs4.layers.registry import register_layer
from torchs4.layers.signatures import lists_options
from torchs4.layers.ssm_layer import SSMConfig, SSMOptions
from torchs4.ssm import DISCRETIZATIONS, Discretization

if TYPE_CHECKING:
    import torch
    from jaxtyping import Float
    from torch import Tensor


@register_layer("s4d")
@dataclass(frozen=True)
class S4DConfig(SSMConfig):
    """Options of an S4D layer, beside those of torchs4.SSMConfig.

    start: "legs" (the normal part of S4's), "lin", "inv", "real" or "random" (the ablation).
    discretization: "zoh" (zero-order hold) or "bilinear".
    """

    start: str = "legs"
    discretization: Discretization = "zoh"

    def __post_init__(self) -> None:
        super().__post_init__()
        hippo.require_even(self.state_size)
        require_choice("start", self.start, hippo.DIAGONAL_STARTS)
        require_choice("discretization", self.discretization, DISCRETIZATIONS)

    def build(self, features: int) -> S4D:
        """The layer that this describes."""
        return S4D(features, self)


class S4DOptions(SSMOptions, total=False):
    """S4DConfig's fields, as keyword arguments that an editor completes."""

    start: str
    discretization: Discretization


class S4D(ModalLayer):
    """The S4D layer, (B, L, H) to (B, L, H): `S4D(256, start="lin")`, with S4DConfig's fields as options."""

    # Its kernel is cheaper than S4's.
    _blocks_pay_from = 4096

    @lists_options(S4DConfig)
    def __init__(
        self,
        features: int,
        config: S4DConfig | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Unpack[S4DOptions],
    ) -> None:
        with drawn_on_cpu(self, device, dtype):
            config = merge_options(S4DConfig, config, options)
            super().__init__(features, config, *hippo.diagonal_start(config.start, config.state_size))
            self.config = config

    def _kernel(self, length: int, rate: float) -> Float[Tensor, "M H L"]:
        A, B, dt = self._state_matrix(), self._input_matrix(), self._step_sizes(rate)
        return ops.diagonal_kernel(A, B, self.C, dt, length, self.config.discretization)

    def chunk_operators(self, block: int, rate: float) -> ops.ChunkOperators:
        A, B, dt = self._state_matrix(), self._input_matrix(), self._step_sizes(rate)
        return ops.diagonal_chunk_operators(A, B, self.C, dt, block, self.config.discretization)

    def _discrete(self, rate: float) -> ops.DiscreteDPLR:
        A, B, dt = self._state_matrix(), self._input_matrix(), self._step_sizes(rate)
        return ops.discretize_diagonal(A, B, dt, self.config.discretization)
