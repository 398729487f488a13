"""Every operator in plain PyTorch: any device, bounded memory, the twin of every faster implementation.

Axes: B batch, L length, H features, N state size, n = N/2 stored modes, R rank, M output channels per
feature, K nodes of a contour, T length of a block of time.

Complex numbers cross this module's borders as real pairs (..., 2) and states as (B, H, N) with real and
imaginary parts interleaved: optimisers, casts, compilers and exporters all handle reals. One stored mode
stands for a conjugate pair, so a row c acts on a state x as 2·Re Σ c x.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from torchs4.ops.contour import Contour, fast_transform_length
from torchs4.ops.registered import kernel_dtype

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Bool, Complex, Float

    from torchs4.ssm import Discretization

# How many complex numbers a block of H·n·K may hold: 16 MB each, a handful alive at a time.
_BLOCK_ELEMENTS = 2**20


class DiscreteDPLR(NamedTuple):
    """x_k = a·x_{k-1} - p (q x_{k-1}) + b u_k per feature: one step costs O(N). Rank 0 is diagonal."""

    a: Float[Tensor, "H n 2"]
    p: Float[Tensor, "R H N"]
    q: Float[Tensor, "R H N"]
    b: Float[Tensor, "H N"]


class ChunkOperators(NamedTuple):
    """What carries a state over a block of T samples, and what the block's output is made of."""

    powers: tuple[Float[Tensor, "H N N"], ...]
    state_from_input: Float[Tensor, "H T N"]
    output_from_state: Float[Tensor, "H N M*T"]
    output_from_input: Float[Tensor, "H T M*T"]


class _ModalSystem(NamedTuple):
    """The discrete system in complex form. `decay` is 1 - a, kept apart because a is close to 1."""

    decay: Complex[Tensor, "H n"]
    p: Complex[Tensor, "R H n"]
    q: Complex[Tensor, "R H n"]
    b: Complex[Tensor, "H n"]


# --- discrete time -----------------------------------------------------------------------------------


def discretize_dplr(
    A: Float[Tensor, "H n 2"],
    P: Float[Tensor, "R H n 2"],
    Q: Float[Tensor, "R H n 2"],
    B: Float[Tensor, "H n 2"],
    dt: Float[Tensor, " H"],
) -> DiscreteDPLR:
    """The bilinear rule for A = Λ - P Q*: again diagonal plus low rank."""
    return _as_real_system(_bilinear(A, P, Q, B, dt))


def discretize_diagonal(
    A: Float[Tensor, "H n 2"],
    B: Float[Tensor, "H n 2"],
    dt: Float[Tensor, " H"],
    method: Discretization,
) -> DiscreteDPLR:
    """The bilinear rule or zero-order hold for a diagonal A."""
    return _as_real_system(_discretize_modes(A, B, dt, method))


