"""Long work in Python, beside the event loop and not in its way.

    found = await aside(segment_all, texts, size=sum(map(len, texts)) / 2_000)

    def segment_all(texts):                     # runs in a thread, if it is long
        for text in texts:
            breathe()                           # lets others have Python's lock, if it has been held for long
            ...

A thread that computes in Python takes turns with all others that want Python's lock: the event loop, and the thread of
the engine, which asks for it hundreds of times in a step. So whoever computes for long rests, again and again, between
two pieces of its work; but not where nobody has taken any time from it, for then nobody waits either.
"""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_T = TypeVar("_T")
_P = ParamSpec("_P")

PIECE_SECONDS = 0.004
"""So long a thread works before it rests."""

REST_SECONDS = 0.001
"""So long it rests: a request that waited for Python's lock gets some steps further."""

_OWN_SHARE = 0.95
"""So much of a piece is its own processor's time where nobody else wants the lock, or the processor."""

_local = threading.local()


async def aside(call: Callable[_P, _T], size: float, *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """What `call` returns: at once if it is little work, in a thread if it is more.

    Args:
        call: May call `breathe` between two pieces of its work.
        size: How much it is; above 1 it is long, a millisecond or more.
        *args: Passed on.
        **kwargs: Likewise.
    """
    if size <= 1:
        return call(*args, **kwargs)
    return await asyncio.to_thread(_pacing, functools.partial(call, *args, **kwargs))


def breathe() -> None:
    """Between two pieces of work: lets others have their turn, as this thread does that; elsewhere it does nothing."""
    rest: Callable[[], None] | None = getattr(_local, "rest", None)
    if rest is not None:
        rest()


def rest_by(rest: Callable[[], None] | None) -> None:
    """Says what `breathe` does in this thread; None for nothing."""
    _local.rest = rest


def _pacing(call: Callable[[], _T]) -> _T:
    rested_at, worked = time.perf_counter(), time.thread_time()

    def rest() -> None:
        nonlocal rested_at, worked
        passed = time.perf_counter() - rested_at
        if passed > PIECE_SECONDS:
            if time.thread_time() - worked < _OWN_SHARE * passed:
                time.sleep(REST_SECONDS)
            rested_at, worked = time.perf_counter(), time.thread_time()

    rest_by(rest)
    try:
        return call()
    finally:
        rest_by(None)
