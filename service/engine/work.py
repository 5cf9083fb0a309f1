"""Submissions that belong together: an engine that took the first of them takes the rest, too.

A request of a client is often more than one submission: sentences are tried again, documents go part by part, and
some ways have two models. Whoever serves the client says what belongs together:

    with piece_of_work():
        ...  # submit, look at what came, submit again

Once a piece of work has begun it is no longer refused for want of room, nor because the engine is told to stop: nobody
gets half a translation, and what was computed is not thrown away. What is open when an engine is told to stop counts
as begun: a long text may still be taken apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from contextvars import ContextVar


class Work:
    """One piece of work.

    Attributes:
        is_open: Whether more may follow.
        has_begun: Whether an engine has taken some of it.
        must_be_whole: Whether all of a text must be known before some of it is submitted: somebody counts what it
            costs, and refuses what is too much.
    """

    def __init__(self) -> None:
        self.is_open = True
        self.has_begun = False
        self.must_be_whole = False
        self._on_end: list[Callable[[Work], None]] = []

    def when_ended(self, call: Callable[[Work], None]) -> None:
        """Has `call` called when nothing more will follow."""
        self._on_end.append(call)

    def end(self) -> None:
        """Nothing more follows."""
        self.is_open = False
        calls, self._on_end = self._on_end, []
        for call in calls:
            call(self)


current_work: ContextVar[Work | None] = ContextVar("current_work", default=None)
"""What a submission belongs to; None, or one that has ended, where it stands for itself. Tasks inherit it."""


_open_works: set[Work] = set()


@contextmanager
def piece_of_work() -> Iterator[None]:
    """All that is submitted within belongs together."""
    work = Work()
    token = current_work.set(work)
    _open_works.add(work)
    try:
        yield
    finally:
        current_work.reset(token)
        _open_works.discard(work)
        work.end()


def open_works() -> Set[Work]:
    """Every piece of work of this process that has not ended."""
    return frozenset(_open_works)
