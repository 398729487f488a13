"""What a discrete DPLR system does to a block of samples."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchs4.ops.dtypes import kernel_dtype
from torchs4.ops.forms import ChunkOperators
from torchs4.ops.portable.discretization import PolarSystem
from torchs4.ops.portable.first_powers import count_of_first_powers, first_powers, rows_of
from torchs4.ops.portable.ladder import climb, plus_modes, repeat
from torchs4.ops.portable.polar import PolarModes
from torchs4.ops.portable.recomputing import recomputed

if TYPE_CHECKING:
    from jaxtyping import Float


def modal_chunk_operators(
    log_size: Float[Tensor, "H n"],
    turns: Float[Tensor, "H n"],
    turns_rest: Float[Tensor, "H n"],
    p: Float[Tensor, "R H n 2"],
    q: Float[Tensor, "R H n 2"],
    b: Float[Tensor, "H n 2"],
    C: Float[Tensor, "M H n 2"],
    block: int,
) -> ChunkOperators:
    """The operators of a discretization.PolarSystem, in the kernel's precision. Differentiable."""
    operators = recomputed(partial(_operators, block=block), log_size, turns, turns_rest, p, q, b, C)
    return ChunkOperators(*(operator.to(kernel_dtype(C)) for operator in operators))


def _operators(
    log_size: Tensor,
    turns: Tensor,
    turns_rest: Tensor,
    p: Tensor,
    q: Tensor,
    b: Tensor,
    C: Tensor,
    block: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    C, modes = C.to(b.dtype), PolarModes(log_size, turns, turns_rest)
    count = count_of_first_powers(2 * b.shape[1], len(p), block)
    first = first_powers(PolarSystem(*modes, p, q, b), count)
    # Blocks are seldom longer than that; then powers of matrices make up the rest.
    whole, rest = divmod(block, count)
    rungs = climb(modes, first.correction(count), count, whole.bit_length())
    reach = repeat(first.columns[:, :, None], [rung.mT for rung in rungs], block)[:, :, 0]
    sight = repeat(first.rows(C), rungs, block + 1)[:, 1:].permute(2, 0, 1, 3)
    response = (rows_of(C) @ reach.mT).transpose(0, 1)
    factors = [rung for bit, rung in enumerate(rungs) if whole >> bit & 1]
    if rest:
        factors.append(plus_modes(first.correction(rest), modes.change(rest)))
    change = factors[0]
    for factor in factors[1:]:
        # (1 + E)(1 + F) - 1 = E + F + E F
        change = torch.baddbmm(change + factor, change, factor)
    change = _interleaved(_interleaved(change).mT)
    return _interleaved(reach), _interleaved(sight), response, change


def _interleaved(x: Float[Tensor, "... N"]) -> Float[Tensor, "... N"]:
    """All real parts, then all imaginary ones, as each real part followed by its imaginary one."""
    return x.unflatten(-1, (2, -1)).mT.flatten(-2)
