"""The operators for every device: matrix products, elementwise passes and torch.fft in single precision.

The same names as in `reference`; what `bilinear` and `power_system` hand to the kernels is this package's
own. Real pairs take the place of complex numbers, nothing needs double precision, loops run over the digits
of a length, and nothing waits for the device. A compiler sees into everything but four operators whose work
depends on the length: both kernels, the convolution and the chunk pass, which vendors' libraries run anyway.
"""

from torchs4.ops.portable.batch_norm import masked_batch_norm
from torchs4.ops.portable.chunk_operators import modal_chunk_operators
from torchs4.ops.portable.chunk_pass import chunk_pass, chunk_pass_backward
from torchs4.ops.portable.convolution import long_convolution, long_convolution_backward
from torchs4.ops.portable.discretization import (
    bilinear,
    diagonal_system,
    discretize_diagonal,
    discretize_dplr,
    output_row,
    power_system,
)
from torchs4.ops.portable.gating import gated_residual
from torchs4.ops.portable.modal_kernel import modal_kernel
from torchs4.ops.portable.power_kernel import power_kernel
from torchs4.ops.portable.steps import PreparedBlocks, modal_step

__all__ = [
    "PreparedBlocks",
    "bilinear",
    "chunk_pass",
    "chunk_pass_backward",
    "diagonal_system",
    "discretize_diagonal",
    "discretize_dplr",
    "gated_residual",
    "long_convolution",
    "long_convolution_backward",
    "masked_batch_norm",
    "modal_chunk_operators",
    "modal_kernel",
    "modal_step",
    "output_row",
    "power_kernel",
    "power_system",
]
