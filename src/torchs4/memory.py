"""How the process treats memory that tensors have given back."""

from __future__ import annotations

import ctypes

# Parameters of mallopt, as in malloc.h.
_TRIM_THRESHOLD, _MMAP_MAX = -1, -4


def keep_memory() -> bool:
    """Have this process keep freed memory for later tensors; whether its allocator can do so.

    By default the GNU C library gives tensors of 32 MB and more back to the system as soon as they are
    freed. Each training step then gets the same memory anew, page by page, which can take half of its time
    at long lengths. It is a choice for the whole process, which from then on holds the most that it ever
    needed; so it is the program's to make, not this library's. `s4 train` makes it.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):
        # Another C library, or none that can be asked.
        return False
    # No tensor gets a piece of memory of its own, and the end of the heap is never given back.
    return bool(mallopt(_MMAP_MAX, 0)) and bool(mallopt(_TRIM_THRESHOLD, -1))