def _bilinear(A: Tensor, P: Tensor, Q: Tensor, B: Tensor, dt: Tensor) -> _ModalSystem:
    A, P, Q, B, dt = _complex(A), _complex(P), _complex(Q), _complex(B), dt.double()
    # Ā = (4/Δ)(2/Δ - A)⁻¹ - 1 with (2/Δ - Λ + P Q*)⁻¹ by Woodbury, so Ā is diagonal plus low rank too.
    two_over_dt = 2 / dt[:, None]
    resolvent = 1 / (two_over_dt - A)
    EP, QE = resolvent * P, Q.conj_physical() * resolvent
    identity = torch.eye(P.shape[0], dtype=dt.dtype, device=dt.device)
    woodbury = identity + _pair_sum("rhn,shn->hrs", QE, P)
    woodbury_inverse = torch.linalg.inv(woodbury).to(A.dtype)
    corrected_p = torch.einsum("rhn,hrs->shn", EP, woodbury_inverse)
    QEB = _pair_sum("rhn,hn->rh", QE, B).to(A.dtype)
    return _ModalSystem(
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
    decay_grad, p_grad, q_grad, b_grad = (_complex(g) for g in grads)
    A, P, Q, B = (_complex(x) for x in (A, P, Q, B))
    rate = 2 / dt.double()[:, None]
    E = 1 / (rate - A)
    EP, QE = E * P, Q.conj_physical() * E
    identity = torch.eye(P.shape[0], dtype=dt.double().dtype, device=dt.device)
    inverse = torch.linalg.inv(identity + _pair_sum("rhn,shn->hrs", QE, P))
    corrected = torch.einsum("rhn,hrs->shn", EP, inverse.to(EP.dtype))
    QEB = _pair_sum("rhn,hn->rh", QE, B)
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


def _discretize_modes(A: Tensor, B: Tensor, dt: Tensor, method: Discretization) -> _ModalSystem:
    A, B, dt = _complex(A), _complex(B), dt.double()[:, None]
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
    return _ModalSystem(decay, no_correction, no_correction, b)


def dense_transition(system: DiscreteDPLR) -> Float[Tensor, "H N N"]:
    """Ā written out as a real matrix on the interleaved state."""
    H, n, _ = system.a.shape
    real, imaginary = system.a.unbind(-1)
    turns = torch.stack([real, -imaginary, imaginary, real], dim=-1).view(H, n, 2, 2)
    apart = torch.eye(n, dtype=turns.dtype, device=turns.device)
    rotation = torch.einsum("hnij,nm->hnimj", turns, apart).reshape(H, 2 * n, 2 * n)
    return rotation - torch.einsum("rhn,rhm->hnm", system.p, system.q)


def output_row(C: Float[Tensor, "M H n 2"]) -> Float[Tensor, "M H N"]:
    """The real row that reads 2·Re Σ C x from an interleaved state."""
    return _as_real_row(_complex(C))


def _as_real_system(system: _ModalSystem) -> DiscreteDPLR:
    return DiscreteDPLR(
        a=torch.view_as_real(1 - system.decay),
        p=torch.view_as_real(system.p).flatten(-2),
        q=_as_real_row(system.q),
        b=torch.view_as_real(system.b).flatten(-2),
    )


def _as_real_row(row: Tensor) -> Tensor:
    return torch.view_as_real(2 * row.conj().resolve_conj()).flatten(-2)


# --- kernels -----------------------------------------------------------------------------------------


def modal_kernel(
    decay: Float[Tensor, "H n 2"],
    p: Float[Tensor, "R H n 2"],
    q: Float[Tensor, "R H n 2"],
    b: Float[Tensor, "H n 2"],
    C: Float[Tensor, "M H n 2"],
    length: int,
) -> Float[Tensor, "M H L"]:
    """K_l = C Ā^l b for l < length, by sums of 1/(1 - z a) on a circle inside the unit circle.

    Holds one block of nodes at a time; the backward pass below does the same and needs nothing kept.
    """
    contour = Contour.around(length, kernel_dtype(C))
    system, C_complex = _ModalSystem(*map(_complex, (decay, p, q, b))), _complex(C)
    coefficients = _coefficients(system, C_complex)
    spectrum = []
    for z, one_minus_z in _node_blocks(contour, decay):
        resolvent, _, _ = _pair_resolvent(system.decay, z, one_minus_z)
        pairs = _pair_sums(coefficients, resolvent, z, one_minus_z)
        spectrum.append(_woodbury(pairs, C.shape[0], z)[0])
    return contour.samples(torch.cat(spectrum, dim=-1)).to(kernel_dtype(C))


def modal_kernel_backward(
    grad: Float[Tensor, "M H L"],
    decay: Float[Tensor, "H n 2"],
    p: Float[Tensor, "R H n 2"],
    q: Float[Tensor, "R H n 2"],
    b: Float[Tensor, "H n 2"],
    C: Float[Tensor, "M H n 2"],
) -> list[Tensor]:
    """The gradients of `modal_kernel` for its five tensors."""
    contour = Contour.around(grad.shape[-1], kernel_dtype(C))
    spectrum_grad = contour.samples_backward(grad)
    system, C_complex = _ModalSystem(*map(_complex, (decay, p, q, b))), _complex(C)
    coefficients = _coefficients(system, C_complex)
    coefficient_grad = torch.zeros_like(coefficients)
    decay_grad = torch.zeros_like(system.decay)
    start = 0
    for z, one_minus_z in _node_blocks(contour, decay):
        block_grad = spectrum_grad[..., start : start + len(z)]
        start += len(z)
        resolvent, factor, mirrored = _pair_resolvent(system.decay, z, one_minus_z)
        pairs = _pair_sums(coefficients, resolvent, z, one_minus_z)
        pair_grad = _woodbury_backward(block_grad, pairs, C.shape[0], z)
        sum_grad = torch.stack([one_minus_z.conj_physical() * pair_grad, z.conj_physical() * pair_grad])
        sum_grad = torch.view_as_real(sum_grad).flatten(-2)
        coefficient_grad += torch.einsum(
            "srchk,hnk->srchn", sum_grad, torch.view_as_real(resolvent).flatten(-2)
        )
        resolvent_grad = torch.einsum("srchn,srchk->hnk", coefficients, sum_grad)
        resolvent_grad = torch.view_as_complex(resolvent_grad.unflatten(-1, (-1, 2)))
        # resolvent = 1/(factor·mirrored), factor = 1 - z + z·decay, mirrored the same with conj(decay).
        product_grad = -resolvent_grad * (resolvent * resolvent).conj_physical() * z.conj_physical()
        decay_grad += (product_grad * mirrored.conj_physical()).sum(-1)
        decay_grad += (product_grad * factor.conj_physical()).sum(-1).conj_physical()

    rows, columns = _rows_and_columns(system, C_complex)
    real_grad, turned_grad = 2 * coefficient_grad
    weight_grad = real_grad + turned_grad * system.decay
    decay_grad += (turned_grad * rows[:, None] * columns).sum((0, 1))
    row_grad = (weight_grad * columns.conj_physical()).sum(1)
    column_grad = (weight_grad * rows[:, None].conj_physical()).sum(0)
    channels = C.shape[0]
    grads = (decay_grad, column_grad[1:], row_grad[channels:], column_grad[0], row_grad[:channels])
    inputs = (decay, p, q, b, C)
    # Copies: an operator's outputs may not share memory.
    return [torch.view_as_real(g).to(x.dtype, copy=True) for g, x in zip(grads, inputs, strict=True)]


def _node_blocks(contour: Contour, decay: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    block = max(1, _BLOCK_ELEMENTS // (decay.shape[0] * decay.shape[1]))
    for start in range(0, contour.half, block):
        yield contour.nodes(start, min(start + block, contour.half), decay.device)


def _rows_and_columns(system: _ModalSystem, C: Tensor) -> tuple[Tensor, Tensor]:
    """Rows read the state, columns write it; Woodbury needs the sums of all their products."""
    return torch.cat([C, system.q]), torch.cat([system.b[None], system.p])


def _coefficients(system: _ModalSystem, C: Tensor) -> Float[Tensor, "2 M+R 1+R H n"]:
    """The real numerators of a conjugate pair.

    v/(1 - za) + v̄/(1 - zā) = (2Re(v)(1-z) + 2Re(v·conj(1-a)) z) / ((1 - za)(1 - zā)), so every sum over
    the modes is a real matrix times the pair's shared resolvent.
    """
    rows, columns = _rows_and_columns(system, C)
    weights = rows[:, None] * columns
    return 2 * torch.stack([weights.real, (weights * system.decay.conj_physical()).real])


def _pair_resolvent(
    decay: Complex[Tensor, "H n"], z: Complex[Tensor, " K"], one_minus_z: Complex[Tensor, " K"]
) -> tuple[Tensor, Tensor, Tensor]:
    """1/((1 - za)(1 - zā)) and its two factors, each of which keeps its digits where it is small."""
    factor = one_minus_z + z * decay[..., None]
    mirrored = one_minus_z + z * decay.conj_physical()[..., None]
    return 1 / (factor * mirrored), factor, mirrored


def _pair_sums(
    coefficients: Tensor, resolvent: Tensor, z: Tensor, one_minus_z: Tensor
) -> Complex[Tensor, "M+R 1+R H K"]:
    sums = torch.einsum("srchn,hnk->srchk", coefficients, torch.view_as_real(resolvent).flatten(-2))
    plain, turned = torch.view_as_complex(sums.unflatten(-1, (-1, 2)))
    return one_minus_z * plain + z * turned


def _woodbury(pairs: Tensor, channels: int, z: Tensor) -> tuple[Tensor, Tensor]:
    """C (1 - zĀ)⁻¹ b from the sums of the diagonal part, and the correction's solution."""
    solution = _solve(_woodbury_matrix(pairs, channels, z), pairs[channels:, 0])
    return pairs[:channels, 0] - z * (pairs[:channels, 1:] * solution).sum(1), solution


def _woodbury_backward(grad: Complex[Tensor, "M H K"], pairs: Tensor, channels: int, z: Tensor) -> Tensor:
    matrix = _woodbury_matrix(pairs, channels, z)
    solution = _solve(matrix, pairs[channels:, 0])
    solution_grad = -(grad[:, None] * (z * pairs[:channels, 1:]).conj_physical()).sum(0)
    through = _solve(matrix.transpose(0, 1).conj_physical(), solution_grad)
    pair_grad = torch.empty_like(pairs)
    pair_grad[:channels, 0] = grad
    pair_grad[:channels, 1:] = -grad[:, None] * (z * solution).conj_physical()
    pair_grad[channels:, 0] = through
    pair_grad[channels:, 1:] = -through[:, None] * (z * solution).conj_physical()
    return pair_grad


def _woodbury_matrix(pairs: Tensor, channels: int, z: Tensor) -> Complex[Tensor, "R R H K"]:
    rank = pairs.shape[0] - channels
    identity = torch.eye(rank, dtype=z.dtype, device=z.device)[..., None, None]
    return identity + z * pairs[channels:, 1:]


def _solve(matrix: Complex[Tensor, "R R H K"], right: Complex[Tensor, "R H K"]) -> Complex[Tensor, "R H K"]:
    if matrix.shape[0] <= 1:
        return right / matrix[0] if matrix.shape[0] else right
    solved = torch.linalg.solve(matrix.permute(2, 3, 0, 1), right.permute(1, 2, 0)[..., None])
    return solved[..., 0].permute(2, 0, 1)


def power_system(
    A: Float[Tensor, "H n 2"],
    B: Float[Tensor, "H n 2"],
    C: Float[Tensor, "M H n 2"],
    dt: Float[Tensor, " H"],
    method: Discretization,
) -> tuple[Float[Tensor, "H n 2"], Float[Tensor, "M H n 2"]]:
    """What `power_kernel` takes, as float64 pairs: the discrete modes a and their weights C·b."""
    system = _discretize_modes(A, B, dt, method)
    return torch.view_as_real(1 - system.decay), torch.view_as_real(_complex(C) * system.b)


def power_kernel(
    a: Float[Tensor, "H n 2"], weights: Float[Tensor, "M H n 2"], length: int, dtype: torch.dtype
) -> Float[Tensor, "M H L"]:
    """K_l = 2·Re Σ w a^l, as one product of √L × N and N × √L real matrices per feature.

    With l = jT + i the power splits into a^(jT)·a^i, so only 2√L powers of a mode are ever formed.
    """
    fine, coarse = _fine_and_coarse_powers(_complex(a), length)
    left = 2 * _complex(weights)[..., None] * coarse
    # Re(vw) = Re v Re w - Im v Im w: the modes' two parts are summed as one real axis.
    left, right = torch.view_as_real(left.conj_physical()), torch.view_as_real(fine)
    kernel = torch.einsum("mhnjc,hnic->mhji", left, right)
    return kernel.flatten(-2)[..., :length].to(dtype)


def power_kernel_backward(
    grad: Float[Tensor, "M H L"], a: Float[Tensor, "H n 2"], weights: Float[Tensor, "M H n 2"]
) -> list[Tensor]:
    """The gradients of `power_kernel` for a and the weights."""
    length = grad.shape[-1]
    modes, w = _complex(a), _complex(weights)
    fine, coarse = _fine_and_coarse_powers(modes, length)
    steps, jumps = fine.shape[-1], coarse.shape[-1]
    padded = torch.nn.functional.pad(grad.double(), (0, steps * jumps - length))
    padded = padded.unflatten(-1, (jumps, steps)).to(fine.dtype)
    # The gradient of w·a^(jT)·a^i, summed over one of the two factors at a time.
    over_fine = 2 * torch.einsum("mhji,hni->mhnj", padded, fine.conj_physical())
    weights_grad = (over_fine * coarse.conj_physical()).sum(-1)
    # d a^l / d a = l·a^(l-1): the coarse part's share, then the fine part's.
    positions = torch.arange(max(steps, jumps), dtype=torch.float64, device=grad.device)
    before = torch.cat([torch.zeros_like(fine[..., :1]), fine[..., :-1]], dim=-1)
    over_coarse = 2 * torch.einsum("mhji,mhn,hnj->hni", padded, w.conj_physical(), coarse.conj_physical())
    a_grad = (over_coarse * (before * positions[:steps]).conj_physical()).sum(-1)
    earlier = torch.cat([torch.zeros_like(coarse[..., :1]), coarse[..., :-1]], dim=-1)
    slope = earlier * (fine[..., -1:] * steps * positions[:jumps])
    a_grad = a_grad + (over_fine * (w[..., None] * slope).conj_physical()).sum((0, -1))
    return [torch.view_as_real(a_grad).clone(), torch.view_as_real(weights_grad).clone()]


def _fine_and_coarse_powers(a: Complex[Tensor, "H n"], length: int) -> tuple[Tensor, Tensor]:
    steps = math.isqrt(length - 1) + 1
    fine = _powers(a, steps)
    return fine, _powers(fine[..., -1] * a, -(-length // steps))


def _powers(a: Complex[Tensor, "H n"], count: int) -> Complex[Tensor, "H n count"]:
    """1, a, …, a^(count-1): by doubling, so that no exponential or logarithm is taken."""
    powers, step = torch.ones_like(a)[..., None], a
    while powers.shape[-1] < count:
        powers = torch.cat([powers, powers * step[..., None]], dim=-1)
        step = step * step
    return powers[..., :count]


def dense_kernel(
    A_bar: Float[Tensor, "H N N"],
    B_bar: Float[Tensor, "H N"],
    C: Float[Tensor, "M H N"],
    length: int,
) -> Float[Tensor, "M H L"]:
    """C times the Krylov matrix (B̄, ĀB̄, …), which is formed whole: H·N·L numbers, as LSSL does it."""
    return torch.einsum("mhn,hnl->mhl", C, _krylov(_squarings(A_bar, length), B_bar, length))


# --- convolution -------------------------------------------------------------------------------------


def long_convolution(
    u: Float[Tensor, "B L H"],
    kernel: Float[Tensor, "M H L"],
    backward_kernel: Float[Tensor, "M H L"] | None,
    skip: Float[Tensor, "M H"] | None,
) -> Float[Tensor, "M B L H"]:
    """y_t = Σ_{j≤t} k_{t-j} u_j + Σ_{j≥0} k'_j u_{t+1+j} + D u_t, the last two where they are given."""
    size = fast_transform_length(2 * u.shape[1])
    spectrum = _signal_spectrum(u, kernel.dtype, size) * _kernel_spectrum(kernel, backward_kernel, skip, size)
    y = torch.fft.irfft(spectrum, n=size)[..., : u.shape[1]]
    return y.permute(1, 0, 3, 2).contiguous()


def long_convolution_backward(
    grad: Float[Tensor, "M B L H"],
    u: Float[Tensor, "B L H"],
    kernel: Float[Tensor, "M H L"],
    backward_kernel: Float[Tensor, "M H L"] | None,
    skip: Float[Tensor, "M H"] | None,
) -> list[Tensor]:
    """The gradients of `long_convolution` for the signal and each kernel: correlations.

    The gradient of the skip is that of the kernel's first sample.
    """
    length = u.shape[1]
    size = fast_transform_length(2 * length)
    grad_spectrum = torch.fft.rfft(grad.to(kernel.dtype).permute(1, 0, 3, 2), n=size)
    filters = _kernel_spectrum(kernel, backward_kernel, skip, size)
    u_grad = torch.fft.irfft((grad_spectrum * filters.conj_physical()).sum(1), n=size)[..., :length]
    signal = _signal_spectrum(u, kernel.dtype, size)
    lags = torch.fft.irfft((grad_spectrum * signal.conj_physical()).sum(0), n=size)
    grads = [u_grad.transpose(1, 2).to(u.dtype, memory_format=torch.contiguous_format), lags[..., :length]]
    if backward_kernel is not None:
        # Lag -1-j sits at the end; the farthest lag reaches no sample.
        future = lags[..., size - length + 1 :].flip(-1)
        grads.append(torch.nn.functional.pad(future, (0, 1)))
    return [g.contiguous() for g in grads]


def _signal_spectrum(u: Tensor, dtype: torch.dtype, size: int) -> Complex[Tensor, "B 1 H K"]:
    return torch.fft.rfft(u.to(dtype).transpose(1, 2), n=size)[:, None]


def _kernel_spectrum(
    kernel: Tensor, backward_kernel: Tensor | None, skip: Tensor | None, size: int
) -> Complex[Tensor, "M H K"]:
    spectrum = torch.fft.rfft(kernel, n=size)
    if skip is not None:
        spectrum = spectrum + skip.to(kernel.dtype)[..., None]
    if backward_kernel is None:
        return spectrum
    length = kernel.shape[-1]
    # Lag -1-j of a circular convolution sits at the end of the buffer.
    reversed_kernel = backward_kernel[..., : length - 1].flip(-1)
    return spectrum + torch.fft.rfft(torch.nn.functional.pad(reversed_kernel, (size - length + 1, 0)))


# --- gating ------------------------------------------------------------------------------------------


def gated_residual(
    mixed: Float[Tensor, "... 2*H"],
    bias: Float[Tensor, " 2*H"],
    residual: Float[Tensor, "... H"],
    scale: Float[Tensor, "B H"] | None = None,
) -> Float[Tensor, "... H"]:
    """The residual plus the gated linear unit of mixed + bias, times the scale of its sequence."""
    unit = torch.nn.functional.glu(mixed + bias, dim=-1)
    return residual + (unit if scale is None else unit * scale[:, None])


def gated_residual_backward(
    grad: Float[Tensor, "... H"],
    mixed: Float[Tensor, "... 2*H"],
    bias: Float[Tensor, " 2*H"],
    scale: Float[Tensor, "B H"] | None = None,
) -> list[Tensor]:
    """The gradients of `gated_residual` for mixed and bias; that of the residual is grad itself."""
    value, gate = (mixed + bias).chunk(2, dim=-1)
    gate = gate.sigmoid()
    value_grad = (grad if scale is None else grad * scale[:, None]) * gate
    mixed_grad = torch.cat([value_grad, value_grad * value * (1 - gate)], dim=-1)
    return [mixed_grad, mixed_grad.reshape(-1, len(bias)).sum(0)]


# --- normalisation -----------------------------------------------------------------------------------


def masked_batch_norm(
    x: Float[Tensor, "*rows H"],
    mask: Bool[Tensor, " *rows"],
    weight: Float[Tensor, " H"],
    bias: Float[Tensor, " H"],
    epsilon: float,
) -> tuple[Float[Tensor, "*rows H"], Float[Tensor, " H"], Float[Tensor, " H"]]:
    """Normalise over the rows that the mask marks, the others are zero; also their mean and variance."""
    rows = x[mask]
    variance, mean = torch.var_mean(rows, dim=0, correction=0)
    scale = weight * torch.rsqrt(variance + epsilon)
    y = torch.zeros_like(x)
    y[mask] = (rows - mean) * scale + bias
    return y, mean, variance


def masked_batch_norm_backward(
    grad: Float[Tensor, "*rows H"],
    x: Float[Tensor, "*rows H"],
    mask: Bool[Tensor, " *rows"],
    weight: Float[Tensor, " H"],
    mean: Float[Tensor, " H"],
    variance: Float[Tensor, " H"],
    epsilon: float,
) -> list[Tensor]:
    """The gradients of `masked_batch_norm` for x, weight and bias."""
    spread = torch.rsqrt(variance + epsilon)
    normal, real_grad = (x[mask] - mean) * spread, grad[mask]
    weight_grad, bias_grad = (real_grad * normal).sum(0), real_grad.sum(0)
    x_grad = torch.zeros_like(x)
    x_grad[mask] = weight * spread * (real_grad - (bias_grad + normal * weight_grad) / len(normal))
    return [x_grad, weight_grad, bias_grad]


# --- recurrence --------------------------------------------------------------------------------------


def modal_step(
    a: Float[Tensor, "H n 2"],
    p: Float[Tensor, "R H N"],
    q: Float[Tensor, "R H N"],
    b: Float[Tensor, "H N"],
    C: Float[Tensor, "M H N"],
    D: Float[Tensor, "M H"],
    u: Float[Tensor, "B H"],
    state: Float[Tensor, "B H N"],
) -> tuple[Float[Tensor, "B M H"], Float[Tensor, "B H N"]]:
    """One step at O(N) per feature: the output and the next state."""
    a_real, a_imaginary = a.unbind(-1)
    x_real, x_imaginary = state.unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack(
        [a_real * x_real - a_imaginary * x_imaginary, a_imaginary * x_real + a_real * x_imaginary],
        dim=-1,
    ).flatten(-2)
    new_state = turned + b * u[..., None]
    if p.shape[0]:
        feedback = torch.einsum("rhn,bhn->rbh", q, state)
        new_state = new_state - torch.einsum("rhn,rbh->bhn", p, feedback)
    return torch.einsum("mhn,bhn->bmh", C, new_state) + D * u[:, None], new_state


def block_step(
    x: Float[Tensor, "B H"],
    norm_weight: Float[Tensor, " H"],
    norm_bias: Float[Tensor, " H"],
    epsilon: float,
    system: DiscreteDPLR,
    C: Float[Tensor, "M H N"],
    D: Float[Tensor, "M H"],
    mixing_weight: Float[Tensor, "2*H M*H"],
    mixing_bias: Float[Tensor, " 2*H"],
    state: Float[Tensor, "B H N"],
) -> tuple[Float[Tensor, "B H"], Float[Tensor, "B H N"]]:
    """One step of a block with LayerNorm before the layer, GELU, gated mixing and residual."""
    F = torch.nn.functional
    u = F.layer_norm(x, norm_weight.shape, norm_weight, norm_bias, epsilon)
    y, state = modal_step(*system, C, D, u, state)
    return gated_residual(F.linear(F.gelu(y.flatten(1)), mixing_weight), mixing_bias, x), state


def dense_step(
    A_bar: Float[Tensor, "H N N"],
    B_bar: Float[Tensor, "H N"],
    C: Float[Tensor, "M H N"],
    D: Float[Tensor, "M H"],
    u: Float[Tensor, "B H"],
    state: Float[Tensor, "B H N"],
) -> tuple[Float[Tensor, "B M H"], Float[Tensor, "B H N"]]:
    """One step with a written-out Ā."""
    new_state = torch.einsum("hnm,bhm->bhn", A_bar, state) + B_bar * u[..., None]
    return torch.einsum("mhn,bhn->bmh", C, new_state) + D * u[:, None], new_state


def chunk_operators(
    A_bar: Float[Tensor, "H N N"],
    B_bar: Float[Tensor, "H N"],
    C: Float[Tensor, "M H N"],
    block: int,
) -> ChunkOperators:
    """Prepare `chunk_pass` for blocks of `block` samples, a power of two."""
    if block < 1 or block & (block - 1):
        raise ValueError(f"block is {block}; it must be a power of two.")
    powers = _squarings(A_bar, block)
    reach = _krylov(powers, B_bar, block)
    # Rows C Ā, C Ā², …: a Krylov matrix of the transposed system.
    transposed = [power.mT for power in powers]
    first = torch.einsum("mhn,hnk->mhk", C, A_bar)
    sight = torch.stack([_krylov(transposed, row, block) for row in first], dim=2)
    response = torch.einsum("mhn,hnt->hmt", C, reach)
    lag = torch.arange(block, device=C.device)
    lag = lag[None, :] - lag[:, None]
    toeplitz = torch.where(lag >= 0, response[..., lag.clamp(min=0)], 0).movedim(1, 2)
    return ChunkOperators(tuple(powers), reach.flip(-1).mT, sight.flatten(2), toeplitz.flatten(2))


def chunk_pass(
    operators: ChunkOperators, u: Float[Tensor, "B L H"], state: Float[Tensor, "B H N"]
) -> tuple[Float[Tensor, "B L M H"], Float[Tensor, "B H N"]]:
    """The recurrence over a chunk of any length, block by block: the outputs and the state after it."""
    batch, length, H = u.shape
    block = operators.state_from_input.shape[1]
    blocks = -(-length // block)
    tail = length - (blocks - 1) * block
    padded = torch.nn.functional.pad(u, (0, 0, 0, blocks * block - length))
    # (H, blocks, B, T): features are a batch of matrix products, time blocks the sequential axis.
    padded = padded.view(batch, blocks, block, H).permute(3, 1, 0, 2)

    across = operators.powers[-1].mT
    arriving = padded[:, :-1] @ operators.state_from_input[:, None]
    current = state.transpose(0, 1)
    starts = [current]
    for index in range(blocks - 1):
        current = torch.baddbmm(arriving[:, index], current, across)
        starts.append(current)
    y = padded @ operators.output_from_input[:, None]
    y = y + torch.stack(starts, dim=1) @ operators.output_from_state[:, None]
    y = y.unflatten(-1, (-1, block)).permute(2, 1, 4, 3, 0).flatten(1, 2)[:, :length]

    for bit, power in enumerate(operators.powers):
        if tail >> bit & 1:
            current = current @ power.mT
    last = padded[:, -1, :, :tail] @ operators.state_from_input[:, block - tail :]
    return y, (current + last).transpose(0, 1)


def _squarings(A_bar: Tensor, length: int) -> list[Tensor]:
    """Ā, Ā², Ā⁴, … up to the first exponent that is at least `length`."""
    powers = [A_bar]
    while 1 << (len(powers) - 1) < length:
        powers.append(powers[-1] @ powers[-1])
    return powers


def _krylov(powers: list[Tensor], b: Float[Tensor, "H N"], length: int) -> Float[Tensor, "H N L"]:
    columns = b[..., None]
    for power in powers:
        if columns.shape[-1] >= length:
            break
        columns = torch.cat([columns, power @ columns], dim=-1)
    return columns[..., :length]


# --- complex numbers ---------------------------------------------------------------------------------


def _complex(pairs: Float[Tensor, "*shape 2"]) -> Complex[Tensor, "*shape"]:
    if pairs.numel() == 0:
        # An empty tensor is contiguous whatever its strides; the view asks for usual ones.
        return pairs.new_zeros(pairs.shape[:-1], dtype=torch.complex128)
    return torch.view_as_complex(pairs.double().contiguous())


def _pair_sum(equation: str, v: Tensor, w: Tensor) -> Tensor:
    """A sum over all modes from the stored half of them."""
    return 2 * torch.einsum(equation, v, w).real
