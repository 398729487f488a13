"""Memory that compiled functions work in."""

from __future__ import annotations

import numpy as np

from torchs4.ops.cpu.compiling import compiled
from torchs4.ops.cpu.debugging import DEBUGGING


@compiled()
def empty(shape, kind):
    """Numbers of that kind that are still to be written; in debug mode NaN, so that reading them shows."""
    memory = np.empty(shape, kind)
    if DEBUGGING:
        memory.fill(np.nan)
    return memory
