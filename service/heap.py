"""What glibc's allocator is told, so that the process holds little more memory than it uses.

Left alone it raises the size from which memory is given back at once when freed to 32 MB, learning from what was freed:
right for the same tensors step after step, wrong while a model is read, whose temporary numbers are as large as it
and stay behind as holes. So both is said, each at its time. Elsewhere than on glibc nothing happens.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

# <malloc.h>
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8

_SMALL_BYTES = 256 * 1024
_LARGE_BYTES = 32 * 1024**2  # the most that glibc allows, and what it would learn
_MAX_ARENAS = 2  # Python's threads take turns; a heap for each of them is mostly holes


@contextmanager
def reading_a_model() -> Iterator[None]:
    """While it lasts all that is large is given back when freed; at its end the holes that are left."""
    _tell(_ARENA_MAX, _MAX_ARENAS)
    _tell(_MMAP_THRESHOLD, _SMALL_BYTES)
    _tell(_TRIM_THRESHOLD, _SMALL_BYTES)
    try:
        yield
    finally:
        _tell(_MMAP_THRESHOLD, _LARGE_BYTES)
        _tell(_TRIM_THRESHOLD, 2 * _LARGE_BYTES)
        if (library := _glibc()) is not None:
            library.malloc_trim(0)


def _tell(parameter: int, value: int) -> None:
    if (library := _glibc()) is not None:
        library.mallopt(parameter, value)


@cache
def _glibc() -> Any:
    """The C library of this process if it is glibc."""
    try:
        library = ctypes.CDLL(None)
        return library if hasattr(library, "gnu_get_libc_version") and hasattr(library, "mallopt") else None
    except OSError:
        return None
