"""Names for stretches of a request's time, for whoever follows it; costs next to nothing where nobody does.

with span("detokenize"):
    ...
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

span_opener: ContextVar[Callable[[str], AbstractContextManager[object]] | None] = ContextVar(
    "span_opener", default=None
)
"""Opens the spans of the request that is being served; None if it is not traced. Tasks that it starts inherit it."""

_NOTHING = nullcontext()


def span(name: str) -> AbstractContextManager[object]:
    """A stretch of the present request's time. Not to be held open over a `yield`."""
    opener = span_opener.get()
    return _NOTHING if opener is None else opener(name)
