"""LAMB: Adam whose step is as long, relative to a weight matrix, as the rate says (You et al., 2020).

The one of timm is kept well, but brings torchvision with it; this is the algorithm alone, tested against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


class Lamb(Optimizer):
    """Steps r = m / (√v + ε) + λ w of Adam's corrected moments, made lr · |w| long.

    Groups without weight decay take Adam's own steps, lr · r: biases, norms and state-space parameters have
    no length that means anything.
    """

    def __init__(
        self,
        params: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Change every weight that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._change(weight, group)
        return loss

    def _change(self, weight: Tensor, group: dict[str, Any]) -> None:
        state, (first, second) = self.state[weight], group["betas"]
        if not state:
            state["step"] = torch.zeros(())
            state["mean"], state["square"] = torch.zeros_like(weight), torch.zeros_like(weight)
        state["step"] += 1
        step = int(state["step"])
        mean = state["mean"].lerp_(weight.grad, 1 - first)
        square = state["square"].mul_(second).addcmul_(weight.grad, weight.grad, value=1 - second)
        deviation = (square / (1 - second**step)).sqrt_().add_(group["eps"])
        change = (mean / (1 - first**step)).div_(deviation)
        length = 1.0
        if group["weight_decay"]:
            change.add_(weight, alpha=group["weight_decay"])
            size, reach = float(weight.norm()), float(change.norm())
            # A weight that is still zero has no length yet: Adam's step gives it one.
            length = size / reach if size and reach else 1.0
        weight.add_(change, alpha=-group["lr"] * length)
