"""The operators in numba, for plain CPUs: the same names and shapes as in `reference`."""

from torchs4.ops.cpu.batch_norm import masked_batch_norm, masked_batch_norm_backward
from torchs4.ops.cpu.bilinear import bilinear, bilinear_backward
from torchs4.ops.cpu.block_steps import PreparedBlocks
from torchs4.ops.cpu.chunk_operators import modal_chunk_operators, modal_chunk_operators_backward
from torchs4.ops.cpu.chunk_pass import chunk_pass, chunk_pass_backward
from torchs4.ops.cpu.convolution import long_convolution, long_convolution_backward
from torchs4.ops.cpu.dropout import dropout
from torchs4.ops.cpu.gating import gated_residual, gated_residual_backward
from torchs4.ops.cpu.modal_kernel import (
    modal_kernel,
    modal_kernel_backward,
    power_kernel,
    power_kernel_backward,
)
from torchs4.ops.cpu.modal_step import modal_step

__all__ = [
    "PreparedBlocks",
    "bilinear",
    "bilinear_backward",
    "chunk_pass",
    "chunk_pass_backward",
    "dropout",
    "gated_residual",
    "gated_residual_backward",
    "long_convolution",
    "long_convolution_backward",
    "masked_batch_norm",
    "masked_batch_norm_backward",
    "modal_chunk_operators",
    "modal_chunk_operators_backward",
    "modal_kernel",
    "modal_kernel_backward",
    "modal_step",
    "power_kernel",
    "power_kernel_backward",
]
