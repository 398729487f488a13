"""Packages that only some formats need."""

from __future__ import annotations

import importlib
from typing import Any


def require_package(name: str, purpose: str) -> Any:
    """The package, or one sentence about how to get it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{purpose} needs the package {name.partition('.')[0]}, which is not installed: "
            f'pip install "torchs4[data]".'
        ) from error
