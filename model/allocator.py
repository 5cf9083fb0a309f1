"""What glibc's allocator is told of how memory comes and goes; elsewhere than on glibc nothing happens."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

# <malloc.h>
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8

LARGE_BYTES = 32 * 1024**2
"""The most that glibc allows for `MMAP_THRESHOLD`, and what it would learn from what is freed."""


def tell_allocator(parameter: int, value: int) -> None:
    """Set one of the parameters above, for the whole process."""
    if (library := _glibc()) is not None:
        library.mallopt(parameter, value)


def give_back_memory() -> None:
    """Give what is free at the ends of the heaps, and whole pages inside, back to the system."""
    if (library := _glibc()) is not None:
        library.malloc_trim(0)


def keep_freed_memory() -> None:
    """Give nothing back, for work that needs the same tensors step after step.

    Left alone, glibc gives the end of the heap back whenever more than 64 MB are free there: a training step begins
    with thousands of page faults then.
    """
    tell_allocator(MMAP_THRESHOLD, LARGE_BYTES)
    tell_allocator(TRIM_THRESHOLD, (1 << 31) - 1)


@cache
def _glibc() -> Any:
    """The C library of this process if it is glibc."""
    try:
        library = ctypes.CDLL(None)
        return library if hasattr(library, "gnu_get_libc_version") and hasattr(library, "mallopt") else None
    except OSError:
        return None
