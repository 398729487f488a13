"""Every operator in plain PyTorch: any device, bounded memory, the twin of every faster implementation.

Axes: B batch, L length, H features, N state size, n = N/2 stored modes, R rank, M output channels per
feature, K nodes of a contour, T length of a block of time.

Complex numbers cross these modules' borders as real pairs (..., 2) and states as (B, H, N) with real and
imaginary parts interleaved: optimisers, casts, compilers and exporters all handle reals. One stored mode
stands for a conjugate pair, so a row c acts on a state x as 2·Re Σ c x.
"""

from torchs4.ops.reference.batch_norm import masked_batch_norm, masked_batch_norm_backward
from torchs4.ops.reference.chunks import (
    chunk_pass,
    dense_chunk_operators,
    modal_chunk_operators,
)
from torchs4.ops.reference.convolution import long_convolution, long_convolution_backward
from torchs4.ops.reference.dense import dense_kernel, dense_step, dense_transition
from torchs4.ops.reference.discretization import (
    bilinear,
    bilinear_backward,
    diagonal_system,
    discretize_diagonal,
    discretize_dplr,
    output_row,
    power_system,
)
from torchs4.ops.reference.dropout import dropout
from torchs4.ops.reference.gating import gated_residual, gated_residual_backward
from torchs4.ops.reference.modal_kernel import modal_kernel, modal_kernel_backward
from torchs4.ops.reference.power_kernel import power_kernel, power_kernel_backward
from torchs4.ops.reference.steps import PreparedBlocks, modal_step

__all__ = [
    "PreparedBlocks",
    "bilinear",
    "bilinear_backward",
    "chunk_pass",
    "dense_chunk_operators",
    "dense_kernel",
    "dense_step",
    "dense_transition",
    "diagonal_system",
    "discretize_diagonal",
    "discretize_dplr",
    "dropout",
    "gated_residual",
    "gated_residual_backward",
    "long_convolution",
    "long_convolution_backward",
    "masked_batch_norm",
    "masked_batch_norm_backward",
    "modal_chunk_operators",
    "modal_kernel",
    "modal_kernel_backward",
    "modal_step",
    "output_row",
    "power_kernel",
    "power_kernel_backward",
    "power_system",
]
