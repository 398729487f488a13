"""LSSL, S4's predecessor: the same system with a dense state matrix, whose powers are formed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

import torch
from torch import Tensor

from torchs4 import hippo, ops, ssm
from torchs4.configuration import merge_options, require_choice
from torchs4.layers.placement import drawn_on_cpu
from torchs4.layers.registry import register_layer
from torchs4.layers.signatures import lists_options
from torchs4.layers.ssm_layer import SSMConfig, SSMLayer, SSMOptions, real_parameter

if TYPE_CHECKING:
    from jaxtyping import Float


@register_layer("lssl")
@dataclass(frozen=True)
class LSSLConfig(SSMConfig):
    """Options of an LSSL layer, beside those of torchs4.SSMConfig.

    start: "legs" (shifted Legendre polynomials, LSSL's own), "legt", or for the ablations "gaussian" and
    "diagonal", whose matrices are random.
    discretization: "bilinear" or "zoh" (zero-order hold).
    """

    start: str = "legs"
    discretization: ssm.Discretization = "bilinear"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice("start", self.start, hippo.DENSE_STARTS)
        require_choice("discretization", self.discretization, ssm.DISCRETIZATIONS)

    def build(self, features: int) -> LSSL:
        """The layer that this describes."""
        return LSSL(features, self)


class LSSLOptions(SSMOptions, total=False):
    """LSSLConfig's fields, as keyword arguments that an editor completes."""

    start: str
    discretization: ssm.Discretization


class LSSL(SSMLayer):
    """The LSSL layer, (B, L, H) to (B, L, H). Each feature has its own transition matrix."""

    _system_names = ("A", "B", "C", "log_step_size")

    @lists_options(LSSLConfig)
    def __init__(
        self,
        features: int,
        config: LSSLConfig | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Unpack[LSSLOptions],
    ) -> None:
        with drawn_on_cpu(self, device, dtype):
            config = merge_options(LSSLConfig, config, options)
            super().__init__(features, config)
            self.config = config
            copies = features if config.per_feature else 1
            A, B = hippo.dense_start(config.start, config.state_size)
            self.A = real_parameter(A.repeat(copies, 1, 1), config.train_state_matrix)
            self.B = real_parameter(B.repeat(copies, 1), config.train_input_matrix)
            # Divided by √N: the states of an orthonormal basis are all read at once.
            C = torch.randn(config.output_rows, features, config.state_size)
            self.C = real_parameter(C / config.state_size**0.5, True)

    def _discrete(self, rate: float) -> tuple[ssm.DiscreteSSM, Float[Tensor, "M H N"]]:
        # Half precision has no linear solver.
        dtype = ops.kernel_dtype(self.C)
        A, B, C, dt = (x.to(dtype) for x in (self.A, self.B, self.C, self._step_sizes(rate)))
        system = ssm.discretize(
            A.expand(self.features, -1, -1), B.expand(self.features, -1), dt, self.config.discretization
        )
        return system, C

    def _kernel(self, length: int, rate: float) -> Float[Tensor, "M H L"]:
        system, C = self._discrete(rate)
        return ops.dense_kernel(*system, C, length)

    def _recurrence(self, rate: float) -> tuple[ssm.DiscreteSSM, Float[Tensor, "M H N"]]:
        return self._discrete(rate)

    def _advance(self, system: ssm.DiscreteSSM, C: Tensor, u: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return ops.dense_step(*system, C, self.D, u, state)

    def chunk_operators(self, block: int, rate: float) -> ops.ChunkOperators:
        system, C = self._discrete(rate)
        return ops.dense_chunk_operators(*system, C, block)
