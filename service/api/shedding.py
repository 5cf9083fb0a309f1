"""Load shedding: what will be refused because too much waits, is refused before anything is done for it."""

from __future__ import annotations

from collections.abc import Callable, Collection

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.errors import ApiError, problem_response
from service.api.middleware import content_length
from service.engine.errors import WaitTooLong

_SURELY_LARGE_BYTES = 8 * 1024
"""A body of so many bytes has more text than the length of a wait depends on, however it is escaped."""

_ENVELOPE_BYTES = 64
"""About, of a body: what is not text."""


class Shedding:
    """Plain ASGI middleware: refuses requests for translations by the sizes of their bodies.

    Twice and five times of what a server can do come when it has the least time for them, and most must be told to come
    again later. What a route does before it asks for itself (JSON, validation, checks of fields) costs ten times what
    the refusal costs. It is only asked here where somebody may be refused; the routes ask again, with what they know.

    Args:
        app: Serves what is not refused.
        check_wait: `Translator.check_wait`.
        paths: Of the routes that translate what a body holds.
    """

    def __init__(self, app: ASGIApp, check_wait: Callable[[int], None], paths: Collection[str]) -> None:
        self._app = app
        self._check_wait = check_wait
        self._paths = frozenset(paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] not in self._paths:
            await self._app(scope, receive, send)
            return
        messages: list[Message] = []
        try:
            if not self._takes(_SURELY_LARGE_BYTES):
                announced = content_length(Headers(scope=scope))
                if announced is not None and announced >= _SURELY_LARGE_BYTES:
                    self._check_wait(announced)
                num_bytes = await _read(receive, messages)
                self._check_wait(max(1, num_bytes - _ENVELOPE_BYTES))
        except (WaitTooLong, ApiError) as error:  # of reading: the body is too long, or too slow
            await problem_response(error)(scope, receive, send)
            return
        read = iter(messages)

        async def receive_again() -> Message:
            return next(read, None) or await receive()

        await self._app(scope, receive_again if messages else receive, send)

    def _takes(self, num_bytes: int) -> bool:
        try:
            self._check_wait(num_bytes)
        except WaitTooLong:
            return False
        return True


async def _read(receive: Receive, messages: list[Message]) -> int:
    """Reads a body, or as much of it as matters; its size, with escaped characters as they are in UTF-8, about."""
    num_bytes = 0
    while num_bytes < _SURELY_LARGE_BYTES:
        message = await receive()
        messages.append(message)
        part = message.get("body", b"")
        num_bytes += len(part) - 4 * part.count(b"\\u") - 2 * part.count(b"%")
        if not message.get("more_body", False):
            break
    return num_bytes
