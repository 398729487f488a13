"""From continuous to discrete time, by the bilinear rule or zero-order hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchs4.ops.forms import DiscreteDPLR
from torchs4.ops.reference.modes import ModalSystem, as_complex, pair_sum

if TYPE_CHECKING:
    from jaxtyping import Complex, Float

    from torchs4.ssm import Discretization


def discretize_dplr(
    A: Float[Tensor, "H n 2"],
    P: Float[Tensor, "R H n 2"],
    Q: Float[Tensor, "R H n 2"],
    B: Float[Tensor, "H n 2"],
    dt: Float[Tensor, " H"],
) -> DiscreteDPLR:
    """The bilinear rule for A = Λ - P Q*: again diagonal plus low rank."""
    return as_real_system(_bilinear(A, P, Q, B, dt))


def discretize_diagonal(
    A: Float[Tensor, "H n 2"],
    B: Float[Tensor, "H n 2"],
    dt: Float[Tensor, " H"],
    method: Discretization,
) -> DiscreteDPLR:
    """The bilinear rule or zero-order hold for a diagonal A."""
    return as_real_system(_discretize_modes(A, B, dt, method))


def _bilinear(A: Tensor, P: Tensor, Q: Tensor, B: Tensor, dt: Tensor) -> ModalSystem:
    A, P, Q, B, dt = as_complex(A), as_complex(P), as_complex(Q), as_complex(B), dt.double()
    # Ā = (4/Δ)(2/Δ - A)⁻¹ - 1 with (2/Δ - Λ + P Q*)⁻¹ by Woodbury, so Ā is diagonal plus low rank too.
    two_over_dt = 2 / dt[:, None]
    resolvent = 1 / (two_over_dt - A)
    EP, QE = resolvent * P, Q.conj_physical() * resolvent
    identity = torch.eye(P.shape[0], dtype=dt.dtype, device=dt.device)
    woodbury = identity + pair_sum("rhn,shn->hrs", QE, P)
    woodbury_inverse = torch.linalg.inv(woodbury).to(A.dtype)
    corrected_p = torch.einsum("rhn,hrs->shn", EP, woodbury_inverse)
    QEB = pair_sum("rhn,hn->rh", QE, B).to(A.dtype)
    return ModalSystem(
        decay=-2 * A * resolvent,
        p=2 * two_over_dt * corrected_p,
        q=QE,
        b=2 * (resolvent * B - torch.einsum("rhn,rh->hn", corrected_p, QEB)),
    )


def bilinear(
    A: Float[Tensor, "H n 2"],
    P: Float[Tensor, "R H n 2"],
    Q: Float[Tensor, "R H n 2"],
    B: Float[Tensor, "H n 2"],
    dt: Float[Tensor, " H"],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The discrete system that `modal_kernel` takes, as float64 pairs: 1 - a, p, q and b."""
    decay, p, q, b = (torch.view_as_real(part.contiguous()) for part in _bilinear(A, P, Q, B, dt))
    return decay, p, q, b


