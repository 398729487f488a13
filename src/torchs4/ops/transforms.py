"""Whether PyTorch is transforming functions: it then needs to see into every operation."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad


def inside_transform() -> bool:
    """Whether torch.func (grad, vmap, jacrev, jvp, …) or forward-mode derivatives are at work.

    They have no rules for compiled operators; the plain formulas are made of operations that they know.
    """
    if torch.compiler.is_compiling():
        return False
    # Neither has a public question that costs as little.
    return forward_ad._current_level >= 0 or torch._C._functorch.peek_interpreter_stack() is not None
