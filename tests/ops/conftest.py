"""Operators are tested under every implementation."""

import pytest

from torchs4 import ops


@pytest.fixture(params=["cpu", "portable"])
def implementation(request):
    """The implementations that people run; modules of tests ask for it by name."""
    before = ops.get_implementation()
    ops.set_implementation(request.param)
    yield request.param
    ops.set_implementation(before)
