"""What S4 and S4D share: modes, one of each conjugate pair, and their O(N) recurrence."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchs4 import ops
from torchs4.layers.ssm_layer import SSMConfig, SSMLayer, real_parameter

if TYPE_CHECKING:
    from jaxtyping import Complex, Float

# LegT's modes do not decay by themselves (the low-rank part does it for them); a logarithm needs a little.
_LEAST_DECAY = 1e-4


class ModalLayer(SSMLayer):
    """Modes Λ = -exp(log_decay) + i·frequency, so that every mode stays stable while it trains."""

    _system_names: tuple[str, ...] = ("log_decay", "frequency", "B", "C", "log_step_size")

    def __init__(
        self,
        features: int,
        config: SSMConfig,
        Lambda: Complex[Tensor, " n"],
        B: Complex[Tensor, " n"],
    ) -> None:
        super().__init__(features, config)
        self.copies = features if config.per_feature else 1
        trains_a = config.train_state_matrix
        decay = (-Lambda.real).clamp(min=_LEAST_DECAY)
        self.log_decay = real_parameter(decay.log().repeat(self.copies, 1), trains_a)
        self.frequency = real_parameter(Lambda.imag.repeat(self.copies, 1), trains_a)
        self.B = real_parameter(torch.view_as_real(B).repeat(self.copies, 1, 1), config.train_input_matrix)
        C = torch.randn(config.output_rows, features, config.state_size // 2, dtype=torch.complex64)
        self.C = real_parameter(torch.view_as_real(C), True)

    @abstractmethod
    def _discrete(self, rate: float) -> ops.DiscreteDPLR: ...

    def _state_matrix(self) -> Float[Tensor, "H n 2"]:
        pairs = torch.stack([-self.log_decay.exp(), self.frequency], dim=-1)
        return pairs.expand(self.features, -1, -1)

    def _input_matrix(self) -> Float[Tensor, "H n 2"]:
        return self.B.expand(self.features, -1, -1)

    def _recurrence(self, rate: float) -> tuple[ops.DiscreteDPLR, Float[Tensor, "M H N"]]:
        dtype = ops.kernel_dtype(self.C)
        system = ops.DiscreteDPLR(*(part.to(dtype) for part in self._discrete(rate)))
        return system, ops.output_row(self.C).to(dtype)

    def _advance(
        self, system: ops.DiscreteDPLR, C: Tensor, u: Tensor, state: Tensor
    ) -> tuple[Tensor, Tensor]:
        return ops.dplr_step(system, C, self.D, u, state)
