"""Memory: what glibc's allocator and Python's collector of cycles are told.

The allocator, so that the process holds little more memory than it uses.

Left alone it raises the size from which memory is given back at once when freed to 32 MB, learning from what was freed:
right for the same tensors step after step, wrong while a model is read, whose temporary numbers are as large as it
and stay behind as holes. So both is said, each at its time. Elsewhere than on glibc nothing happens.

The collector, so that it holds up nobody: while it looks at all objects, no thread runs. There are 200,000 of modules
and models, which never go, and as many again of a large text: a fifth of a second, a few times for each such text. So
those that are there at the start are looked at no more, and the others when nothing else is done.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from model.allocator import ARENA_MAX, LARGE_BYTES, MMAP_THRESHOLD, TRIM_THRESHOLD, give_back_memory, tell_allocator

_SMALL_BYTES = 256 * 1024
_MAX_ARENAS = 2  # Python's threads take turns; a heap for each of them is mostly holes

_THRESHOLDS = 700, 10, 1_000
"""Python's own, but for the last: after so many looks at the young and the middle ones, one at all."""
_QUIET_SECONDS = 15.0


def settle() -> None:
    """What is there now stays, and is looked at no more by the collector of cycles."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)


async def collect_when_quiet(is_quiet: Callable[[], bool]) -> None:
    """Frees cycles every now and then, when there is nothing else to do; never returns."""
    while True:
        await asyncio.sleep(_QUIET_SECONDS)
        if is_quiet():
            gc.collect()


@contextmanager
def reading_a_model() -> Iterator[None]:
    """While it lasts all that is large is given back when freed; at its end the holes that are left."""
    tell_allocator(ARENA_MAX, _MAX_ARENAS)
    tell_allocator(MMAP_THRESHOLD, _SMALL_BYTES)
    tell_allocator(TRIM_THRESHOLD, _SMALL_BYTES)
    try:
        yield
    finally:
        tell_allocator(MMAP_THRESHOLD, LARGE_BYTES)
        tell_allocator(TRIM_THRESHOLD, 2 * LARGE_BYTES)
        give_back_memory()
