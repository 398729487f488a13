"""Where a run trains: on the device that is there, or on the one that is asked for."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from accelerate import Accelerator

from torchs4.ops import mixing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torchs4.training.config import Precision

_PRECISIONS = {"float32": "no", "bfloat16": "bf16", "float16": "fp16"}
# What accelerate reads.
_DEVICE_VARIABLE = "ACCELERATE_TORCH_DEVICE"


def open_accelerator(precision: Precision, device: str | None = None) -> Accelerator:
    """What runs a training on this machine's accelerator, if it has one, or on the device of that name.

    device: "cpu", or as PyTorch names it: "cuda", "cuda:1", "mps", "xpu".
    """
    wanted = None if device is None else require_device(device)
    kind = wanted.type if wanted is not None else default_device().type
    if precision == "float16" and kind == "cpu":
        raise ValueError(
            "precision is 'float16', which a CPU has no fast way to compute with; choose 'bfloat16' or "
            "'float32', or train on an accelerator."
        )
    with _named(wanted):
        return Accelerator(mixed_precision=_PRECISIONS[precision], cpu=kind == "cpu")


def slowness(precision: Precision, device: torch.device) -> str | None:
    """What to tell somebody whose processor has no fast products in this precision."""
    if device.type != "cpu" or precision != "bfloat16" or mixing.bfloat16_is_fast():
        return None
    return (
        "This processor has no fast products in bfloat16, which this run asks for: it will take far longer "
        "than in single precision. --precision float32 trains the same model."
    )


def default_device() -> torch.device:
    """The accelerator of this machine, or the CPU."""
    if os.environ.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true", "yes"):
        return torch.device("cpu")
    found = torch.accelerator.current_accelerator(check_available=True)
    return torch.device("cpu") if found is None else found


def require_device(name: str) -> torch.device:
    """The device of that name, which has to be there."""
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(
            f"device is {name!r}, which PyTorch does not know: try cpu, cuda, mps or xpu, in small letters."
        ) from error
    here = available_devices()
    if device.type not in {other.type for other in here} or (device.index or 0) >= len(
        [other for other in here if other.type == device.type]
    ):
        raise ValueError(
            f"device is {name!r}, but this PyTorch ({torch.__version__}) sees only "
            f"{', '.join(map(str, here))}. `s4 doctor` shows what it finds; a GPU needs a PyTorch that was "
            f"built for it."
        )
    return device


def available_devices() -> list[torch.device]:
    """The CPU and every accelerator that PyTorch sees."""
    devices = [torch.device("cpu")]
    found = torch.accelerator.current_accelerator(check_available=True)
    if found is not None:
        devices += [torch.device(found.type, index) for index in range(torch.accelerator.device_count())]
    return devices


def device_random_state(device: torch.device) -> torch.Tensor | None:
    """Of the accelerator that draws a run's dropout; the CPU's is kept for itself."""
    if device.type == "cpu":
        return None
    module = torch.get_device_module(device)
    # Apple's is the only one of its kind in a machine.
    state: torch.Tensor = module.get_rng_state() if device.type == "mps" else module.get_rng_state(device)
    return state


def set_device_random_state(device: torch.device, state: torch.Tensor | None) -> None:
    """Continue the accelerator's sequence of random numbers; one of another kind begins its own."""
    if state is None or device.type == "cpu":
        return
    module = torch.get_device_module(device)
    if device.type == "mps":
        module.set_rng_state(state)
    else:
        module.set_rng_state(state, device)


@contextmanager
def _named(device: torch.device | None) -> Iterator[None]:
    """The device's name where accelerate looks for it."""
    if device is None or device.type == "cpu":
        yield
        return
    before = os.environ.get(_DEVICE_VARIABLE)
    os.environ[_DEVICE_VARIABLE] = str(device)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_DEVICE_VARIABLE]
        else:
            os.environ[_DEVICE_VARIABLE] = before
