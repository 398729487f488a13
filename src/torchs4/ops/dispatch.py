"""Where an operator comes from: one rule, asked at every call of every operator."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from torchs4.ops import portable, reference, registered
from torchs4.ops.implementation import implementation_for, implementation_on
from torchs4.ops.transforms import inside_transform

if TYPE_CHECKING:
    from types import ModuleType

    from torch import Tensor

# Passes over activations: compiled code reads all their tensors in one full precision, and of gates those
# that a product under autocast gives. What other precisions become is for PyTorch's own rules to say.
_PASSES = ("gated_residual", "dropout")
_FULL_PRECISION = ({torch.float32}, {torch.float64})
_UNDER_AUTOCAST = [torch.bfloat16, torch.float32, torch.float32]
# How much work these are depends on the length, which must not be part of a compiler's graph.
_REGISTERED_EVERYWHERE = ("long_convolution", "chunk_pass")
# Small formulas with nothing to compile.
_FORMULAS = ("discretize_dplr", "discretize_diagonal", "output_row")


def home_of(operator: str, *tensors: Tensor) -> ModuleType:
    """The module from which the operator of that name is taken for these tensors.

    Where the portable implementation runs: its functions, which PyTorch and its compiler see into, all but
    the convolution and the chunk pass, whose backward passes are registered. Elsewhere:

    - Inside a transform of functions: the plain formulas, which transforms can see into.
    - Small formulas, and passes over activations in precisions that compiled code does not read: the plain
      ones.
    - A step that is differentiated: the plain formulas. One that is not, outside of a compiler: the
      implementation itself, because a registered operator's call would cost more than the step.
    - Everything else: the registered operators, which run the implementation and know its backward pass.
    """
    transformed = inside_transform()
    if implementation_on(tensors[0].device) == "portable":
        return registered if operator in _REGISTERED_EVERYWHERE and not transformed else portable
    if transformed or operator in _FORMULAS:
        return reference
    if operator in _PASSES and not _compiled_pass_takes([tensor.dtype for tensor in tensors]):
        return reference
    if operator == "modal_step":
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            return reference
        if not torch.compiler.is_compiling():
            return implementation_for(tensors[0])
    return registered


def _compiled_pass_takes(dtypes: list[torch.dtype]) -> bool:
    return set(dtypes) in _FULL_PRECISION or dtypes == _UNDER_AUTOCAST
