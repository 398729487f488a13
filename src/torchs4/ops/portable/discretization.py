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

if TYPE_CHECKING:
    from jaxtyping import Float

    from torchs4.ssm import Discretization


class NearSystem(NamedTuple):
    """A discrete DPLR system Ā = a - p q, as real pairs.

    decay, growth: 1 - a and 1 + a, each with all its digits: one is tiny for slow modes, the other for those
    near the Nyquist frequency.
    """

    decay: Float[Tensor, "H n 2"]
    growth: Float[Tensor, "H n 2"]
    p: Float[Tensor, "R H n 2"]
    q: Float[Tensor, "R H n 2"]
    b: Float[Tensor, "H n 2"]


def bilinear(
    A: Float[Tensor, "H n 2"],
    P: Float[Tensor, "R H n 2"],
    Q: Float[Tensor, "R H n 2"],
    B: Float[Tensor, "H n 2"],
    dt: Float[Tensor, " H"],
) -> NearSystem:
    """The bilinear rule for A = Λ - P Q*. Differentiable."""
    dtype = kernel_dtype(A)
    A_, P_, Q_, B_ = (Pair.of(x, dtype) for x in (A, P, Q, B))
    rate = 2 / dt.to(dtype)[:, None]
    E = Pair(rate - A_.re, -A_.im).reciprocal()
    decay, growth = E.times(A_).scaled(-2), E.scaled(2 * rate)
    if P.shape[0] == 0:
        nothing = P.new_zeros(P.shape, dtype=dtype)
        return NearSystem(
            decay.stacked(), growth.stacked(), nothing, nothing, E.times(B_).scaled(2).stacked()
        )
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
    return NearSystem(*(x.stacked() for x in (decay, growth, p, QE, b)))


def diagonal_system(
    A: Float[Tensor, "H n 2"], B: Float[Tensor, "H n 2"], dt: Float[Tensor, " H"], method: Discretization
) -> NearSystem:
    """What `bilinear` returns, for a diagonal A and either rule."""
    no_correction = A.new_zeros(0, *A.shape)
    if method == "bilinear":
        return bilinear(A, no_correction, no_correction, B, dt)
    decay, growth, b = hold(A, B, dt, method)
    return NearSystem(decay.stacked(), growth.stacked(), no_correction, no_correction, b.stacked())


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


def as_real_system(system: NearSystem) -> DiscreteDPLR:
    """The system in real numbers, as it acts on interleaved states."""
    one = torch.stack([torch.ones_like(system.decay[..., 0]), torch.zeros_like(system.decay[..., 1])], dim=-1)
    return DiscreteDPLR(one - system.decay, system.p.flatten(-2), output_row(system.q), system.b.flatten(-2))


def hold(A: Tensor, B: Tensor, dt: Tensor, method: str) -> tuple[Pair, Pair, Pair]:
    """Zero-order hold: 1 - a, 1 + a and b = (a - 1)/λ B with a = exp(Δλ)."""
    if method != "zoh":
        raise ValueError(f"discretization is {method!r}; choose 'bilinear' or 'zoh'.")
    dtype = kernel_dtype(A)
    A_, step = Pair.of(A, dtype), dt.to(dtype)[:, None]
    log_size, angle = A_.re * step, A_.im * step
    size = log_size.exp()
    # 1 - cos is 2 sin² of half the angle: no digits are lost where the angle is small.
    half = 2 * torch.sin(angle / 2).square()
    decay = Pair(size * half - torch.expm1(log_size), -size * angle.sin())
    growth = Pair(1 + size * angle.cos(), size * angle.sin())
    return decay, growth, decay.scaled(-1).times(A_.reciprocal()).times(Pair.of(B, dtype))


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
    parts = []
    for whole, columns in zip(B, P, strict=True):
        rest = torch.zeros_like(whole)
        for column, factor in zip(columns, c.unbind(-1), strict=True):
            product, product_rest = exact_product(column, factor[:, None].expand_as(column))
            whole, sum_rest = exact_sum(whole, -product)
            rest = rest + sum_rest - product_rest
        parts.append(whole + rest)
    return Pair(*parts)
