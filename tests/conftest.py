"""Every test runs with poisoned memory: what is read before it was written shows as NaN."""

from __future__ import annotations

import functools
import math

import pytest
import torch

# How PyTorch hands out memory without writing to it. Compiled code's own memory is poisoned in debug mode.
_SOURCES = [(torch, "empty"), (torch, "empty_like"), (torch.Tensor, "new_empty")]


def _poisoned(allocate):
    @functools.wraps(allocate)
    def allocate_nan(*arguments, **options):
        memory = allocate(*arguments, **options)
        # A compiler that traces this would keep it in its graph.
        if (memory.is_floating_point() or memory.is_complex()) and not torch.compiler.is_compiling():
            with torch.no_grad():
                memory.fill_(math.nan)
        return memory

    return allocate_nan


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch):
    for owner, name in _SOURCES:
        monkeypatch.setattr(owner, name, _poisoned(getattr(owner, name)))
