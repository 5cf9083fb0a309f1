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

from service.aside import breathe

_DEPTH_IN_PIECES = 2
"""Of lists in lists: texts, and their segments."""


class JsonResponse(Response):
    """A JSON answer; fields that are None are left out of models."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes of the answer."""
        return encode(content)


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
    return b"event: " + name.encode() + b"\ndata: " + encode(data) + b"\n\n"


def encode(content: Any) -> bytes:
    """JSON in one line; fields that are None are left out of models."""
    return _encode_model(content) if isinstance(content, BaseModel) else orjson.dumps(content)


def _encode_model(model: BaseModel, depth: int = _DEPTH_IN_PIECES) -> bytes:
    """A model, with each item of its lists of models on its own: the libraries hold Python's lock for a whole call."""
    lists = {
        name: value
        for name, value in model
        if depth and isinstance(value, list) and value and isinstance(value[0], BaseModel)
    }
    fields = model.model_dump(exclude_none=True, by_alias=True, exclude=set(lists))
    if lists:
        for name, items in lists.items():
            pieces = []
            for item in items:
                breathe()
                pieces.append(orjson.Fragment(_encode_model(item, depth - 1)))
            lists[name] = pieces
        # In the order of the model's fields.
        names = {
            name: info.serialization_alias or info.alias or name for name, info in type(model).model_fields.items()
        }
        fields = {
            alias: lists[name] if name in lists else fields[alias]
            for name, alias in names.items()
            if name in lists or alias in fields
        }
    return orjson.dumps(fields)


async def _until_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
