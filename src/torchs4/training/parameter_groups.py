"""Which parameters an optimiser treats how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torchs4.configuration import require_at_least
from torchs4.layers import SSMLayer

if TYPE_CHECKING:
    from torch import nn


def parameter_groups(
    model: nn.Module,
    lr: float,
    weight_decay: float = 0.0,
    ssm_lr: float = 1e-3,
    step_size_lr: float | None = None,
    slow_output: bool = True,
) -> list[dict[str, Any]]:
    """Groups for torch.optim: `AdamW(parameter_groups(model, lr=0.01, weight_decay=0.05))`.

    State-space parameters (Λ, P, B, C, Δ) get at most ssm_lr and no decay, which keeps HiPPO intact. Δ may
    have a rate of its own, step_size_lr; without slow_output, C is a weight like any other. Biases and norms
    get lr and no decay; everything else gets lr and weight_decay. Frozen parameters are left out.
    """
    if not hasattr(model, "modules"):
        raise ValueError(
            f"model is a {type(model).__name__}; expected the module itself, parameter_groups(model, lr=…), "
            f"because groups depend on which layer a parameter belongs to."
        )
    require_at_least("lr", lr, 0)
    require_at_least("ssm_lr", ssm_lr, 0)
    require_at_least("weight_decay", weight_decay, 0)
    step_size_lr = ssm_lr if step_size_lr is None else step_size_lr
    require_at_least("step_size_lr", step_size_lr, 0)
    layers = [module for module in model.modules() if isinstance(module, SSMLayer)]
    ssm = {
        id(parameter)
        for layer in layers
        for name, parameter in layer.ssm_parameters().items()
        if slow_output or name != "C"
    }
    step = {id(layer.log_step_size) for layer in layers}
    state_space: list[nn.Parameter] = []
    step_sizes: list[nn.Parameter] = []
    undecayed: list[nn.Parameter] = []
    decayed: list[nn.Parameter] = []
    for parameter in model.parameters():
        if not parameter.requires_grad:
            continue
        if id(parameter) in step and step_size_lr != ssm_lr:
            step_sizes.append(parameter)
        elif id(parameter) in ssm:
            state_space.append(parameter)
        elif parameter.ndim <= 1:
            # Biases and the scales of norms are the only vectors.
            undecayed.append(parameter)
        else:
            decayed.append(parameter)
    groups = [
        {"params": decayed, "lr": lr, "weight_decay": weight_decay},
        {"params": undecayed, "lr": lr, "weight_decay": 0.0},
        {"params": state_space, "lr": min(lr, ssm_lr), "weight_decay": 0.0},
        {"params": step_sizes, "lr": min(lr, step_size_lr), "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
