"""Numeric operators: the public functions, which check what they get and run an implementation.

Axes: B batch, L length, H features, N state size, n = N/2 stored modes, R rank, M output channels.
Complex parameters are real pairs (..., 2); states are (B, H, N), real and imaginary parts interleaved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchs4.ops import registered
from torchs4.ops.dispatch import home_of
from torchs4.ops.dtypes import kernel_dtype
from torchs4.ops.forms import BlockWeights, ChunkOperators, DiscreteDPLR, NormWeights, PreparedBlocks
from torchs4.ops.implementation import (
    get_implementation,
    implementation_for,
    implementation_on,
    set_implementation,
    step_in_triton,
    steps_in_triton,
)
from torchs4.ops.mixing import linear
from torchs4.ops.reference import (
    dense_chunk_operators,
    dense_kernel,
    dense_step,
    dense_transition,
)
from torchs4.ops.transforms import inside_transform

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Bool, Float

    from torchs4.ssm import Discretization

__all__ = [
    "BlockWeights",
    "ChunkOperators",
    "DiscreteDPLR",
    "NormWeights",
    "PreparedBlocks",
    "chunk_pass",
    "dense_chunk_operators",
    "dense_kernel",
    "dense_step",
    "dense_transition",
    "diagonal_chunk_operators",
    "diagonal_kernel",
    "discretize_diagonal",
    "discretize_dplr",
    "dplr_chunk_operators",
    "dplr_kernel",
    "dplr_step",
    "dropout",
    "gated_residual",
    "get_implementation",
    "implementation_on",
    "inside_transform",
    "kernel_dtype",
    "linear",
    "long_convolution",
    "masked_batch_norm",
    "output_row",
    "prepare_blocks",
    "set_implementation",
    "step_in_triton",
    "steps_in_triton",
]


def dplr_kernel(
    A: Float[Tensor, "H n 2"],
    P: Float[Tensor, "R H n 2"],
    Q: Float[Tensor, "R H n 2"],
    B: Float[Tensor, "H n 2"],
    C: Float[Tensor, "M H n 2"],
    dt: Float[Tensor, " H"],
    length: int,
) -> Float[Tensor, "M H L"]:
    """The convolution kernel C Ā^l B̄ of A = Λ - P Q* under the bilinear rule, for any length."""
    H, n, _ = A.shape
    _require_length(length)
    _require_shape("A", A, (H, n, 2))
    _require_shape("P", P, (P.shape[0], H, n, 2))
    _require_shape("Q", Q, tuple(P.shape))
    _require_shape("B", B, (H, n, 2))
    _require_shape("C", C, (C.shape[0], H, n, 2))
    _require_shape("dt", dt, (H,))
    run = home_of("modal_kernel", C)
    return run.modal_kernel(*run.bilinear(A, P, Q, B, dt), C, length)


def diagonal_kernel(
    A: Float[Tensor, "H n 2"],
    B: Float[Tensor, "H n 2"],
    C: Float[Tensor, "M H n 2"],
    dt: Float[Tensor, " H"],
    length: int,
    method: Discretization = "zoh",
) -> Float[Tensor, "M H L"]:
    """The convolution kernel of a diagonal A, for any length."""
    H, n, _ = A.shape
    _require_length(length)
    _require_shape("B", B, (H, n, 2))
    _require_shape("C", C, (C.shape[0], H, n, 2))
    _require_shape("dt", dt, (H,))
    run = home_of("power_kernel", C)
    return run.power_kernel(*run.power_system(A, B, C, dt, method), length, kernel_dtype(C))


def long_convolution(
    u: Float[Tensor, "B L H"],
    kernel: Float[Tensor, "M H L"],
    backward_kernel: Float[Tensor, "M H L"] | None = None,
    skip: Float[Tensor, "M H"] | None = None,
) -> Float[Tensor, "B L M H"]:
    """Causal convolution of every feature with its kernels; a backward kernel looks at the future.

    y_t = Σ_{j≤t} k_{t-j} u_j + Σ_{j≥0} k'_j u_{t+1+j} + D u_t with the skip as D, in the kernel's precision.
    """
    _, length, H = u.shape
    _require_length(length)
    _require_shape("kernel", kernel, (kernel.shape[0], H, length))
    if backward_kernel is not None:
        _require_shape("backward_kernel", backward_kernel, tuple(kernel.shape))
    if skip is not None:
        _require_shape("skip", skip, tuple(kernel.shape[:2]))
    run = home_of("long_convolution", u)
    return run.long_convolution(u, kernel, backward_kernel, skip).permute(1, 2, 0, 3)


def discretize_dplr(
    A: Float[Tensor, "H n 2"],
    P: Float[Tensor, "R H n 2"],
    Q: Float[Tensor, "R H n 2"],
    B: Float[Tensor, "H n 2"],
    dt: Float[Tensor, " H"],
) -> DiscreteDPLR:
    """The bilinear rule for A = Λ - P Q*: again diagonal plus low rank, ready to step."""
    return home_of("discretize_dplr", A).discretize_dplr(A, P, Q, B, dt)


def discretize_diagonal(
    A: Float[Tensor, "H n 2"], B: Float[Tensor, "H n 2"], dt: Float[Tensor, " H"], method: Discretization
) -> DiscreteDPLR:
    """The bilinear rule or zero-order hold for a diagonal A, ready to step."""
    return home_of("discretize_diagonal", A).discretize_diagonal(A, B, dt, method)


def output_row(C: Float[Tensor, "M H n 2"]) -> Float[Tensor, "M H N"]:
    """The real row that reads 2·Re Σ C x from an interleaved state."""
    return home_of("output_row", C).output_row(C)


def dplr_chunk_operators(
    A: Float[Tensor, "H n 2"],
    P: Float[Tensor, "R H n 2"],
    Q: Float[Tensor, "R H n 2"],
    B: Float[Tensor, "H n 2"],
    C: Float[Tensor, "M H n 2"],
    dt: Float[Tensor, " H"],
    block: int,
) -> ChunkOperators:
    """What the system of `dplr_kernel` does to a block of that many samples."""
    _require_length(block)
    run = home_of("modal_chunk_operators", C)
    return ChunkOperators(*run.modal_chunk_operators(*run.bilinear(A, P, Q, B, dt), C, block))


def diagonal_chunk_operators(
    A: Float[Tensor, "H n 2"],
    B: Float[Tensor, "H n 2"],
    C: Float[Tensor, "M H n 2"],
    dt: Float[Tensor, " H"],
    block: int,
    method: Discretization = "zoh",
) -> ChunkOperators:
    """What the system of `diagonal_kernel` does to a block of that many samples."""
    _require_length(block)
    run = home_of("modal_chunk_operators", C)
    return ChunkOperators(*run.modal_chunk_operators(*run.diagonal_system(A, B, dt, method), C, block))


def chunk_pass(
    operators: ChunkOperators,
    skip: Float[Tensor, "M H"],
    u: Float[Tensor, "B L H"],
    state: Float[Tensor, "B H N"],
) -> tuple[Float[Tensor, "B L M H"], Float[Tensor, "B H N"]]:
    """The recurrence from a state: the outputs, D u included, and the state after the last block.

    A signal that ends inside a block counts as zero up to the block's end, which is where that state belongs.
    """
    M, H, block, N = operators.sight.shape
    batch, length, _ = u.shape
    _require_length(length)
    _require_shape("reach", operators.reach, (H, block, N))
    _require_shape("response", operators.response, (M, H, block))
    _require_shape("change", operators.change, (H, N, N))
    _require_shape("u", u, (batch, length, H))
    _require_shape("state", state, (batch, H, N))
    _require_shape("skip", skip, (M, H))
    y, final = home_of("chunk_pass", u).chunk_pass(*operators, skip, u, state)
    return y.permute(1, 2, 0, 3), final


def gated_residual(
    mixed: Float[Tensor, "... 2*H"],
    bias: Float[Tensor, " 2*H"],
    residual: Float[Tensor, "... H"],
    scale: Float[Tensor, "B H"] | None = None,
) -> Float[Tensor, "... H"]:
    """The residual plus a gated linear unit: x + s·v·σ(g), where v and g are the halves of mixed + bias.

    scale: one s per sequence and feature, as dropout draws them; it gets no gradient.
    """
    H = residual.shape[-1]
    _require_shape("mixed", mixed, (*residual.shape[:-1], 2 * H))
    _require_shape("bias", bias, (2 * H,))
    if scale is not None:
        _require_shape("residual", residual, (len(scale), *residual.shape[1:2], H))
        _require_shape("scale", scale, (len(residual), H))
    return home_of("gated_residual", mixed, bias, residual).gated_residual(mixed, bias, residual, scale)


def dropout(x: Float[Tensor, "*shape"], probability: float) -> Float[Tensor, "*shape"]:
    """Each number becomes 0 with this probability, the others grow to make up for it.

    What it draws comes from PyTorch's generator: `torch.manual_seed` repeats it.
    """
    if home_of("dropout", x) is registered and x.device.type == "cpu" and 0 < probability < 1:
        return registered.dropout(x, torch.randint(2**63 - 1, ()), probability)
    # Other devices draw masks faster than they could be hashed; transforms have rules about randomness.
    return torch.nn.functional.dropout(x, probability)


def masked_batch_norm(
    x: Float[Tensor, "B L H"],
    mask: Bool[Tensor, "B L"],
    weight: Float[Tensor, " H"],
    bias: Float[Tensor, " H"],
    epsilon: float,
) -> tuple[Float[Tensor, "B L H"], Float[Tensor, " H"], Float[Tensor, " H"]]:
    """Normalise every feature over the positions that the mask marks; the others become zero.

    Also their mean and variance (divided by their number), which carry no gradient.
    """
    H = x.shape[-1]
    _require_shape("mask", mask, tuple(x.shape[:-1]))
    _require_shape("weight", weight, (H,))
    _require_shape("bias", bias, (H,))
    run = home_of("masked_batch_norm", x)
    y, mean, variance = run.masked_batch_norm(x.to(weight.dtype), mask, weight, bias, epsilon)
    return y.to(x.dtype), mean.detach(), variance.detach()


def dplr_step(
    system: DiscreteDPLR,
    C: Float[Tensor, "M H N"],
    D: Float[Tensor, "M H"],
    u: Float[Tensor, "B H"],
    state: Float[Tensor, "B H N"],
) -> tuple[Float[Tensor, "B M H"], Float[Tensor, "B H N"]]:
    """One step at O(N) per feature: the output C x + D u and the next state x."""
    arguments = (*system, C, D, u, state)
    y, new_state = home_of("modal_step", *arguments).modal_step(*arguments)
    return y, new_state


def prepare_blocks(blocks: Sequence[BlockWeights], final_norm: NormWeights | None = None) -> PreparedBlocks:
    """Equal blocks and a norm after them, to step in one call; weights that change in place are seen."""
    if steps_in_triton():
        # Comes with PyTorch for some devices only.
        from torchs4.ops.portable.triton_blocks import TritonBlocks

        return TritonBlocks(blocks, final_norm)
    prepared: PreparedBlocks = implementation_for(blocks[0].mixing_weight).PreparedBlocks(blocks, final_norm)
    return prepared


def _require_length(length: int) -> None:
    if length < 1:
        raise ValueError(f"length is {length}; a kernel or a signal needs at least one sample.")


def _require_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tensor.shape != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; expected {shape}.")
