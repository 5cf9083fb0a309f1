"""What is found out about a request while it is served, for its line in the log and for its metrics."""

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import dataclass

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")


@dataclass(slots=True)
class RequestFacts:
    """Filled in by whoever learns it; read once, when the answer has been sent. Nothing of a user's text.

    Attributes:
        request_id: As in `X-Request-ID`.
        trace_id: Of the caller's trace (W3C `traceparent`), if it sent one.
        model: Name of the model that was chosen.
        source_tokens: Source tokens that were given to the engine.
        target_tokens: Target tokens of the best hypotheses.
        reason: Why it was refused or failed: the last part of the problem's type.
        key: Id of the API key, never the key.
        is_given_up: Whether it is counted as one that nobody waited for; it may have had several things to do.
    """

    request_id: str
    trace_id: str | None = None
    model: str | None = None
    source_tokens: int = 0
    target_tokens: int = 0
    reason: str | None = None
    key: str | None = None
    is_given_up: bool = False


request_facts: ContextVar[RequestFacts | None] = ContextVar("request_facts", default=None)
"""Of the request that is being served. Tasks that it starts see the same object, so they can add to it."""


def note_reason(reason: str) -> None:
    """Notes why the request that is being served is refused."""
    facts = request_facts.get()
    if facts is not None:
        facts.reason = reason


def trace_id_of(traceparent: str) -> str | None:
    """The trace's id in a `traceparent` header (W3C Trace Context, section 3.2); None if there is no valid one."""
    match = _TRACEPARENT.fullmatch(traceparent)
    if match is None or traceparent.startswith("ff") or not match[1].strip("0"):
        return None
    return match[1]
