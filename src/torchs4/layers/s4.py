"""S4: a state matrix that is diagonal plus low rank, started from HiPPO."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Unpack

import torch
from torch import Tensor

from torchs4 import hippo, ops
from torchs4.configuration import merge_options, require_at_least, require_choice
from torchs4.layers.modal_layer import ModalLayer
from torchs4.layers.placement import drawn_on_cpu
from torchs4.layers.registry import register_layer
from torchs4.layers.signatures import lists_options
from torchs4.layers.ssm_layer import SSMConfig, SSMOptions, real_parameter

if TYPE_CHECKING:
    from jaxtyping import Complex, Float

# Extra corrections, when `rank` exceeds what the start needs: small enough to keep the start, not zero
# because the gradient of P P* vanishes there.
_EXTRA_RANK_SCALE = 1e-2


@register_layer("s4")
@dataclass(frozen=True)
class S4Config(SSMConfig):
    """Options of an S4 layer, beside those of torchs4.SSMConfig.

    start: "legs" (the paper's), "legt" (a sliding window) or "random" (the ablation).
    rank: of the low-rank correction; None takes what the start needs (legt 2, the others 1).
    discretization: the bilinear rule is the only one that keeps A diagonal plus low rank.
    """

    start: str = "legs"
    rank: int | None = None
    discretization: str = "bilinear"

    def __post_init__(self) -> None:
        super().__post_init__()
        hippo.require_even(self.state_size)
        require_choice("start", self.start, hippo.DPLR_STARTS)
        if self.discretization != "bilinear":
            raise ValueError(
                f"discretization is {self.discretization!r}; S4 offers 'bilinear' only, because no other "
                f"rule keeps its state matrix diagonal plus low rank. S4D and LSSL offer 'zoh' too."
            )

    def build(self, features: int) -> S4:
        """The layer that this describes."""
        return S4(features, self)


class S4Options(SSMOptions, total=False):
    """S4Config's fields, as keyword arguments that an editor completes."""

    start: str
    rank: int | None
    discretization: str


class S4(ModalLayer):
    """The S4 layer, (B, L, H) to (B, L, H): `S4(256, state_size=64)`, with S4Config's fields as options."""

    _system_names = (*ModalLayer._system_names, "P")
    _blocks_pay_from = 2048

    @lists_options(S4Config)
    def __init__(
        self,
        features: int,
        config: S4Config | None = None,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        **options: Unpack[S4Options],
    ) -> None:
        with drawn_on_cpu(self, device, dtype):
            config = merge_options(S4Config, config, options)
            Lambda, P, B = hippo.dplr_start(config.start, config.state_size)
            super().__init__(features, config, Lambda, B)
            self.config = config
            P = torch.view_as_real(_with_rank(P, config.rank))
            # P = Q, the tied form: A stays dissipative whatever training does.
            self.P = real_parameter(P[:, None].repeat(1, self.copies, 1, 1), config.train_state_matrix)

    def _kernel(self, length: int, rate: float) -> Float[Tensor, "M H L"]:
        A, P, B, dt = self._continuous(rate)
        return ops.dplr_kernel(A, P, P, B, self.C, dt, length)

    def chunk_operators(self, block: int, rate: float) -> ops.ChunkOperators:
        A, P, B, dt = self._continuous(rate)
        return ops.dplr_chunk_operators(A, P, P, B, self.C, dt, block)

    def _discrete(self, rate: float) -> ops.DiscreteDPLR:
        A, P, B, dt = self._continuous(rate)
        return ops.discretize_dplr(A, P, P, B, dt)

    def _continuous(self, rate: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        P = self.P.expand(-1, self.features, -1, -1)
        return self._state_matrix(), P, self._input_matrix(), self._step_sizes(rate)


def _with_rank(P: Complex[Tensor, "R n"], rank: int | None) -> Complex[Tensor, "rank n"]:
    needed = P.shape[0]
    if rank is None:
        return P
    require_at_least("rank", rank, needed)
    extra = torch.randn(rank - needed, P.shape[1], dtype=P.dtype)
    return torch.cat([P, _EXTRA_RANK_SCALE * extra])
