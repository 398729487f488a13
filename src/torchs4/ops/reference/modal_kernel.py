"""The kernel of a DPLR system: its generating function on a circle, by Cauchy sums and Woodbury."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchs4.ops.dtypes import kernel_dtype
from torchs4.ops.reference.contour import Contour
from torchs4.ops.reference.modes import ModalSystem, as_complex

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jaxtyping import Complex, Float

# How many complex numbers a block of H·n·K may hold: 16 MB each, a handful alive at a time.
_BLOCK_ELEMENTS = 2**20


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
    system, C_complex = ModalSystem(*map(as_complex, (decay, p, q, b))), as_complex(C)
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
    system, C_complex = ModalSystem(*map(as_complex, (decay, p, q, b))), as_complex(C)
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


def _rows_and_columns(system: ModalSystem, C: Tensor) -> tuple[Tensor, Tensor]:
    """Rows read the state, columns write it; Woodbury needs the sums of all their products."""
    return torch.cat([C, system.q]), torch.cat([system.b[None], system.p])


def _coefficients(system: ModalSystem, C: Tensor) -> Float[Tensor, "2 M+R 1+R H n"]:
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
