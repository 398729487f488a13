"""Operators registered with torch.library.

A compiler or an exporter sees one opaque node with known shapes instead of loops, threads and complex
numbers. Each has a written-out backward pass and runs the implementation that is chosen for its tensors. A
backward pass that is to be differentiated itself goes through the plain formulas.

Inside a compiled graph PyTorch calls these with lazy conjugation switched off, so implementations conjugate
with `conj_physical`, never with `conj`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from torchs4.ops.dtypes import exact_products, full_precision, kernel_dtype
from torchs4.ops.implementation import implementation_for, plain_formulas

# Small and differentiable as they are: nothing to register.
from torchs4.ops.reference import diagonal_system, power_system
from torchs4.ops.transforms import differentiate_plainly

__all__ = [
    "bilinear",
    "chunk_pass",
    "diagonal_system",
    "dropout",
    "gated_residual",
    "long_convolution",
    "masked_batch_norm",
    "modal_chunk_operators",
    "modal_kernel",
    "modal_step",
    "power_kernel",
    "power_system",
]


def _goes_plainly(tensor: Tensor, backward: str) -> bool:
    """Whether a gradient is to be differentiated itself, or the implementation does not write it out."""
    return torch.is_grad_enabled() or not hasattr(implementation_for(tensor), backward)


@torch.library.custom_op("torchs4::bilinear", mutates_args=())
def bilinear(A: Tensor, P: Tensor, Q: Tensor, B: Tensor, dt: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The discrete system that `modal_kernel` takes; see reference.bilinear."""
    decay, p, q, b = implementation_for(A).bilinear(A, P, Q, B, dt)
    return decay, p, q, b


@bilinear.register_fake
def _(A: Tensor, P: Tensor, Q: Tensor, B: Tensor, dt: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    decay, p, q, b = (x.new_empty(x.shape, dtype=torch.float64) for x in (A, P, Q, B))
    return decay, p, q, b


@torch.library.custom_op("torchs4::bilinear_backward", mutates_args=())
def bilinear_backward(
    grads: list[Tensor], A: Tensor, P: Tensor, Q: Tensor, B: Tensor, dt: Tensor
) -> list[Tensor]:
    """The gradients of `bilinear` for its tensors."""
    return implementation_for(A).bilinear_backward(grads, A, P, Q, B, dt)


@bilinear_backward.register_fake
def _(grads: list[Tensor], A: Tensor, P: Tensor, Q: Tensor, B: Tensor, dt: Tensor) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in (A, P, Q, B, dt)]


