"""Every operator on a device, beside the plain one in double precision on the CPU: does this machine work?"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from torchs4 import hippo, ops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torchs4.ops.implementation import Implementation

# Relative to the largest value. Kernels of 2,048 samples in single precision have 1e-5 or less, and sums over
# samples, of which gradients are made, lose a digit more. A wrong formula is off by far more.
OUTPUT_TOLERANCE, GRADIENT_TOLERANCE = 1e-4, 1e-3
BATCH, LENGTH, FEATURES, STATE_SIZE, BLOCK = 2, 2048, 24, 64, 64


class Check(NamedTuple):
    """One operator: the largest errors of outputs and gradients, and how long both took the second time."""

    operator: str
    output_error: float
    gradient_error: float
    milliseconds: float
    problem: str = ""

    @property
    def passed(self) -> bool:
        """Whether it gave what it should; errors that are not numbers do not pass."""
        within = self.output_error <= OUTPUT_TOLERANCE and self.gradient_error <= GRADIENT_TOLERANCE
        return within and not self.problem


def self_test(device: torch.device, implementation: Implementation) -> Iterator[Check]:
    """Try the operators one after the other."""
    for name, (operator, inputs) in _operators().items():
        with _chosen("reference"):
            outputs, gradients = _run(operator, [x.double() for x in inputs])
        there = [x.to(device) for x in inputs]
        try:
            with _chosen(implementation):
                _run(operator, there)
                start = time.perf_counter()
                found_outputs, found_gradients = _run(operator, there)
                # Reading waits for the device.
                found_outputs, found_gradients = _on_host(found_outputs), _on_host(found_gradients)
                elapsed = 1e3 * (time.perf_counter() - start)
        except (RuntimeError, TypeError) as error:
            yield Check(name, float("nan"), float("nan"), float("nan"), str(error).splitlines()[0])
            continue
        yield Check(name, _error(found_outputs, outputs), _error(found_gradients, gradients), elapsed)


def _operators() -> dict[str, tuple[Callable[..., Any], list[Tensor]]]:
    draw = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw)

    start = hippo.dplr_start("legs", STATE_SIZE)
    A, P, B = (torch.view_as_real(x.resolve_conj()).float() for x in start)
    A, B, P = A.repeat(FEATURES, 1, 1), B.repeat(FEATURES, 1, 1), P[:, None].repeat(1, FEATURES, 1, 1)
    C, D, dt = normal(1, FEATURES, STATE_SIZE // 2, 2), normal(1, FEATURES), torch.logspace(-4, -1, FEATURES)
    u, state = normal(BATCH, LENGTH, FEATURES), normal(BATCH, FEATURES, STATE_SIZE)
    mask = (torch.arange(LENGTH) < torch.tensor([[LENGTH], [LENGTH // 3]])).float()

    def chunks(
        A: Tensor, P: Tensor, B: Tensor, C: Tensor, dt: Tensor, D: Tensor, u: Tensor, x: Tensor
    ) -> Any:
        return ops.chunk_pass(ops.dplr_chunk_operators(A, P, P, B, C, dt, BLOCK), D, u, x)

    def step(A: Tensor, P: Tensor, B: Tensor, C: Tensor, dt: Tensor, D: Tensor, u: Tensor, x: Tensor) -> Any:
        system = ops.DiscreteDPLR(*(part.to(x.dtype) for part in ops.discretize_dplr(A, P, P, B, dt)))
        return ops.dplr_step(system, ops.output_row(C).to(x.dtype), D, u[:, 0], x)

    return {
        "DPLR kernel": (lambda A, P, B, C, dt: ops.dplr_kernel(A, P, P, B, C, dt, LENGTH), [A, P, B, C, dt]),
        "diagonal kernel": (lambda A, B, C, dt: ops.diagonal_kernel(A, B, C, dt, LENGTH), [A, B, C, dt]),
        "long convolution": (ops.long_convolution, [u, normal(1, FEATURES, LENGTH) / LENGTH**0.5]),
        "chunks": (chunks, [A, P, B, C, dt, D, u, state]),
        "step": (step, [A, P, B, C, dt, D, u, state]),
        "gated residual": (
            ops.gated_residual,
            [normal(BATCH, LENGTH, 2 * FEATURES), normal(2 * FEATURES), u],
        ),
        "batch norm": (
            lambda x, weight, bias, mask: ops.masked_batch_norm(x, mask > 0, weight, bias, 1e-5)[0],
            [u, normal(FEATURES), normal(FEATURES), mask],
        ),
    }


def _run(operator: Callable[..., Any], inputs: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    leaves = [x.detach().requires_grad_() for x in inputs]
    outputs = operator(*leaves)
    outputs = list(outputs) if isinstance(outputs, tuple) else [outputs]
    total = torch.zeros((), dtype=outputs[0].dtype, device=outputs[0].device)
    for y in outputs:
        # The same direction for everybody, of no special kind.
        direction = torch.linspace(-1, 1, y.numel(), dtype=torch.float32, device=y.device).to(y.dtype)
        total = total + (y * direction.view_as(y)).sum()
    gradients = torch.autograd.grad(total, leaves, allow_unused=True)
    return [y.detach() for y in outputs], [g for g in gradients if g is not None]


def _on_host(tensors: list[Tensor]) -> list[Tensor]:
    return [x.cpu() for x in tensors]


def _error(found: list[Tensor], expected: list[Tensor]) -> float:
    pairs = zip(found, expected, strict=True)
    errors = [((a.double() - b).abs().max() / b.abs().max()).item() for a, b in pairs]
    # NaN is larger than anything.
    return max(errors, key=lambda error: float("inf") if error != error else error)


@contextmanager
def _chosen(implementation: Implementation) -> Iterator[None]:
    before = ops.get_implementation()
    ops.set_implementation(implementation)
    try:
        yield
    finally:
        ops.set_implementation(before)
