"""Plain ASGI middleware: request ids, the last net for errors, limits on bodies, security headers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.errors import BodyTooLarge, BodyTooSlow, problem_response
from service.engine.work import piece_of_work
from service.observability.facts import RequestFacts, request_facts, trace_id_of
from service.observability.logging import describe_exception, request_id
from service.observability.metrics import Metrics, Outcome

if TYPE_CHECKING:  # needs an extra
    from service.observability.tracing import TracedRequest, Tracing

logger = logging.getLogger(__name__)

REQUEST_ID_HEADER = "X-Request-ID"
CLIENT_CLOSED_REQUEST = 499
"""The status of an answer that nobody waits for any more; the client never sees it."""

_LINGER_SECONDS = 10.0
_LINGER_BYTES = 64 * 1024**2
"""How long, and how much, a client may go on sending a body that was refused, so that it reads why."""

_CLIENT_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")

SECURITY_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
}
"""What every answer carries, unless the route set the header itself."""


class RequestContext:
    """Gives each request its id, counts it, logs one line about it, and answers what nobody else caught."""

    def __init__(
        self,
        app: ASGIApp,
        metrics: Metrics,
        paths: Callable[[], Collection[str]] = frozenset,
        tracing: Tracing | None = None,
    ) -> None:
        """Wraps an app.

        Args:
            app: The rest.
            metrics: Where to count.
            paths: Gives the paths of routes, which name the route of what was refused before one was looked for.
            tracing: Makes spans of requests; None for none.
        """
        self._app = app
        self._metrics = metrics
        self._paths = paths
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        headers = Headers(scope=scope)
        given = headers.get(REQUEST_ID_HEADER, "")
        own_id = given if _CLIENT_REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        facts = RequestFacts(own_id, trace_id_of(headers.get("traceparent", "")))
        tokens = request_id.set(own_id), request_facts.set(facts)
        traced: TracedRequest | None = None
        spans = contextlib.ExitStack()
        if self._tracing is not None:
            traced = spans.enter_context(self._tracing.request(scope["method"], scope["path"], headers, facts))
        status: int | None = None

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = own_id
            await send(message)

        try:
            with piece_of_work():
                await self._app(scope, receive, send_with_id)
        except Exception as error:
            outcome: Outcome = "error"
            logger.error("unexpected error: %s", describe_exception(error))
            scope.setdefault("state", {})["outcome"] = outcome
            # Once an answer has begun it cannot be changed: the connection is closed in the midst of it.
            if status is None:
                await problem_response(error)(scope, receive, send_with_id)
        finally:
            route = self._finish(scope, status, time.monotonic() - started, facts)
            if traced is not None:
                traced.tell(route, status, facts)
            spans.close()
            request_id.reset(tokens[0])
            request_facts.reset(tokens[1])

    def _finish(self, scope: Scope, status: int | None, seconds: float, facts: RequestFacts) -> str:
        """Counts and logs a request; returns its route."""
        route = getattr(scope.get("route"), "path", None)
        if route is None:
            route = scope["path"] if scope["path"] in self._paths() else "unmatched"
        outcome = scope.get("state", {}).get("outcome") or outcome_of(status)
        if outcome == "cancelled":
            facts.reason = None  # Whatever came of it, nobody was refused.
        elif outcome != "ok" and facts.reason is None:
            facts.reason = "other"
        self._metrics.count_request(route, outcome, seconds, facts)
        # Probes, scrapes and parts of pages come every few seconds, also while the server is not ready.
        level = logging.DEBUG if scope["method"] in ("GET", "HEAD") else logging.INFO
        line = {"method": scope["method"], "route": route, "status": status, "outcome": outcome}
        more = {
            "seconds": round(seconds, 4),
            "reason": facts.reason,
            "model": facts.model,
            "source_tokens": facts.source_tokens or None,
            "target_tokens": facts.target_tokens or None,
            "key": facts.key,
            "trace_id": facts.trace_id,
        }
        extra = {name: value for name, value in more.items() if value is not None}
        logger.log(level, "%(method)s %(route)s %(status)s %(outcome)s", line, extra=extra)
        return str(route)


IS_HEAD = "gossamer.is_head"
"""In the scope of a HEAD that is served as a GET."""


class SecurityHeaders:
    """Adds the headers of `SECURITY_HEADERS` to answers that have none of their own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers if scope["type"] == "http" else send)


