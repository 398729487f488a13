"""From continuous to discrete time in single precision, without the cancellations that would need double.

Axes: H features, n = N/2 stored modes, N state size, R rank, M output channels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from torchs4.ops.dtypes import kernel_dtype
from torchs4.ops.forms import DiscreteDPLR
from torchs4.ops.portable.pairs import Pair, exact_product, exact_sum, pair_sum
from torchs4.ops.portable.polar import PolarModes, polar_modes

if TYPE_CHECKING:
    from jaxtyping import Float

    from torchs4.ssm import Discretization


class PolarSystem(NamedTuple):
    """A discrete DPLR system Ā = a - p q, as real pairs; the modes a as in polar.PolarModes."""

    log_size: Float[Tensor, "H n"]
    turns: Float[Tensor, "H n"]
    turns_rest: Float[Tensor, "H n"]
    p: Float[Tensor, "R H n 2"]
    q: Float[Tensor, "R H n 2"]
    b: Float[Tensor, "H n 2"]


class WeighedModes(NamedTuple):
    """The modes of a diagonal system and their weights C·b, of which its kernel is the sum."""

    log_size: Float[Tensor, "H n"]
    turns: Float[Tensor, "H n"]
    turns_rest: Float[Tensor, "H n"]
    weights: Float[Tensor, "M H n 2"]


def bilinear(
    A: Float[Tensor, "H n 2"],
    P: Float[Tensor, "R H n 2"],
    Q: Float[Tensor, "R H n 2"],
    B: Float[Tensor, "H n 2"],
    dt: Float[Tensor, " H"],
) -> PolarSystem:
    """The bilinear rule for A = Λ - P Q*. Differentiable."""
    dtype = kernel_dtype(A)
    A_, P_, Q_, B_ = (Pair.of(x, dtype) for x in (A, P, Q, B))
    step = dt.to(dtype)[:, None]
    rate = 2 / step
    E = Pair(rate - A_.re, -A_.im).reciprocal()
    modes = polar_modes(A_, step, "bilinear")
    if P.shape[0] == 0:
        nothing = P.new_zeros(P.shape, dtype=dtype)
        return PolarSystem(*modes, nothing, nothing, E.times(B_).scaled(2).stacked())
    EP, QE = E.times(P_), Q_.conj().times(E)
    inverse = _inverse_of_one_plus(_all_products(QE, P_))
    shares = inverse.permute(1, 2, 0)[..., None]
    p = Pair(*((part[:, None] * shares).sum(0) for part in EP)).scaled(2 * rate)
    # b = 2 E (B - P (1 + X)⁻¹ Q E B). In HiPPO B is P times a number c, up to rounding, and the two terms
    # nearly cancel. With B = c P + B', for whatever c, the difference is B' + P (1 + X)⁻¹ (c - Q E B').
    c = _projection(P_, B_)
    rest = _without(B_, c, P_)
    pull = c - pair_sum(QE, rest).T
    gain = (inverse * pull[:, None]).sum(-1).T[..., None]
    b = rest.plus(Pair(*((gain * part).sum(0) for part in P_))).times(E).scaled(2)
    return PolarSystem(*modes, *(x.stacked() for x in (p, QE, b)))


def diagonal_system(
    A: Float[Tensor, "H n 2"], B: Float[Tensor, "H n 2"], dt: Float[Tensor, " H"], method: Discretization
) -> PolarSystem:
    """What `bilinear` returns, for a diagonal A and either rule."""
    no_correction = A.new_zeros(0, *A.shape, dtype=kernel_dtype(A))
    modes, b = _diagonal(A, B, dt, method)
    return PolarSystem(*modes, no_correction, no_correction, b.stacked())


def power_system(
    A: Float[Tensor, "H n 2"],
    B: Float[Tensor, "H n 2"],
    C: Float[Tensor, "M H n 2"],
    dt: Float[Tensor, " H"],
    method: Discretization,
) -> WeighedModes:
    """The modes of a diagonal system, whose powers are its kernel. Differentiable."""
    modes, b = _diagonal(A, B, dt, method)
    return WeighedModes(*modes, Pair.of(C, kernel_dtype(C)).times(b).stacked())


def discretize_dplr(A: Tensor, P: Tensor, Q: Tensor, B: Tensor, dt: Tensor) -> DiscreteDPLR:
    """The bilinear rule for A = Λ - P Q*, ready to step."""
    return as_real_system(bilinear(A, P, Q, B, dt))


def discretize_diagonal(A: Tensor, B: Tensor, dt: Tensor, method: Discretization) -> DiscreteDPLR:
    """The bilinear rule or zero-order hold for a diagonal A, ready to step."""
    return as_real_system(diagonal_system(A, B, dt, method))


def output_row(C: Float[Tensor, "M H n 2"]) -> Float[Tensor, "M H N"]:
    """The real row that reads 2·Re Σ C x from an interleaved state."""
    re, im = C.unbind(-1)
    return torch.stack([2 * re, -2 * im], dim=-1).flatten(-2)


def as_real_system(system: PolarSystem) -> DiscreteDPLR:
    """The system in real numbers, as it acts on interleaved states."""
    a = PolarModes(*system[:3]).power(1).stacked()
    return DiscreteDPLR(a, system.p.flatten(-2), output_row(system.q), system.b.flatten(-2))


def _diagonal(A: Tensor, B: Tensor, dt: Tensor, method: Discretization) -> tuple[PolarModes, Pair]:
    dtype = kernel_dtype(A)
    A_, B_, step = Pair.of(A, dtype), Pair.of(B, dtype), dt.to(dtype)[:, None]
    modes = polar_modes(A_, step, method)
    if method == "bilinear":
        # b = Δ B / (1 - Δλ/2)
        return modes, Pair(2 / step - A_.re, -A_.im).reciprocal().scaled(2).times(B_)
    # b = (a - 1)/λ B
    return modes, modes.change(1).times(A_.reciprocal()).times(B_)


def _all_products(v: Pair, w: Pair) -> Float[Tensor, "H R S"]:
    """The sums over all modes of each of R vectors with each of S."""
    return pair_sum(Pair(v.re[:, None], v.im[:, None]), w).permute(2, 0, 1)


def _inverse_of_one_plus(X: Float[Tensor, "H R R"]) -> Float[Tensor, "H R R"]:
    if X.shape[-1] == 1:
        return 1 / (1 + X)
    identity = torch.eye(X.shape[-1], dtype=X.dtype, device=X.device)
    # Unlike `inv` it does not wait for the device to say whether there is an inverse.
    return torch.linalg.inv_ex(identity + X).inverse


@torch.no_grad()
def _projection(P: Pair, B: Pair) -> Float[Tensor, "H R"]:
    """The c for which c P comes close to B."""
    products = _all_products(P.conj(), P)
    size = products.diagonal(dim1=-2, dim2=-1).amax(-1)
    # A little more than nothing, for corrections that are zero or alike.
    ridge = (
        torch.eye(products.shape[-1], dtype=size.dtype, device=size.device)
        * (1e-6 * size + 1e-30)[:, None, None]
    )
    inverse = torch.linalg.inv_ex(products + ridge).inverse
    return (inverse * pair_sum(P.conj(), B).T[:, None]).sum(-1)


def _without(B: Pair, c: Float[Tensor, "H R"], P: Pair) -> Pair:
    """B - c P, with the digits that rounding c P would lose."""
    whole = torch.stack(B)
    rest = torch.zeros_like(whole)
    for columns, factor in zip(torch.stack(P, dim=1), c.unbind(-1), strict=True):
        product, product_rest = exact_product(columns, factor[:, None].expand_as(columns))
        whole, sum_rest = exact_sum(whole, -product)
        rest = rest + sum_rest - product_rest
    return Pair(*(whole + rest))
