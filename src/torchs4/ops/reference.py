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

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Complex, Float

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
    EP, QE = resolvent * P, Q.conj() * resolvent
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
    rotation = system.a.new_zeros(H, n, 2, n, 2)
    mode = torch.arange(n, device=system.a.device)
    real, imaginary = system.a.unbind(-1)
    blocks = torch.stack([real, -imaginary, imaginary, real], dim=-1).view(H, n, 2, 2)
    # Advanced indices on both sides of a slice come first: (n, H, 2, 2).
    rotation = rotation.index_put(
        (
            torch.arange(H, device=mode.device)[:, None, None, None],
            mode[None, :, None, None],
            torch.arange(2, device=mode.device)[None, None, :, None],
            mode[None, :, None, None],
            torch.arange(2, device=mode.device)[None, None, None, :],
        ),
        blocks,
    )
    return rotation.view(H, 2 * n, 2 * n) - torch.einsum("rhn,rhm->hnm", system.p, system.q)


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


def dplr_kernel(
    A: Float[Tensor, "H n 2"],
    P: Float[Tensor, "R H n 2"],
    Q: Float[Tensor, "R H n 2"],
    B: Float[Tensor, "H n 2"],
    C: Float[Tensor, "M H n 2"],
    dt: Float[Tensor, " H"],
    length: int,
) -> Float[Tensor, "M H L"]:
    """K_l = C Ā^l B̄ for l < length, by sums of 1/(1 - z a) on a circle inside the unit circle.

    Not differentiable by itself: `dplr_kernel_backward` recomputes it block by block.
    """
    with torch.no_grad():
        system = _bilinear(A, P, Q, B, dt)
        contour = _Contour.around(length, exact=C.dtype == torch.float64, device=C.device)
        spectrum = [_spectrum(system, _complex(C), z, e) for z, e in contour.blocks(_block_size(A))]
        return contour.samples(torch.cat(spectrum, dim=-1)).to(kernel_dtype(C))


