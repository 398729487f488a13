"""Somebody's examples as they came, and what to call each of them when something is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _example(row: int) -> str:
    return f"example {row}"


@dataclass(frozen=True)
class Examples:
    """Inputs, what is asked about them, and what a file tells beside.

    x: an array (n, L) or (n, L, d), a list of sequences, a list of texts, or sequences stored already.
    y: one label, value or row of values for each example, or values for each position.
    lengths: how much of each row of an array is real.
    channels: names of the d columns of x, where they have some.
    columns: names of the values of y.
    sample_rate: positions per second.
    name_of: what to call an example, such as "line 7 of readings.csv".
    read: names of a table's columns that x was read from, in order.
    notes: what was understood without having been said, in sentences.
    keys: what tells examples apart in their file, where it says so: ids, or names of recordings.
    validation, test: further examples that were set aside for that.
    """

    x: Any
    y: Any
    lengths: Any = None
    channels: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    sample_rate: float | None = None
    name_of: Callable[[int], str] = _example
    read: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    keys: Sequence[Any] | None = None
    validation: Examples | None = None
    test: Examples | None = None

    def named(self, row: int) -> str:
        """What to call an example at the beginning of a sentence."""
        name = self.name_of(row)
        return f"{name[0].upper()}{name[1:]}"


def as_plain(values: Any) -> Any:
    """Numbers as an array, everything else as Python has it. Arrays on disk stay there."""
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
        # NumPy knows no bfloat16.
        values = (values.float() if values.dtype == torch.bfloat16 else values).numpy()
    elif np.ma.is_masked(values):
        raise ValueError(
            "Some values are masked. Leave their examples out, or fill them, values.filled(…), with a number "
            "that means what the gap means."
        )
    elif hasattr(values, "__array__"):
        # asarray would lose that a map is one, and asanyarray keeps matrices as they are.
        values = values if isinstance(values, np.memmap) else np.asarray(values)
    if not isinstance(values, np.ndarray):
        return values
    if values.dtype.kind == "S":
        values = np.char.decode(values, "utf-8")
    return values.tolist() if values.dtype.kind in "OUT" or not values.ndim else values
