"""Plain ASGI middleware: request ids, the last net for errors, limits on bodies, security headers."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Sequence

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.errors import BodyTooLarge, problem_response
from service.observability.logging import describe_exception, request_id
from service.observability.metrics import Metrics, Outcome

logger = logging.getLogger(__name__)

REQUEST_ID_HEADER = "X-Request-ID"
CLIENT_CLOSED_REQUEST = 499
"""The status of an answer that nobody waits for any more; the client never sees it."""

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

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        given = Headers(scope=scope).get(REQUEST_ID_HEADER, "")
        own_id = given if _CLIENT_REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        token = request_id.set(own_id)
        status: int | None = None

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = own_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        except Exception as error:
            outcome: Outcome = "error"
            logger.error("unexpected error: %s", describe_exception(error))
            scope.setdefault("state", {})["outcome"] = outcome
            # Once an answer has begun it cannot be changed: the connection is closed in the midst of it.
            if status is None:
                await problem_response(error)(scope, receive, send_with_id)
        finally:
            self._finish(scope, status, time.monotonic() - started)
            request_id.reset(token)

    def _finish(self, scope: Scope, status: int | None, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", "unmatched")
        outcome = scope.get("state", {}).get("outcome") or outcome_of(status)
        self._metrics.count_request(route, outcome, seconds)
        # Probes and scrapes come every few seconds, also while the server is not ready.
        level = logging.INFO if route.startswith("/v1/") else logging.DEBUG
        logger.log(level, "%s %s %s %s %.4f s", scope["method"], route, status, outcome, seconds)


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


class BodyLimit:
    """Refuses bodies that are too long, by what the client announces and by what really comes."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        announced = _content_length(scope["headers"])
        if announced is not None and announced > self._max_bytes:
            await problem_response(BodyTooLarge(announced, self._max_bytes))(scope, receive, send)
            return
        num_bytes = 0

        async def receive_within_limit() -> Message:
            nonlocal num_bytes
            message = await receive()
            if message["type"] == "http.request":
                num_bytes += len(message.get("body", b""))
                if num_bytes > self._max_bytes:
                    raise BodyTooLarge(None, self._max_bytes)
            return message

        await self._app(scope, receive_within_limit, send)


def outcome_of(status: int | None) -> Outcome:
    """How a request ended, from the status of its answer; None if none was begun."""
    if status == CLIENT_CLOSED_REQUEST:
        return "cancelled"
    if status == 503:
        return "rejected"
    if status == 504:
        return "deadline"
    if status is None or status >= 500:
        return "error"
    return "client_error" if status >= 400 else "ok"


def _content_length(headers: Sequence[tuple[bytes, bytes]]) -> int | None:
    # The server has checked the syntax; what is no number is counted as it comes.
    value = next((value for name, value in headers if name == b"content-length"), b"")
    return int(value) if value.isdigit() else None
