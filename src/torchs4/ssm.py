"""The dense state-space model, plain and slow: the oracle that everything else is tested against.

    x'(t) = A x(t) + B u(t),   y(t) = C x(t)        (the skip D u is the layer's business)

Axes: L length, N state size. One system, one signal; float64 unless the caller's tensors say otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

Discretization = Literal["bilinear", "zoh"]
DISCRETIZATIONS: tuple[str, ...] = get_args(Discretization)

# From some 200 rows on, a batch of solves on several threads ends in errors of the linear algebra library
# ("Pivots given to lu_solve …"), whatever the matrices; one at a time, threads share each.
_LARGE = 128


class DiscreteSSM(NamedTuple):
    """x_k = A x_{k-1} + B u_k."""

    A: Float[Tensor, "*batch N N"]
    B: Float[Tensor, "*batch N"]


def discretize(
    A: Float[Tensor, "*batch N N"],
    B: Float[Tensor, "*batch N"],
    step_size: Float[Tensor, "*batch"],
    method: Discretization = "bilinear",
) -> DiscreteSSM:
    """Turn x' = A x + B u into a recurrence with the given step size."""
    identity = torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    dt = step_size[..., None, None]
    match method:
        case "bilinear":
            backward = identity - dt / 2 * A
            both = _solve(backward, torch.cat([identity + dt / 2 * A, dt * B[..., None]], dim=-1))
            A_bar, B_bar = both[..., :-1], both[..., -1]
        case "zoh":
            # exp of [[A, B], [0, 0]]·Δ holds both Ā and B̄ and needs no inverse of A.
            *batch, N, _ = (dt * A).shape
            joint = A.new_zeros(*batch, N + 1, N + 1)
            joint[..., :N, :N] = dt * A
            joint[..., :N, N] = step_size[..., None] * B
            joint = torch.linalg.matrix_exp(joint)
            A_bar, B_bar = joint[..., :N, :N], joint[..., :N, N]
        case _:
            raise ValueError(f"discretization is {method!r}; choose 'bilinear' or 'zoh'.")
    return DiscreteSSM(A_bar, B_bar)


def _solve(matrix: Float[Tensor, "*batch N N"], right: Float[Tensor, "*batch N K"]) -> Tensor:
    """X of matrix @ X = right."""
    if matrix.ndim == 2 or matrix.shape[-1] < _LARGE or matrix.device.type != "cpu":
        return torch.linalg.solve(matrix, right)
    pairs = zip(matrix.flatten(0, -3), right.flatten(0, -3), strict=True)
    return torch.stack([torch.linalg.solve(*pair) for pair in pairs]).view_as(right)


def step(
    system: DiscreteSSM, C: Float[Tensor, " N"], u: Tensor, x: Float[Tensor, " N"]
) -> tuple[Tensor, Float[Tensor, " N"]]:
    """One step of the recurrence: the output and the next state."""
    x = system.A @ x + system.B * u
    return C @ x, x


def run(
    system: DiscreteSSM,
    C: Float[Tensor, " N"],
    u: Float[Tensor, " L"],
    x: Float[Tensor, " N"] | None = None,
) -> tuple[Float[Tensor, " L"], Float[Tensor, " N"]]:
    """The recurrence over a whole signal, from the given state or from zero."""
    x = torch.zeros_like(system.B) if x is None else x
    outputs = []
    for u_k in u:
        y_k, x = step(system, C, u_k, x)
        outputs.append(y_k)
    return torch.stack(outputs), x


def kernel(system: DiscreteSSM, C: Float[Tensor, " N"], length: int) -> Float[Tensor, " L"]:
    """(C B̄, C Ā B̄, C Ā² B̄, …): the response to a unit impulse."""
    impulse = torch.zeros(length, dtype=system.B.dtype)
    impulse[0] = 1
    return run(system, C, impulse)[0]
