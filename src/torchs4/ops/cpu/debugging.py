"""Debug mode: `TORCHS4_DEBUG=1` in the environment when a process starts.

Compiled code then checks every index, those of vector instructions too, and begins with NaN in whatever
memory it works in. Tasks run one after the other, so that an error names its function and line. The code is
several times slower and is kept in a folder of its own, beside the usual one.
"""

from __future__ import annotations

import os
from typing import Any

from llvmlite import ir
from numba.core import cgutils

DEBUGGING = os.environ.get("TORCHS4_DEBUG", "") not in ("", "0")


def check_places(builder: Any, array: Any, first: Any, count: int) -> None:
    """In debug mode, let an instruction that reads or writes outside its array end in an IndexError."""
    if DEBUGGING:
        last = builder.add(first, ir.Constant(first.type, count - 1))
        for place in (first, last):
            cgutils.do_boundscheck(array._context, builder, place, array.nitems)
