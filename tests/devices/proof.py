"""Runs models on devices that are not there: every shape, dtype and device is tracked, nothing is computed.

A tensor without contents cannot be read: whatever would wait for a device or look at its numbers raises.
Prints a line for each thing that went through. In a process of its own, because a device that is only a name
stays registered.
"""

from __future__ import annotations

from importlib import import_module
from itertools import cycle
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from torchs4 import S4BlockConfig, S4Config, S4DConfig, SequenceModel
from torchs4.description import Batch
from torchs4.layers.precision import WITHOUT_DOUBLE_PRECISION
from torchs4.ops import portable
from torchs4.tasks import Classification, NextToken
from torchs4.training.averaging import WeightAverage
from torchs4.training.parameter_groups import parameter_groups

modal_kernel = import_module("torchs4.ops.portable.modal_kernel")
power_kernel = import_module("torchs4.ops.portable.power_kernel")

# PyTorch's autograd wants to know a device; this build knows no other than the CPU, so one is named.
DEVICE = "gadget"
WIDE = (torch.float64, torch.complex128)
BATCH, LENGTH = 4, 100
LAYERS = {
    "s4": S4Config(state_size=8),
    "s4 legt": S4Config(state_size=8, start="legt", channels=2),
    "s4 both ways": S4Config(state_size=8, bidirectional=True),
    "s4d": S4DConfig(state_size=8),
    "s4d bilinear": S4DConfig(state_size=8, discretization="bilinear"),
}


class Watch(TorchDispatchMode):
    """Refuses double precision on the device, and results on the host of what the device holds."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        outputs = [x for x in tree_leaves(result) if isinstance(x, torch.Tensor)]
        inputs = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        for x in outputs:
            if x.device.type == DEVICE and x.dtype in WIDE:
                raise TypeError(f"{function} gives {x.dtype} on {x.device}")
            if x.device.type == "cpu" and any(y.device.type != "cpu" for y in inputs):
                raise TypeError(f"{function} moves data to the host")
        return result


def moved(model: nn.Module) -> Any:
    """The model with weights that are elsewhere and hold nothing."""
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                there = torch.empty(weight.shape, dtype=weight.dtype, device=DEVICE)
                module._parameters[name] = nn.Parameter(there, requires_grad=weight.requires_grad)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = torch.empty(buffer.shape, dtype=buffer.dtype, device=DEVICE)
    return model


def build(kind: str, norm: str, **options: Any) -> SequenceModel:
    block = S4BlockConfig(layer=LAYERS[kind], norm=norm, dropout=0.1, tied_dropout=norm == "batch")
    options = {"input_features": 3, **options}
    return SequenceModel(output_size=5, features=8, num_layers=2, block=block, **options)


def train_step(average: WeightAverage[Any], model: Any, batch: Batch, task: Any) -> None:
    optimizer = torch.optim.AdamW(parameter_groups(model, lr=0.01, weight_decay=0.05))
    for _ in range(2):
        optimizer.zero_grad()
        sums = task.sums(model(batch.x, lengths=batch.lengths), batch)
        sums[0].backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update(model, 0)
    assert all(p.grad.device.type == DEVICE for p in model.parameters())
    # As a checkpoint brings them back: from the host to the weights' place.
    state = tree_map(
        lambda x: torch.empty(x.shape, dtype=x.dtype) if isinstance(x, torch.Tensor) else x,
        optimizer.state_dict(),
    )
    optimizer.load_state_dict(state)
    assert all(s["exp_avg"].device.type == DEVICE for s in optimizer.state.values())


def prove_training() -> None:
    for kind, norm in zip(LAYERS, cycle(("batch", "layer")), strict=False):
        model = build(kind, norm)
        average = WeightAverage(model, 0.9)
        with FakeTensorMode(), Watch():
            moved(model)
            moved(average.model)
            lengths = torch.ones(BATCH, dtype=torch.long, device=DEVICE)
            x = torch.empty(BATCH, LENGTH, 3, device=DEVICE)
            y = torch.zeros(BATCH, dtype=torch.long, device=DEVICE)
            task = Classification(tuple("abcde"))
            train_step(average, model, Batch(x, y, None), task)
            train_step(average, model, Batch(x, y, lengths), task)
        print(f"train step: {kind}, {norm} norm")
    model = build("s4", "layer", vocabulary_size=5, pooling="none")
    average = WeightAverage(model, 0.9)
    with FakeTensorMode(), Watch():
        moved(average.model)
        tokens = torch.zeros(BATCH, LENGTH, dtype=torch.long, device=DEVICE)
        lengths = torch.ones(BATCH, dtype=torch.long, device=DEVICE)
        train_step(average, moved(model), Batch(tokens, tokens, lengths), NextToken(5))
    print("train step: tokens")


@torch.no_grad()
def prove_prediction() -> None:
    for kind, norm in zip(LAYERS, cycle(("batch", "layer")), strict=False):
        model = build(kind, norm).eval()
        with FakeTensorMode(), Watch():
            model = moved(model)
            x = torch.empty(BATCH, LENGTH, 3, device=DEVICE)
            assert model(x).device.type == DEVICE
            model(x, lengths=torch.ones(BATCH, dtype=torch.long, device=DEVICE))
            if model.causal:
                _, state = model.prefill(x)
                for _ in range(3):
                    y, state = model.step(x[:, 0], state)
                assert y.device.type == DEVICE
        print(f"prediction: {kind}, {norm} norm")


def prove_operators() -> None:
    """What is one node for others, from the inside."""
    with FakeTensorMode(), Watch():
        A, B = (torch.empty(6, 4, 2, device=DEVICE) for _ in range(2))
        P, C = torch.empty(2, 6, 4, 2, device=DEVICE), torch.empty(2, 6, 4, 2, device=DEVICE)
        system = portable.bilinear(A, P, P, B, torch.empty(6, device=DEVICE))
        kernel = modal_kernel.plain_kernel(*system, C, LENGTH)
        modal_kernel._kernel_backward._init_fn(kernel, *system, C)
        modes = portable.power_system(A, B, C, torch.empty(6, device=DEVICE), "zoh")
        kernel = power_kernel.plain_kernel(*modes, LENGTH)
        power_kernel._kernel_backward._init_fn(kernel, *modes)
        u, skip = torch.empty(BATCH, LENGTH, 6, device=DEVICE), torch.empty(2, 6, device=DEVICE)
        y = portable.long_convolution(u, kernel, kernel, skip)
        portable.long_convolution_backward(y, u, kernel, kernel, skip)
        chunk = (
            *portable.modal_chunk_operators(*system, C, 16),
            skip,
            u,
            torch.empty(BATCH, 6, 8, device=DEVICE),
        )
        y, final = portable.chunk_pass(*chunk)
        portable.chunk_pass_backward(y, final, *chunk)
    print("operators from the inside")


if __name__ == "__main__":
    _setup_privateuseone_for_python_backend(DEVICE)
    # Like Apple's: what holds there holds on devices that can do more.
    WITHOUT_DOUBLE_PRECISION.add(DEVICE)
    prove_operators()
    prove_training()
    prove_prediction()
