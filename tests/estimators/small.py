"""Small data with a clear answer, and estimators that learn it in a second."""

from __future__ import annotations

from typing import Any

import numpy as np

# A network and a training that a test can afford.
TINY: dict[str, Any] = {"features": 8, "num_layers": 1, "state_size": 4, "dropout": 0.0, "verbose": 0}
QUICK: dict[str, Any] = {**TINY, "epochs": 5, "batch_size": 16, "learning_rate": 0.02, "random_state": 0}


def waves(n: int = 48, length: int = 40, seed: int = 0) -> tuple[Any, Any]:
    """Slow and fast waves with noise, (n, length), and which is which."""
    generator = np.random.default_rng(seed)
    fast = generator.permutation(np.arange(n) % 2)
    phase = generator.uniform(0, 2 * np.pi, (n, 1))
    angle = 2 * np.pi * np.where(fast, 8, 2)[:, None] * np.linspace(0, 1, length)
    x = np.sin(angle + phase) + 0.2 * generator.normal(size=(n, length))
    return x, np.array(["slow", "fast"])[fast]
