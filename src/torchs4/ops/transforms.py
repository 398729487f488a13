"""Transforms of functions, which need to see into every operation, and derivatives by plain formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.autograd import forward_ad

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor


def inside_transform() -> bool:
    """Whether torch.func (grad, vmap, jacrev, jvp, …) or forward-mode derivatives are at work.

    They have no rules for compiled operators; the plain formulas are made of operations that they know.
    """
    if torch.compiler.is_compiling():
        return False
    # Neither has a public question that costs as little.
    return forward_ad._current_level >= 0 or torch._C._functorch.peek_interpreter_stack() is not None


def differentiate_plainly(
    function: Callable[..., Any], inputs: Sequence[Tensor | None], grads: Sequence[Tensor]
) -> tuple[Tensor | None, ...]:
    """The gradients of a plain function for the inputs that want one.

    Fit to be differentiated again, where gradients are on.
    """
    # One tensor may be two of the inputs, whose gradients are apart.
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        own = [x if x is None or not x.requires_grad else x.view_as(x) for x in inputs]
        wanted = [x for x in own if x is not None and x.requires_grad]
        outputs = function(*own)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        pairs = [(y, grad) for y, grad in zip(outputs, grads, strict=True) if y.requires_grad]
        found = torch.autograd.grad(
            [y for y, _ in pairs], wanted, [grad for _, grad in pairs], create_graph=again, allow_unused=True
        )
    rest = iter(found)
    return tuple(next(rest) if x is not None and x.requires_grad else None for x in own)