def dplr_kernel_backward(
    grad: Float[Tensor, "M H L"],
    A: Float[Tensor, "H n 2"],
    P: Float[Tensor, "R H n 2"],
    Q: Float[Tensor, "R H n 2"],
    B: Float[Tensor, "H n 2"],
    C: Float[Tensor, "M H n 2"],
    dt: Float[Tensor, " H"],
) -> list[Tensor]:
    """The gradients for A, P, Q, B, C and dt, holding one block of nodes at a time."""
    length = grad.shape[-1]
    contour = _Contour.around(length, exact=C.dtype == torch.float64, device=C.device)
    with torch.enable_grad():
        spectrum = grad.new_zeros(*C.shape[:2], contour.size // 2 + 1, dtype=torch.complex128)
        spectrum.requires_grad_()
        (spectrum_grad,) = torch.autograd.grad(contour.samples(spectrum), spectrum, grad.double())

        A, P, Q, B, C, dt = inputs = [x.detach().requires_grad_() for x in (A, P, Q, B, C, dt)]
        parts = (*_bilinear(A, P, Q, B, dt), _complex(C))
        leaves = [part.detach().requires_grad_() for part in parts]
        part_grads = [torch.zeros_like(leaf) for leaf in leaves]
        block = _block_size(A)
        grad_blocks = spectrum_grad.split(block, dim=-1)
        for (z, e), grad_block in zip(contour.blocks(block), grad_blocks, strict=True):
            values = _spectrum(_ModalSystem(*leaves[:4]), leaves[4], z, e)
            for total, new in zip(part_grads, torch.autograd.grad(values, leaves, grad_block), strict=True):
                total += new
        return list(torch.autograd.grad(parts, inputs, part_grads))


def diagonal_kernel(
    A: Float[Tensor, "H n 2"],
    B: Float[Tensor, "H n 2"],
    C: Float[Tensor, "M H n 2"],
    dt: Float[Tensor, " H"],
    length: int,
    method: Discretization,
) -> Float[Tensor, "M H L"]:
    """K_l = 2·Re Σ C b a^l. Powers of a up to √L, then one product of √L × n and n × √L matrices."""
    system = _discretize_modes(A, B, dt, method)
    inner = max(1, math.isqrt(length - 1) + 1)
    outer = -(-length // inner)
    # log1p keeps the decay's digits: a is close to 1.
    exponent = _complex_log1p(-system.decay)[..., None]
    positions = torch.arange(max(inner, outer), dtype=torch.float64, device=A.device)
    fine = torch.exp(exponent * positions[:inner])
    coarse = torch.exp(exponent * (inner * positions[:outer]))
    weights = _complex(C) * system.b
    kernel = torch.einsum("mhn,hnj,hni->mhji", weights, coarse, fine).real
    return 2 * kernel.flatten(-2)[..., :length].to(kernel_dtype(C))


def dense_kernel(
    A_bar: Float[Tensor, "H N N"],
    B_bar: Float[Tensor, "H N"],
    C: Float[Tensor, "M H N"],
    length: int,
) -> Float[Tensor, "M H L"]:
    """C times the Krylov matrix (B̄, ĀB̄, …), which is formed whole: H·N·L numbers, as LSSL does it."""
    return torch.einsum("mhn,hnl->mhl", C, _krylov(_squarings(A_bar, length), B_bar, length))


def kernel_dtype(C: Tensor) -> torch.dtype:
    """Kernels come in float64 for float64 parameters and in float32 for everything narrower."""
    return torch.float64 if C.dtype == torch.float64 else torch.float32


class _Contour(NamedTuple):
    """Nodes z = r·exp(-2πik/size) that see a kernel's first samples and next to nothing of the others.

    What aliases into sample l is r^size·K[l + size]; what rounding grows by is r^-length. Sums are in
    float64, so a float32 kernel affords r^size = 1e-8 with no more nodes than samples: both errors stay
    near 1e-8. A float64 kernel takes four times the nodes and r^size = 1e-16: both stay near 1e-12.
    """

    size: int
    length: int
    log_radius: float
    device: torch.device

    @classmethod
    def around(cls, length: int, *, exact: bool, device: torch.device) -> _Contour:
        size = fast_transform_length(4 * length if exact else max(2, length))
        return cls(size, length, math.log(1e-16 if exact else 1e-8) / size, device)

    def blocks(self, block: int) -> Iterator[tuple[Complex[Tensor, " K"], Complex[Tensor, " K"]]]:
        """Pairs of z and 1 - z, the latter without cancellation. Half the circle is enough."""
        radius = math.exp(self.log_radius)
        for start in range(0, self.size // 2 + 1, block):
            stop = min(start + block, self.size // 2 + 1)
            k = torch.arange(start, stop, dtype=torch.float64, device=self.device)
            angle = 2 * math.pi / self.size * k
            z = torch.polar(torch.full_like(angle, radius), -angle)
            real = 2 * radius * torch.sin(angle / 2) ** 2 - math.expm1(self.log_radius)
            yield z, torch.complex(real, radius * torch.sin(angle))

    def samples(self, spectrum: Complex[Tensor, "M H K"]) -> Float[Tensor, "M H L"]:
        steps = torch.arange(self.length, dtype=torch.float64, device=self.device)
        damped = torch.fft.irfft(spectrum, n=self.size)[..., : self.length]
        return damped * torch.exp(-self.log_radius * steps)


def _spectrum(
    system: _ModalSystem, C: Complex[Tensor, "M H n"], z: Tensor, one_minus_z: Tensor
) -> Complex[Tensor, "M H K"]:
    """Σ_l K_l z^l = C (1 - zĀ)⁻¹ B̄ at the nodes z.

    A conjugate pair shares one denominator D = (1 - za)(1 - zā) with a numerator whose coefficients are
    real: v/(1 - za) + v̄/(1 - zā) = (2Re(v)(1-z) + 2Re(v·conj(1-a)) z) / D. So every sum over the modes
    is a real matrix times 1/D.
    """
    decay = system.decay
    # Multiplied out, D would lose digits at modes near the Nyquist frequency, where both factors are small.
    denominator = (one_minus_z + z * decay[..., None]) * (one_minus_z + z * decay.conj()[..., None])
    # Rows read the state, columns write it; all products are needed for Woodbury.
    rows = torch.cat([C, system.q])
    columns = torch.cat([system.b[None], system.p])
    weights = rows[:, None] * columns[None]
    coefficients = 2 * torch.stack([weights.real, (weights * decay.conj()).real])
    sums = torch.einsum("srchn,hnk->srchk", coefficients, torch.view_as_real(1 / denominator).flatten(-2))
    sums = torch.view_as_complex(sums.unflatten(-1, (-1, 2)))
    pairs = one_minus_z * sums[0] + z * sums[1]
    channels = C.shape[0]
    from_input, through_p = pairs[:channels, 0], pairs[:channels, 1:]
    if system.p.shape[0] == 0:
        return from_input
    q_from_input, q_through_p = pairs[channels:, 0], pairs[channels:, 1:]
    if system.p.shape[0] == 1:
        solved = q_from_input / (1 + z * q_through_p[0])
    else:
        identity = torch.eye(system.p.shape[0], dtype=z.dtype, device=z.device)
        matrix = identity + (z * q_through_p).permute(2, 3, 0, 1)
        solved = torch.linalg.solve(matrix, q_from_input.permute(1, 2, 0)[..., None])
        solved = solved[..., 0].permute(2, 0, 1)
    return from_input - z * torch.einsum("mrhk,rhk->mhk", through_p, solved)


# --- convolution -------------------------------------------------------------------------------------


def long_convolution(
    u: Float[Tensor, "B L H"],
    kernel: Float[Tensor, "M H L"],
    backward_kernel: Float[Tensor, "M H L"] | None = None,
) -> Float[Tensor, "B L M H"]:
    """y_t = Σ_{j≤t} k_{t-j} u_j, plus Σ_{j≥0} k'_j u_{t+1+j} where a backward kernel is given."""
    length = u.shape[1]
    size = fast_transform_length(2 * length)
    kernel_spectrum = torch.fft.rfft(kernel, n=size)
    if backward_kernel is not None:
        # Lag -1-j of a circular convolution sits at the end of the buffer.
        reversed_kernel = torch.nn.functional.pad(
            backward_kernel[..., : length - 1].flip(-1), (size - length + 1, 0)
        )
        kernel_spectrum = kernel_spectrum + torch.fft.rfft(reversed_kernel)
    signal_spectrum = torch.fft.rfft(u.to(kernel.dtype).transpose(1, 2), n=size)
    y = torch.fft.irfft(signal_spectrum[:, None] * kernel_spectrum, n=size)[..., :length]
    return y.permute(0, 3, 1, 2)


def fast_transform_length(minimum: int) -> int:
    """The smallest even number ≥ minimum with no prime factor above 5."""
    best = 1 << max(1, (minimum - 1).bit_length())
    five = 1
    while five < best:
        three = five
        while three < best:
            rest = -(-minimum // three)
            even = three * (1 << max(1, (rest - 1).bit_length()))
            if minimum <= even < best:
                best = even
            three *= 3
        five *= 5
    return best


# --- recurrence --------------------------------------------------------------------------------------


def dplr_step(
    system: DiscreteDPLR,
    C: Float[Tensor, "M H N"],
    u: Float[Tensor, "B H"],
    state: Float[Tensor, "B H N"],
) -> tuple[Float[Tensor, "B M H"], Float[Tensor, "B H N"]]:
    """One step at O(N) per feature: the output and the next state."""
    a_real, a_imaginary = system.a.unbind(-1)
    x_real, x_imaginary = state.unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack(
        [a_real * x_real - a_imaginary * x_imaginary, a_imaginary * x_real + a_real * x_imaginary],
        dim=-1,
    ).flatten(-2)
    new_state = turned + system.b * u[..., None]
    if system.p.shape[0]:
        feedback = torch.einsum("rhn,bhn->rbh", system.q, state)
        new_state = new_state - torch.einsum("rhn,rbh->bhn", system.p, feedback)
    return torch.einsum("mhn,bhn->bmh", C, new_state), new_state


def dense_step(
    A_bar: Float[Tensor, "H N N"],
    B_bar: Float[Tensor, "H N"],
    C: Float[Tensor, "M H N"],
    u: Float[Tensor, "B H"],
    state: Float[Tensor, "B H N"],
) -> tuple[Float[Tensor, "B M H"], Float[Tensor, "B H N"]]:
    """One step with a written-out Ā."""
    new_state = torch.einsum("hnm,bhm->bhn", A_bar, state) + B_bar * u[..., None]
    return torch.einsum("mhn,bhn->bmh", C, new_state), new_state


def chunk_operators(
    A_bar: Float[Tensor, "H N N"],
    B_bar: Float[Tensor, "H N"],
    C: Float[Tensor, "M H N"],
    block: int,
) -> ChunkOperators:
    """Prepare `chunk_pass` for blocks of `block` samples, a power of two."""
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
    return torch.view_as_complex(pairs.double().contiguous())


def _pair_sum(equation: str, v: Tensor, w: Tensor) -> Tensor:
    """A sum over all modes from the stored half of them."""
    return 2 * torch.einsum(equation, v, w).real


def _complex_log1p(x: Tensor) -> Tensor:
    """log(1 + x) with all digits for small x, which torch.log1p does not offer for gradients."""
    magnitude = 0.5 * torch.log1p(2 * x.real + x.real**2 + x.imag**2)
    return torch.complex(magnitude, torch.atan2(x.imag, 1 + x.real))


def _block_size(A: Tensor) -> int:
    return max(1, _BLOCK_ELEMENTS // (A.shape[0] * A.shape[1]))