def bilinear_backward(
    grads: list[Tensor], A: Tensor, P: Tensor, Q: Tensor, B: Tensor, dt: Tensor
) -> list[Tensor]:
    """The gradients of `bilinear` for its inputs, from those of decay, p, q and b."""
    inputs = (A, P, Q, B, dt)
    decay_grad, p_grad, q_grad, b_grad = (as_complex(g) for g in grads)
    A, P, Q, B = (as_complex(x) for x in (A, P, Q, B))
    rate = 2 / dt.double()[:, None]
    E = 1 / (rate - A)
    EP, QE = E * P, Q.conj_physical() * E
    identity = torch.eye(P.shape[0], dtype=dt.double().dtype, device=dt.device)
    inverse = torch.linalg.inv(identity + pair_sum("rhn,shn->hrs", QE, P))
    corrected = torch.einsum("rhn,hrs->shn", EP, inverse.to(EP.dtype))
    QEB = pair_sum("rhn,hn->rh", QE, B)
    # b = 2 (E B - Σ corrected · QEB), p = 2 · rate · corrected
    QEB_grad = -2 * _inner(b_grad, corrected)
    corrected_grad = 2 * rate * p_grad - 2 * b_grad * QEB[..., None]
    QE_grad = q_grad + 2 * QEB_grad[..., None] * B.conj_physical()
    B_grad = 2 * b_grad * E.conj_physical() + 2 * (QEB_grad[..., None] * QE.conj_physical()).sum(0)
    inverse_grad = torch.einsum("shn,rhn->hrs", corrected_grad, EP.conj_physical()).real
    W_grad = -inverse.mT @ inverse_grad @ inverse.mT
    EP_grad = torch.einsum("shn,hrs->rhn", corrected_grad, inverse.to(EP.dtype))
    QE_grad = QE_grad + 2 * torch.einsum("hrs,shn->rhn", W_grad.to(P.dtype), P.conj_physical())
    P_grad = EP_grad * E.conj_physical()
    P_grad = P_grad + 2 * torch.einsum("hrs,rhn->shn", W_grad.to(P.dtype), QE.conj_physical())
    Q_grad = QE_grad.conj_physical() * E
    E_grad = 2 * b_grad * B.conj_physical() - 2 * decay_grad * A.conj_physical()
    E_grad = E_grad + (EP_grad * P.conj_physical() + QE_grad * Q).sum(0)
    slope = E_grad * (E * E).conj_physical()
    A_grad = slope - 2 * decay_grad * E.conj_physical()
    rate_grad = 2 * _inner(p_grad, corrected).sum(0) - slope.real.sum(-1)
    dt_grad = -2 * rate_grad / dt.double() ** 2
    results = [torch.view_as_real(x) for x in (A_grad, P_grad, Q_grad, B_grad)] + [dt_grad]
    return [result.contiguous().to(x.dtype) for result, x in zip(results, inputs, strict=True)]


def _inner(v: Complex[Tensor, "*shape n"], w: Complex[Tensor, "*shape n"]) -> Float[Tensor, " *shape"]:
    return (v.conj_physical() * w).real.sum(-1)


def _discretize_modes(A: Tensor, B: Tensor, dt: Tensor, method: Discretization) -> ModalSystem:
    A, B, dt = as_complex(A), as_complex(B), dt.double()[:, None]
    match method:
        case "bilinear":
            resolvent = 1 / (2 / dt - A)
            decay, b = -2 * A * resolvent, 2 * resolvent * B
        case "zoh":
            decay = -torch.expm1(dt * A)
            b = -decay / A * B
        case _:
            raise ValueError(f"discretization is {method!r}; choose 'bilinear' or 'zoh'.")
    no_correction = A.new_zeros(0, *A.shape)
    return ModalSystem(decay, no_correction, no_correction, b)


def diagonal_system(
    A: Float[Tensor, "H n 2"],
    B: Float[Tensor, "H n 2"],
    dt: Float[Tensor, " H"],
    method: Discretization,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `bilinear` returns, for a diagonal A and either rule."""
    decay, p, q, b = (torch.view_as_real(part) for part in _discretize_modes(A, B, dt, method))
    return decay, p, q, b


def power_system(
    A: Float[Tensor, "H n 2"],
    B: Float[Tensor, "H n 2"],
    C: Float[Tensor, "M H n 2"],
    dt: Float[Tensor, " H"],
    method: Discretization,
) -> tuple[Float[Tensor, "H n 2"], Float[Tensor, "M H n 2"]]:
    """What `power_kernel` takes, as float64 pairs: the discrete modes a and their weights C·b."""
    system = _discretize_modes(A, B, dt, method)
    return torch.view_as_real(1 - system.decay), torch.view_as_real(as_complex(C) * system.b)


def output_row(C: Float[Tensor, "M H n 2"]) -> Float[Tensor, "M H N"]:
    """The real row that reads 2·Re Σ C x from an interleaved state."""
    return _as_real_row(as_complex(C))


def as_real_system(system: ModalSystem) -> DiscreteDPLR:
    """The system in real numbers, as it acts on interleaved states."""
    return DiscreteDPLR(
        a=torch.view_as_real(1 - system.decay),
        p=torch.view_as_real(system.p).flatten(-2),
        q=_as_real_row(system.q),
        b=torch.view_as_real(system.b).flatten(-2),
    )


def _as_real_row(row: Tensor) -> Tensor:
    return torch.view_as_real(2 * row.conj().resolve_conj()).flatten(-2)
