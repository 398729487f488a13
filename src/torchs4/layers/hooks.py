"""What people hang on modules: hooks, wrappers, parametrisations. Shortcuts must not go past them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.nn.modules.module import (
    _global_backward_hooks,
    _global_backward_pre_hooks,
    _global_forward_hooks,
    _global_forward_hooks_with_kwargs,
    _global_forward_pre_hooks,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn


def is_plain(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Whether calling a module does what that class does and nothing else."""
    # A parametrised module has a class of its own; older kinds of weight norm and pruning are hooks.
    return type(module) is kind and are_untouched(module)


def are_untouched(*modules: nn.Module) -> bool:
    """Whether calls of these modules run what their classes say, without hooks around it."""
    if (
        _global_forward_hooks
        or _global_forward_pre_hooks
        or _global_backward_hooks
        or _global_backward_pre_hooks
    ):
        return False
    for module in modules:
        # Every step asks, and attributes of modules are slow.
        own = module.__dict__
        if (
            own["_forward_hooks"]
            or own["_forward_pre_hooks"]
            or own["_backward_hooks"]
            or own["_backward_pre_hooks"]
            or "forward" in own
        ):
            return False
    return True


def run_hooked(
    module: nn.Module, verb: Callable[[Any, Any, float], tuple[Any, Any]], x: Tensor, state: Any, rate: float
) -> tuple[Any, Any]:
    """The module's prefill or step with its forward hooks around it, which PyTorch runs for calls only.

    Hooks see the input and the output, as in a call, and may change them; the state goes past them.
    """
    if are_untouched(module):
        return verb(x, state, rate)
    options = {"rate": rate}
    for key, before in [*_global_forward_pre_hooks.items(), *module._forward_pre_hooks.items()]:
        if key in module._forward_pre_hooks_with_kwargs:
            changed = before(module, (x,), options)
            if changed is not None:
                (x,), options = changed
        else:
            changed = before(module, (x,))
            if changed is not None:
                x = changed[0] if isinstance(changed, tuple) else changed
    y, state = verb(x, state, options["rate"])
    for key, after in [*_global_forward_hooks.items(), *module._forward_hooks.items()]:
        if key in module._forward_hooks_with_kwargs or key in _global_forward_hooks_with_kwargs:
            changed = after(module, (x,), options, y)
        else:
            changed = after(module, (x,), y)
        y = y if changed is None else changed
    return y, state