class BodyLimits:
    """Refuses bodies that are too long, by what the client announces and by what really comes, and too slow ones."""

    def __init__(
        self, app: ASGIApp, max_bytes: int, max_seconds: float, longer: Mapping[str, int] | None = None
    ) -> None:
        """Wraps an app.

        Args:
            app: Gets every request whose body is not announced as too long.
            max_bytes: Longest body.
            max_seconds: From the end of the headers to the end of the body.
            longer: Paths that take longer bodies, with their own limits: those for files.
        """
        self._app = app
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._longer = dict(longer or {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        max_bytes = self._longer.get(scope["path"], self._max_bytes)
        headers = Headers(scope=scope)
        announced = content_length(headers)
        if announced is not None and announced > max_bytes:
            refusal = problem_response(BodyTooLarge(announced, max_bytes))
            # Who waits for a 100 before sending sends nothing after a 413.
            is_sending = headers.get("expect", "").lower() != "100-continue"
            await refusal(scope, receive, _lingering(receive, send) if is_sending else send)
            return
        deadline = time.monotonic() + self._max_seconds
        num_bytes = 0
        is_complete = False
        send_answer = send

        async def receive_within_limits() -> Message:
            nonlocal num_bytes, is_complete, send_answer
            if is_complete:  # What is waited for now is that the client goes away.
                return await receive()
            try:
                async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
                    message = await receive()
            except TimeoutError as error:
                raise BodyTooSlow(num_bytes, self._max_seconds) from error
            if message["type"] == "http.request":
                num_bytes += len(message.get("body", b""))
                is_complete = not message.get("more_body", False)
                if num_bytes > max_bytes:
                    send_answer = send if is_complete else _lingering(receive, send)
                    raise BodyTooLarge(None, max_bytes)
            return message

        async def send_to_end(message: Message) -> None:
            await send_answer(message)

        await self._app(scope, receive_within_limits, send_to_end)


class HeadAsGet:
    """Answers HEAD as GET without the body; for a GET that changes something, the scope has `IS_HEAD`."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return

        async def send_without_body(message: Message) -> None:
            await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

        # A copy: the server keeps the request's own method, by which it knows that no body follows the headers.
        await self._app({**scope, "method": "GET", IS_HEAD: True}, receive, send_without_body)


def _lingering(receive: Receive, send: Send) -> Send:
    """A `send` that reads on after the answer, for a while, before it ends the connection.

    A client that is still sending reads the answer when it has finished. If the connection were closed under it, its
    system would report a reset, and throw the answer away unread.
    """

    async def send_and_linger(message: Message) -> None:
        if message["type"] != "http.response.body" or message.get("more_body", False):
            await send(message)
            return
        await send({**message, "more_body": True})
        num_bytes = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LINGER_SECONDS):
                while num_bytes < _LINGER_BYTES:
                    part = await receive()
                    num_bytes += len(part.get("body", b""))
                    if not part.get("more_body", False):
                        break
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return send_and_linger


def outcome_of(status: int | None) -> Outcome:
    """How a request ended, from the status of its answer; None if none was begun."""
    if status == CLIENT_CLOSED_REQUEST:
        return "cancelled"
    if status in (429, 503):
        return "rejected"
    if status == 504:
        return "deadline"
    if status is None or status >= 500:
        return "error"
    return "client_error" if status >= 400 else "ok"


def content_length(headers: Headers) -> int | None:
    """What a request says of its body's length, if it does."""
    # The server has checked the syntax, at most 20 digits among it; what is no number is counted as it comes.
    value = headers.get("content-length", "")
    return int(value) if value.isdecimal() and len(value) <= 20 else None
