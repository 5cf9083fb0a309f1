"""How bodies are read, and how it is noticed that a client went away."""

from __future__ import annotations

import asyncio
import codecs
import difflib
import email.message
import json
import re
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import orjson
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from service.api.errors import InvalidField, InvalidJson, UnsupportedMediaType, shortened, shown
from service.api.middleware import CLIENT_CLOSED_REQUEST
from service.api.schemas import fields_at

T = TypeVar("T")

MAX_JSON_DEPTH = 64
"""Lists and objects that may stand in each other; no request needs ten. What walks through a body calls itself for each
level, pydantic and Python's own `repr` among them, and deep in a server's calls few hundred are left."""
_TOO_DEEP = (
    f"lists and objects stand in each other in more than {MAX_JSON_DEPTH} levels; at most {MAX_JSON_DEPTH} are allowed"
)

_MANY_FIELDS = 64
_ESCAPED_LETTER = re.compile(rb"\\u00[2-7]")
"""Of those that names of fields have; no program escapes them."""

_NO_NUMBER = re.compile(r"NaN|Infinity")


class JsonRequest(Request):
    """A request whose JSON is read by `read_json`."""

    async def json(self) -> Any:
        """The body.

        Raises:
            InvalidJson: Says what is wrong, and where.
        """
        if not hasattr(self, "_content"):
            self._content = read_json(await self.body())
        return self._content


class JsonRoute(APIRoute):
    """A route that takes JSON bodies only, and survives clients that vanish while they send."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with the body read and parsed before FastAPI looks at it."""
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            if request.scope["query_string"] and self.path.startswith("/v1/"):
                self._check_query(request)
            if self.body_field is None:
                return await handle(request)
            _check_content_type(request.headers.get("content-type"))
            check_content_encoding(request)
            request = JsonRequest(request.scope, request.receive)
            try:
                # Here and not in FastAPI, which turns every error into its own; what is read is kept.
                await request.json()
                return await handle(request)
            except (ClientDisconnect, ClientGone):
                return Response(status_code=CLIENT_CLOSED_REQUEST)

        return handle_json

    def _check_query(self, request: Request) -> None:
        """Refuses what is not known, as in bodies: it would be ignored.

        Raises:
            InvalidField: Names the first one, and the nearest that there is.
        """
        known = [field.alias for field in self.dependant.query_params]
        for name, value in request.query_params.items():
            if name not in known:
                schema = getattr(getattr(self.body_field, "field_info", None), "annotation", None)
                fields = fields_at(schema, ()) if schema is not None else ()
                nearest = difflib.get_close_matches(shortened(name), [*known, *fields], n=1)
                allowed = f"only {', '.join(known)} behind the question mark" if known else "nothing there"
                if nearest:
                    place = "in the body" if nearest[0] in fields else "there"
                    allowed += f" (did you mean {nearest[0]}, {place}?)"
                raise InvalidField(f"?{name}", value, allowed)


def read_json(body: bytes) -> Any:
    """What a body in JSON says: no NaN, no lone surrogates, UTF-8 only, no field twice, nothing nested deeply.

    A byte-order mark before it is ignored, as RFC 8259 allows: some clients' text files begin with one.

    Raises:
        InvalidJson: Says what is wrong, and where.
    """
    body = body.removeprefix(codecs.BOM_UTF8)
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InvalidJson(_json_fault(body, error)) from error
    if _is_deep(body, content):
        raise InvalidJson(_TOO_DEEP)
    if (name := _repeated_field(body, content)) is not None:
        raise InvalidJson(f"{shown(name)} is there twice in one object, of which only one could count")
    return content


def _json_fault(body: bytes, error: orjson.JSONDecodeError) -> str:
    """What is wrong with a body, where the parser's own words do not tell it to someone who cannot see its code."""
    try:
        body.decode()
    except UnicodeDecodeError as fault:
        return f"it is not UTF-8 (byte 0x{body[fault.start]:02x} at offset {fault.start})"
    place = f"line {error.lineno} column {error.colno}"
    if not body:
        return "it is empty"
    if _NO_NUMBER.match(error.doc, error.pos):
        return f"NaN and Infinity are no JSON numbers ({place})"
    if "infinity" in error.msg:
        return f"a number is too large ({place})"
    if "surrogate" in error.msg:
        return f"half of a surrogate pair is no character ({place})"
    if error.msg.startswith("depth limit"):
        return _TOO_DEEP
    return str(error)


def _is_deep(body: bytes, content: object) -> bool:
    """Whether lists and objects stand in each other more deeply than `MAX_JSON_DEPTH`."""
    if body.count(b"[") + body.count(b"{") <= MAX_JSON_DEPTH:  # nearly always
        return False
    level = [content] if isinstance(content, dict | list) else []
    for _ in range(MAX_JSON_DEPTH):
        inner = (each for value in level for each in (value.values() if isinstance(value, dict) else value))
        level = [each for each in inner if isinstance(each, dict | list)]
    return bool(level)


def _repeated_field(body: bytes, content: object) -> str | None:
    """The name of a field that stands twice in one object; parsers keep one, and the other would be lost.

    Args:
        body: Valid JSON.
        content: What a parser made of it.
    """
    names: list[str] = []
    left, num_seen = [content], 0
    while left and max(len(names), num_seen) <= _MANY_FIELDS:
        value = left.pop()
        num_seen += 1
        if isinstance(value, dict):
            names += value
        if isinstance(value, dict | list):
            inner = value.values() if isinstance(value, dict) else value
            left += (each for each in inner if isinstance(each, dict | list))
    # Nearly always each name is there once, as it is and nowhere else.
    is_plain = not left and not _ESCAPED_LETTER.search(body)
    if is_plain and all(body.count(f'"{name}"'.encode()) == 1 for name in names):
        return None
    found: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        found.extend(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]

    json.loads(body, object_pairs_hook=look)
    return found[0] if found else None


class ClientGone(Exception):
    """Nobody waits for the answer any more."""


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """Awaits `work`, and cancels it when the client goes away.

    Raises:
        ClientGone: The client went away first.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(disconnected(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientGone
        return task.result()
    finally:
        gone.cancel()
        if not task.done():
            task.cancel()
            await asyncio.wait({task})


async def disconnected(request: Request) -> None:
    """Returns when the client has gone; the body must have been read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def check_content_encoding(request: Request) -> None:
    """Refuses bodies that are compressed: unpacked, a small one may be of any size.

    Raises:
        UnsupportedMediaType: Names the encoding.
    """
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.strip().lower() not in ("", "identity"):
        raise UnsupportedMediaType(
            f"the content encoding is {shown(encoding)}; allowed is a body as it is, uncompressed"
        )


def _check_content_type(value: str | None) -> None:
    message = email.message.Message()
    message["content-type"] = value or "none"
    subtype = message.get_content_subtype()
    is_json = message.get_content_maintype() == "application" and (subtype == "json" or subtype.endswith("+json"))
    if not is_json:
        given = shown(value) if value else "not given"
        raise UnsupportedMediaType(f"the content type is {given}; allowed is application/json")
    charset = message.get_content_charset("utf-8")
    if charset not in ("utf-8", "utf8", "us-ascii"):
        raise UnsupportedMediaType(f"the charset is {shown(charset)}; allowed is utf-8")
