"""Errors in a dialect's own words.

Whatever goes wrong on a dialect's path, and wherever (a route, a limit, a key, no such path, a fault of ours), is at
first a problem document like all others; this middleware is the one place where it becomes what the dialect's clients
expect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.errors import MEDIA_TYPE

Problem = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a dialect answers errors.

    Attributes:
        owns: Whether a path is the dialect's.
        answer: From a problem document to the status and the body, which becomes JSON.
    """

    owns: Callable[[str], bool]
    answer: Callable[[Problem], tuple[int, object]]


class DialectErrors:
    """Puts problem documents on the paths of dialects into the dialect's own shape; headers stay."""

    def __init__(self, app: ASGIApp, dialects: Sequence[Dialect]) -> None:
        self._app = app
        self._dialects = tuple(dialects)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serves one request."""
        dialect = None
        if scope["type"] == "http":
            dialect = next((dialect for dialect in self._dialects if dialect.owns(scope["path"])), None)
        if dialect is None:
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        body = b""

        async def send_translated(message: Message) -> None:
            nonlocal start, body
            if message["type"] == "http.response.start" and _is_problem(message):
                start = message
            elif start is None:
                await send(message)
            else:
                body += message.get("body", b"")
                if not message.get("more_body", False):
                    await _send_answer(dialect, start, body, send)

        await self._app(scope, receive, send_translated)


def _is_problem(start: Message) -> bool:
    return Headers(raw=start["headers"]).get("content-type", "").startswith(MEDIA_TYPE)


async def _send_answer(dialect: Dialect, start: Message, body: bytes, send: Send) -> None:
    headers = MutableHeaders(raw=list(start["headers"]))
    if body:  # there is none in the answer to HEAD
        status, answer = dialect.answer(orjson.loads(body))
        body = orjson.dumps(answer)
        headers["content-length"] = str(len(body))
        start = {**start, "status": status}
    headers["content-type"] = "application/json"
    await send({**start, "headers": headers.raw})
    await send({"type": "http.response.body", "body": body, "more_body": False})
