"""What every level checks about the tensors it is given, so that mistakes are named where they happen."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jaxtyping import Bool, Int


def require_sequence(x: Tensor, features: int) -> None:
    """A sequence must be (batch, length, features), real, with at least one position."""
    require_tensor("x", x)
    if x.ndim != 3 or x.shape[2] != features:
        hint = ""
        if x.ndim == 3 and x.shape[1] == features:
            hint = " It looks transposed: torchs4 is batch first, features last; try x.transpose(1, 2)."
        elif x.ndim == 2:
            hint = " Add the missing axis: x.unsqueeze(0) for one sequence, x.unsqueeze(-1) for one feature."
        raise ValueError(f"x has shape {tuple(x.shape)}; expected (batch, length, {features}).{hint}")
    _require_real("x", x)
    require_positions(x)


def require_tensor(name: str, x: object) -> None:
    """Arrays of other libraries must be converted first."""
    if not isinstance(x, Tensor):
        raise ValueError(f"{name} is a {type(x).__name__}; expected a tensor. Try torch.as_tensor({name}).")


def require_positions(x: Tensor) -> None:
    """Neither the batch nor the length axis may be empty."""
    if x.shape[0] == 0:
        raise ValueError(f"x has shape {tuple(x.shape)}: its batch size is 0; it must be at least 1.")
    if x.shape[1] == 0:
        raise ValueError(
            f"x has shape {tuple(x.shape)}: its length is 0. Pass at least one position; skip empty chunks."
        )


def require_vector(x: Tensor, features: int) -> None:
    """One step's input must be (batch, features), real."""
    require_tensor("x_t", x)
    if x.ndim != 2 or x.shape[1] != features:
        hint = " Use prefill for a chunk of several positions." if x.ndim == 3 else ""
        raise ValueError(f"x_t has shape {tuple(x.shape)}; expected (batch, {features}).{hint}")
    _require_real("x_t", x)


def require_dtype(x: Tensor, weight: Tensor) -> None:
    """What meets a model's weights first must have their dtype, unless autocast converts it."""
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise ValueError(
            f"x has dtype {x.dtype}, the model's weights have {weight.dtype}. "
            f"Try x.to({weight.dtype}), or model.to({x.dtype})."
        )


def require_state(state: Tensor, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """A recurrent state must be a tensor that belongs to this layer and this batch."""
    if not isinstance(state, Tensor) or state.shape != shape:
        received = tuple(state.shape) if isinstance(state, Tensor) else type(state).__name__
        raise ValueError(
            f"state is {received}; expected a tensor of shape {shape}. "
            f"Start with initial_state(batch_size={shape[0]}) and pass on what step or prefill returned."
        )
    if state.dtype != dtype:
        raise ValueError(
            f"state has dtype {state.dtype}; this layer keeps its state in {dtype}. Try state.to({dtype})."
        )


def require_causal(causal: bool) -> None:
    """Only a layer that does not look into the future has a state."""
    if not causal:
        raise ValueError(
            "A bidirectional layer needs the whole sequence: it has no state, no prefill and no step. "
            "Call the layer itself, or build it with bidirectional=False to stream."
        )


def require_rate(rate: float) -> None:
    """A sampling-rate change must be a positive number."""
    # In this form a compiler can follow it.
    if not 0 < rate < math.inf:
        raise ValueError(
            f"rate is {rate}; it must be positive and finite. 2.0 means that the input has half the samples "
            f"per second that the model was trained on, 0.5 twice as many."
        )


def position_mask(
    x: Tensor,
    lengths: Int[Tensor, " B"] | Sequence[int] | None,
    mask: Bool[Tensor, "B L"] | None,
) -> Bool[Tensor, "B L"] | None:
    """Which positions are real, from either of the two ways to say it; None when all of them are."""
    batch, length = x.shape[:2]
    if mask is not None:
        if lengths is not None:
            raise ValueError("Both lengths and mask were given; pass one of them.")
        if mask.shape != (batch, length) or mask.dtype != torch.bool:
            raise ValueError(
                f"mask has shape {tuple(mask.shape)} and dtype {mask.dtype}; expected a boolean tensor of "
                f"shape {(batch, length)}, True where a position is real."
            )
        return mask.to(x.device)
    if lengths is None:
        return None
    lengths = torch.as_tensor(lengths)
    if lengths.shape != (batch,) or lengths.is_floating_point() or lengths.is_complex():
        raise ValueError(
            f"lengths has shape {tuple(lengths.shape)} and dtype {lengths.dtype}; expected one integer "
            f"for each of the {batch} sequences."
        )
    # Reading values would split a compiled graph or wait for a GPU.
    if lengths.device.type == "cpu" and not torch.compiler.is_compiling():
        low, high = int(lengths.min()), int(lengths.max())
        if low < 1 or high > length:
            raise ValueError(
                f"lengths are between {low} and {high}, but x has {length} positions; each length must be "
                f"between 1 and {length}."
            )
    return torch.arange(length, device=x.device) < lengths.to(x.device)[:, None]


def require_padding_at_end(mask: Bool[Tensor, "B L"]) -> None:
    """Frames of a signal begin where the signal begins: nothing may come before it, and no hole be in it."""
    # Reading values would split a compiled graph or wait for a GPU.
    if mask.device.type != "cpu" or torch.compiler.is_compiling():
        return
    if bool((mask[:, 1:] & ~mask[:, :-1]).any()) or not bool(mask[:, 0].all()):
        raise ValueError(
            "mask has padding before or between real positions; a model with a stem takes padding at the end "
            "only. Move each sequence to the front, or pass lengths."
        )


def _require_real(name: str, x: Tensor) -> None:
    if not x.is_floating_point():
        raise ValueError(f"{name} has dtype {x.dtype}; expected real numbers. Try {name}.float().")