def _keep_continuous_system(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate_bilinear(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    system = ctx.saved_tensors
    if torch.is_grad_enabled():
        return differentiate_plainly(plain_formulas(system[0]).bilinear, system, grads)
    return tuple(bilinear_backward(list(grads), *system))


bilinear.register_autograd(_differentiate_bilinear, setup_context=_keep_continuous_system)


@torch.library.custom_op("torchs4::modal_kernel", mutates_args=())
def modal_kernel(decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, length: int) -> Tensor:
    """The kernel of a discrete DPLR system; see reference.modal_kernel."""
    return implementation_for(C).modal_kernel(decay, p, q, b, C, length)


@modal_kernel.register_fake
def _(decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, length: int) -> Tensor:
    return C.new_empty(C.shape[0], C.shape[1], length, dtype=kernel_dtype(C))


@torch.library.custom_op("torchs4::modal_kernel_backward", mutates_args=())
def modal_kernel_backward(
    grad: Tensor, decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor
) -> list[Tensor]:
    """The gradients of `modal_kernel` for its tensors."""
    return implementation_for(C).modal_kernel_backward(grad, decay, p, q, b, C)


@modal_kernel_backward.register_fake
def _(grad: Tensor, decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in (decay, p, q, b, C)]


def _keep_system(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:-1])


def _differentiate_modal_kernel(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    system = ctx.saved_tensors
    if torch.is_grad_enabled():
        kernel = partial(plain_formulas(grad).modal_kernel, length=grad.shape[-1])
        return (*differentiate_plainly(kernel, system, [grad]), None)
    return (*modal_kernel_backward(grad, *system), None)


modal_kernel.register_autograd(_differentiate_modal_kernel, setup_context=_keep_system)


@torch.library.custom_op("torchs4::power_kernel", mutates_args=())
def power_kernel(a: Tensor, weights: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    """The kernel of a discrete diagonal system; see reference.power_kernel."""
    return implementation_for(a).power_kernel(a, weights, length, dtype)


@power_kernel.register_fake
def _(a: Tensor, weights: Tensor, length: int, dtype: torch.dtype) -> Tensor:
    return weights.new_empty(weights.shape[0], weights.shape[1], length, dtype=dtype)


@torch.library.custom_op("torchs4::power_kernel_backward", mutates_args=())
def power_kernel_backward(grad: Tensor, a: Tensor, weights: Tensor) -> list[Tensor]:
    """The gradients of `power_kernel` for a and the weights."""
    return implementation_for(a).power_kernel_backward(grad, a, weights)


@power_kernel_backward.register_fake
def _(grad: Tensor, a: Tensor, weights: Tensor) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in (a, weights)]


def _keep_modes(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])


def _differentiate_power_kernel(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    system = ctx.saved_tensors
    if torch.is_grad_enabled():
        kernel = partial(plain_formulas(grad).power_kernel, length=grad.shape[-1], dtype=grad.dtype)
        return (*differentiate_plainly(kernel, system, [grad]), None, None)
    return (*power_kernel_backward(grad, *system), None, None)


power_kernel.register_autograd(_differentiate_power_kernel, setup_context=_keep_modes)


@torch.library.custom_op("torchs4::long_convolution", mutates_args=())
def long_convolution(
    u: Tensor, kernel: Tensor, backward_kernel: Tensor | None, skip: Tensor | None
) -> Tensor:
    """(M, B, L, H): every channel's convolution; see reference.long_convolution."""
    return implementation_for(u).long_convolution(u, kernel, backward_kernel, skip)


@long_convolution.register_fake
def _(u: Tensor, kernel: Tensor, backward_kernel: Tensor | None, skip: Tensor | None) -> Tensor:
    return u.new_empty(kernel.shape[0], *u.shape, dtype=kernel.dtype)


@torch.library.custom_op("torchs4::long_convolution_backward", mutates_args=())
def long_convolution_backward(
    grad: Tensor, u: Tensor, kernel: Tensor, backward_kernel: Tensor | None, skip: Tensor | None
) -> list[Tensor]:
    """The gradients of `long_convolution` for the signal and each kernel."""
    return implementation_for(u).long_convolution_backward(grad, u, kernel, backward_kernel, skip)


@long_convolution_backward.register_fake
def _(
    grad: Tensor, u: Tensor, kernel: Tensor, backward_kernel: Tensor | None, skip: Tensor | None
) -> list[Tensor]:
    kernels = [kernel] if backward_kernel is None else [kernel, backward_kernel]
    return [x.new_empty(x.shape) for x in (u, *kernels)]


def _keep_signal(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate_long_convolution(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    # Read once: checkpointing allows no more.
    inputs = ctx.saved_tensors
    if torch.is_grad_enabled():
        return differentiate_plainly(plain_formulas(grad).long_convolution, inputs, [grad])
    skip = inputs[3]
    u_grad, kernel_grad, *rest = long_convolution_backward(grad, *inputs)
    # The skip acts like one more value of the kernel's first sample.
    skip_grad = None if skip is None else kernel_grad[..., 0].to(skip.dtype)
    return u_grad, kernel_grad, (rest[0] if rest else None), skip_grad


long_convolution.register_autograd(_differentiate_long_convolution, setup_context=_keep_signal)


@torch.library.custom_op("torchs4::modal_chunk_operators", mutates_args=())
def modal_chunk_operators(
    decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, block: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What a discrete DPLR system does to a block; see forms.ChunkOperators."""
    reach, sight, response, change = implementation_for(C).modal_chunk_operators(decay, p, q, b, C, block)
    return reach, sight, response, change


@modal_chunk_operators.register_fake
def _(
    decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, block: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    M, H, n, _ = C.shape
    shapes = (H, block, 2 * n), (M, H, block, 2 * n), (M, H, block), (H, 2 * n, 2 * n)
    reach, sight, response, change = (C.new_empty(shape, dtype=kernel_dtype(C)) for shape in shapes)
    return reach, sight, response, change


@torch.library.custom_op("torchs4::modal_chunk_operators_backward", mutates_args=())
def modal_chunk_operators_backward(
    grads: list[Tensor], decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor
) -> list[Tensor]:
    """The gradients of `modal_chunk_operators` for its tensors."""
    return implementation_for(C).modal_chunk_operators_backward(grads, decay, p, q, b, C)


@modal_chunk_operators_backward.register_fake
def _(grads: list[Tensor], decay: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in (decay, p, q, b, C)]


def _keep_discrete_system(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs[:-1])


def _differentiate_modal_chunk_operators(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    system = ctx.saved_tensors
    if torch.is_grad_enabled() or not hasattr(
        implementation_for(system[0]), "modal_chunk_operators_backward"
    ):
        operators = partial(plain_formulas(grads[0]).modal_chunk_operators, block=grads[0].shape[1])
        return (*differentiate_plainly(operators, system, grads), None)
    return (*modal_chunk_operators_backward(list(grads), *system), None)


modal_chunk_operators.register_autograd(
    _differentiate_modal_chunk_operators, setup_context=_keep_discrete_system
)


@torch.library.custom_op("torchs4::chunk_pass", mutates_args=())
def chunk_pass(
    reach: Tensor,
    sight: Tensor,
    response: Tensor,
    change: Tensor,
    skip: Tensor,
    u: Tensor,
    state: Tensor,
) -> tuple[Tensor, Tensor]:
    """Outputs (M, B, L, H) and the next state; see reference.chunk_pass."""
    with exact_products(u):
        y, final = implementation_for(u).chunk_pass(reach, sight, response, change, skip, u, state)
    return y, final


@chunk_pass.register_fake
def _(
    reach: Tensor,
    sight: Tensor,
    response: Tensor,
    change: Tensor,
    skip: Tensor,
    u: Tensor,
    state: Tensor,
) -> tuple[Tensor, Tensor]:
    return reach.new_empty(sight.shape[0], *u.shape), reach.new_empty(state.shape)


@torch.library.custom_op("torchs4::chunk_pass_backward", mutates_args=())
def chunk_pass_backward(grad: Tensor, final_grad: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    """The gradients of `chunk_pass` for its tensors."""
    with exact_products(grad):
        return implementation_for(grad).chunk_pass_backward(grad, final_grad, *inputs)


@chunk_pass_backward.register_fake
def _(grad: Tensor, final_grad: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in inputs]


def _keep_chunk(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs)


def _differentiate_chunk_pass(ctx: Any, grad: Tensor, final_grad: Tensor) -> tuple[Tensor | None, ...]:
    inputs = ctx.saved_tensors
    if _goes_plainly(grad, "chunk_pass_backward"):
        return differentiate_plainly(plain_formulas(grad).chunk_pass, inputs, [grad, final_grad])
    # Somebody may go backward inside autocast, where products would be rounded to half precision.
    with full_precision(grad):
        return tuple(chunk_pass_backward(grad, final_grad, list(inputs)))


chunk_pass.register_autograd(_differentiate_chunk_pass, setup_context=_keep_chunk)


@torch.library.custom_op("torchs4::gated_residual", mutates_args=())
def gated_residual(mixed: Tensor, bias: Tensor, residual: Tensor, scale: Tensor | None) -> Tensor:
    """The end of a block; see reference.gated_residual."""
    return implementation_for(residual).gated_residual(mixed, bias, residual, scale)


@gated_residual.register_fake
def _(mixed: Tensor, bias: Tensor, residual: Tensor, scale: Tensor | None) -> Tensor:
    return residual.new_empty(residual.shape)


@torch.library.custom_op("torchs4::gated_residual_backward", mutates_args=())
def gated_residual_backward(grad: Tensor, mixed: Tensor, bias: Tensor, scale: Tensor | None) -> list[Tensor]:
    """The gradients of `gated_residual` for mixed and bias."""
    return implementation_for(grad).gated_residual_backward(grad, mixed, bias, scale)


@gated_residual_backward.register_fake
def _(grad: Tensor, mixed: Tensor, bias: Tensor, scale: Tensor | None) -> list[Tensor]:
    return [x.new_empty(x.shape) for x in (mixed, bias)]


def _keep_gates(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    mixed, bias, _, scale = inputs
    ctx.save_for_backward(mixed, bias, scale)


def _differentiate_gated_residual(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    mixed, bias, scale = ctx.saved_tensors
    if torch.is_grad_enabled():
        gates = partial(plain_formulas(grad).gated_residual, residual=torch.zeros_like(grad), scale=scale)
        return (*differentiate_plainly(gates, [mixed, bias], [grad]), grad, None)
    return (*gated_residual_backward(grad, mixed, bias, scale), grad, None)


gated_residual.register_autograd(_differentiate_gated_residual, setup_context=_keep_gates)


@torch.library.custom_op("torchs4::dropout", mutates_args=())
def dropout(x: Tensor, seed: Tensor, probability: float) -> Tensor:
    """Dropout by a hash of places; see reference.dropout."""
    return implementation_for(x).dropout(x, seed, probability)


@dropout.register_fake
def _(x: Tensor, seed: Tensor, probability: float) -> Tensor:
    return x.new_empty(x.shape)


def _keep_seed(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, seed, ctx.probability = inputs
    ctx.save_for_backward(seed)


def _differentiate_dropout(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return dropout(grad, *ctx.saved_tensors, ctx.probability), None, None


dropout.register_autograd(_differentiate_dropout, setup_context=_keep_seed)


@torch.library.custom_op("torchs4::masked_batch_norm", mutates_args=())
def masked_batch_norm(
    x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, epsilon: float
) -> tuple[Tensor, Tensor, Tensor]:
    """BatchNorm without padding; see reference.masked_batch_norm. Mean and variance have no gradient."""
    y, mean, variance = implementation_for(x).masked_batch_norm(x, mask, weight, bias, epsilon)
    return y, mean, variance


@masked_batch_norm.register_fake
def _(x: Tensor, mask: Tensor, weight: Tensor, bias: Tensor, epsilon: float) -> tuple[Tensor, Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape[-1]), x.new_empty(x.shape[-1])


@torch.library.custom_op("torchs4::masked_batch_norm_backward", mutates_args=())
def masked_batch_norm_backward(
    grad: Tensor,
    x: Tensor,
    mask: Tensor,
    weight: Tensor,
    mean: Tensor,
    variance: Tensor,
    epsilon: float,
) -> list[Tensor]:
    """The gradients of `masked_batch_norm` for x, weight and bias."""
    return implementation_for(x).masked_batch_norm_backward(grad, x, mask, weight, mean, variance, epsilon)


@masked_batch_norm_backward.register_fake
def _(
    grad: Tensor,
    x: Tensor,
    mask: Tensor,
    weight: Tensor,
    mean: Tensor,
    variance: Tensor,
    epsilon: float,
) -> list[Tensor]:
    return [x.new_empty(x.shape), x.new_empty(x.shape[-1]), x.new_empty(x.shape[-1])]


def _keep_rows(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, mask, weight, bias, ctx.epsilon = inputs
    ctx.save_for_backward(x, mask, weight, bias, *output[1:])


def _differentiate_masked_batch_norm(ctx: Any, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    x, mask, weight, bias, mean, variance = ctx.saved_tensors
    if torch.is_grad_enabled():

        def normalised(*inputs: Tensor) -> Tensor:
            y, _, _ = plain_formulas(grad).masked_batch_norm(*inputs, ctx.epsilon)
            return y

        return (*differentiate_plainly(normalised, [x, mask, weight, bias], [grad]), None)
    x_grad, weight_grad, bias_grad = masked_batch_norm_backward(
        grad, x, mask, weight, mean, variance, ctx.epsilon
    )
    return x_grad, None, weight_grad, bias_grad, None


masked_batch_norm.register_autograd(_differentiate_masked_batch_norm, setup_context=_keep_rows)


@torch.library.custom_op("torchs4::modal_step", mutates_args=())
def modal_step(
    a: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, D: Tensor, u: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """One step of a discrete DPLR system, without gradients: outputs (B, M, H) and the next state."""
    return implementation_for(state).modal_step(a, p, q, b, C, D, u, state)


@modal_step.register_fake
def _(
    a: Tensor, p: Tensor, q: Tensor, b: Tensor, C: Tensor, D: Tensor, u: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    return state.new_empty(state.shape[0], C.shape[0], C.shape[1]), state.new_empty(state.shape)
