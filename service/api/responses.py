"""Answers: JSON by orjson, and server-sent events that end when the client does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import orjson
from pydantic import BaseModel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send


class JsonResponse(Response):
    """A JSON answer; fields that are None are left out of models."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes of the answer."""
        if isinstance(content, BaseModel):
            content = content.model_dump(exclude_none=True, by_alias=True)
        return orjson.dumps(content)


class EventStream(Response):
    """Server-sent events; when the client goes away, the iterator is closed at once.

    Starlette's own streaming response may notice only when it next has something to send.
    """

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[bytes]) -> None:
        """Takes over an iterator.

        Args:
            events: What `encode_event` makes; an asynchronous generator, closed in any case.
        """
        self.status_code = 200
        self.background = None
        self._events = events
        self.init_headers({"X-Accel-Buffering": "no"})  # proxies would hold events back

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends until the iterator or the client ends."""
        sender = asyncio.ensure_future(self._send_all(send))
        listener = asyncio.ensure_future(_until_disconnect(receive))
        try:
            await asyncio.wait({sender, listener}, return_when=asyncio.FIRST_COMPLETED)
            if sender.done():
                sender.result()
            else:
                scope.setdefault("state", {})["outcome"] = "cancelled"
        finally:
            listener.cancel()
            sender.cancel()
            await asyncio.wait({sender, listener})

    async def _send_all(self, send: Send) -> None:
        async with aclosing(self._events) as events:  # type: ignore[type-var]  # a generator, as documented
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async for event in events:
                await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def encode_event(name: str, data: Any) -> bytes:
    """One server-sent event; the data is one line of JSON."""
    if isinstance(data, BaseModel):
        data = data.model_dump(exclude_none=True, by_alias=True)
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps(data) + b"\n\n"


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
