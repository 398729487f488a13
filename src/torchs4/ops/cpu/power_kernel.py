"""The diagonal kernel: sums of powers, as a product of coarse and fine powers, one feature per task.

Axes: M output channels, H features, n modes, L = J·T length split into J coarse and T fine steps. A power
a^(jT + i) is a^(jT)·a^i, so a feature needs n·(J + T) powers and one real J × 2n by 2n × T product.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numba import prange

from torchs4.ops.cpu.compiling import compiled, torch_threads
from torchs4.ops.cpu.tiles import add_dots, add_products

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


def power_kernel(a: Tensor, weights: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """The twin of reference.power_kernel."""
    kernel = torch.empty(*weights.shape[:2], length, dtype=dtype)
    fine, coarse = _split(length)
    with torch_threads():
        _forward(_array(a), _array(weights), fine, coarse, kernel.numpy())
    return kernel


def power_kernel_backward(grad: Tensor, a: Tensor, weights: Tensor) -> list[Tensor]:
    """The twin of reference.power_kernel_backward."""
    grads = [torch.empty(x.shape, dtype=torch.float64) for x in (a, weights)]
    fine, coarse = _split(grad.shape[-1])
    with torch_threads():
        _backward(
            grad.detach().double().contiguous().numpy(),
            _array(a),
            _array(weights),
            fine,
            coarse,
            *(torch.view_as_complex(g).numpy() for g in grads),
        )
    return grads


def _array(pairs: Tensor) -> NDArray[Any]:
    return torch.view_as_complex(pairs.detach().double().contiguous()).numpy()


def _split(length: int) -> tuple[int, int]:
    """Fine and coarse steps; an even number of coarse ones, because products come in tiles of two rows."""
    fine = math.isqrt(length - 1) + 1
    coarse = -(-length // fine)
    return fine, coarse + coarse % 2


@compiled()
def _fill_powers(table, a, weight, row, padded):
    """Row `row` gets Re(weight·a^k), row `padded/2 + row` Im(weight·a^k)."""
    value = weight
    for k in range(table.shape[1]):
        table[row, k] = value.real
        table[padded // 2 + row, k] = value.imag
        value = value * a


@compiled(parallel=True)
def _forward(a, weights, fine, coarse, kernel):
    M, H, n = weights.shape
    length = kernel.shape[2]
    half = (n + 1) // 2 * 2
    for h in prange(H):
        powers = np.zeros((2 * half, fine))
        left = np.zeros((coarse, 2 * half))
        product = np.empty((coarse, fine))
        steps = np.empty(n, dtype=np.complex128)
        for mode in range(n):
            _fill_powers(powers, a[h, mode], complex(1.0), mode, 2 * half)
            steps[mode] = complex(powers[mode, fine - 1], powers[half + mode, fine - 1]) * a[h, mode]
        for m in range(M):
            for mode in range(n):
                value = 2.0 * weights[m, h, mode]
                for j in range(coarse):
                    left[j, mode] = value.real
                    left[j, half + mode] = -value.imag
                    value = value * steps[mode]
            product[:] = 0.0
            add_products(product, left, powers, 0, 2 * half)
            flat = product.ravel()
            for k in range(length):
                kernel[m, h, k] = flat[k]


@compiled(parallel=True)
def _backward(grad, a, weights, fine, coarse, a_grad, weights_grad):
    M, H, n = weights.shape
    length = grad.shape[2]
    half = (n + 1) // 2 * 2
    for h in prange(H):
        powers = np.zeros((2 * half, fine))
        right = np.zeros((2 * half, (coarse + 3) // 4 * 4))
        padded = np.zeros(((coarse + 3) // 4 * 4) * fine)
        steps = np.empty(n, dtype=np.complex128)
        for mode in range(n):
            _fill_powers(powers, a[h, mode], complex(1.0), mode, 2 * half)
            steps[mode] = complex(powers[mode, fine - 1], powers[half + mode, fine - 1]) * a[h, mode]
        left_grad = np.empty((right.shape[1], 2 * half))
        powers_grad = np.zeros((2 * half, fine))
        for mode in range(n):
            a_grad[h, mode] = 0.0
        for m in range(M):
            padded[:length] = grad[m, h]
            product_grad = padded.reshape((right.shape[1], fine))
            for mode in range(n):
                value = 2.0 * weights[m, h, mode]
                for j in range(coarse):
                    right[mode, j] = value.real
                    right[half + mode, j] = -value.imag
                    value = value * steps[mode]
            # Of the product left·powers: grad·powersᵀ for left, leftᵀ·grad for powers.
            left_grad[:] = 0.0
            add_dots(left_grad, product_grad, powers, 0, 2 * half)
            add_products(powers_grad, right, product_grad, 0, right.shape[1])
            for mode in range(n):
                weight_grad = complex(0.0)
                step_grad = complex(0.0)
                # value = 2·weight·step^j, d value/d step = 2·weight·j·step^(j-1)
                power = complex(1.0)
                slope = complex(0.0)
                for j in range(coarse):
                    g = complex(left_grad[j, mode], -left_grad[j, half + mode])
                    weight_grad += g * (2.0 * power).conjugate()
                    step_grad += g * (2.0 * weights[m, h, mode] * slope).conjugate()
                    slope = slope * steps[mode] + power
                    power = power * steps[mode]
                weights_grad[m, h, mode] = weight_grad
                # step = a^fine
                last = complex(powers[mode, fine - 1], powers[half + mode, fine - 1])
                a_grad[h, mode] += step_grad * (fine * last).conjugate()
        for mode in range(n):
            total = complex(0.0)
            for i in range(1, fine):
                g = complex(powers_grad[mode, i], powers_grad[half + mode, i])
                before = complex(powers[mode, i - 1], powers[half + mode, i - 1])
                total += g * (i * before).conjugate()
            a_grad[h, mode] += total
