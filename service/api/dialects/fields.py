"""The fields of a request, however a client sends them: JSON, a form, multipart, or behind the `?`."""

from __future__ import annotations

import email.message
import re
import urllib.parse
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from service.api.errors import InvalidJson, shown
from service.api.middleware import CLIENT_CLOSED_REQUEST
from service.api.requests import ClientGone, check_content_encoding, read_json

MAX_FIELDS = 2_000
"""More fields than this are refused; each text of a list is one."""

_INTEGER = re.compile(r"\s*[+-]?\d{1,18}\s*")
_FALSE, _TRUE = frozenset({"0", "false", "no", "off", ""}), frozenset({"1", "true", "yes", "on"})


class BadField(HTTPException):
    """A field cannot be used; the message names it, and what is allowed."""

    def __init__(self, message: str) -> None:
        super().__init__(400, message)


@dataclass(frozen=True, slots=True)
class UploadedFile:
    """A file that came in a form.

    Attributes:
        name: As the client says; not to be trusted.
        content: All of it; as long as a body may be.
    """

    name: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Fields:
    """What a client sent, under the names it used.

    Attributes:
        values: From JSON whatever stood there. From a form a string, or a tuple of strings where the name is repeated.
        files: Uploaded ones.
    """

    values: Mapping[str, object] = field(default_factory=dict)
    files: Mapping[str, UploadedFile] = field(default_factory=dict)

    def get(self, name: str) -> object:
        """The value, or None."""
        return self.values.get(name)

    def single(self, name: str) -> object:
        """The value; the first where a form repeats the name, None where it is missing. A list of JSON stays one."""
        value = self.values.get(name)
        return value[0] if isinstance(value, tuple) else value

    def text(self, name: str, where: str = "") -> str | None:
        """A single string; the first where a form repeats the name, None where it is missing, null or empty.

        Args:
            name: Of the field.
            where: What stands before the name in messages.

        Raises:
            BadField: If it is no string.
        """
        value = self.single(name)
        if value is None or value == "":
            return None
        if not isinstance(value, str):
            raise BadField(f"Invalid request: {where}{name} must be a string, not {_kind(value)}")
        return value

    def objects(self, name: str) -> list[Fields]:
        """A list of objects, each as fields of its own; in a form `name[0].field`. None is an empty list.

        Raises:
            BadField: If it is something else.
        """
        value = self.values.get(name)
        if value is None:
            found: dict[int, dict[str, object]] = {}
            for key, item in self.values.items():
                match = re.fullmatch(rf"{re.escape(name)}\[(\d{{1,4}})\]\.(\w+)", key)
                if match:
                    found.setdefault(int(match[1]), {})[match[2]] = item
            return [Fields(found[index]) for index in sorted(found)]
        if not isinstance(value, list):
            raise BadField(f"Invalid request: {name} must be a list of objects, not {_kind(value)}")
        for index, item in enumerate(value):
            if not isinstance(item, dict):
                raise BadField(f"Invalid request: {name}[{index}] must be an object, not {_kind(item)}")
        return [Fields(item) for item in value]

    def texts(self, name: str) -> list[str] | None:
        """A string or a list of strings, as a list; None where it is missing or null.

        Raises:
            BadField: If it is neither.
        """
        value = self.values.get(name)
        if value is None:
            return None
        items = value if isinstance(value, list | tuple) else [value]
        for index, item in enumerate(items):
            if not isinstance(item, str):
                place = f"{name}[{index}]" if isinstance(value, list) else name
                raise BadField(f"Invalid request: {place} must be a string, not {_kind(item)}")
        return list(items)

    def integer(self, name: str) -> int | None:
        """A whole number, also as a string; None where it is missing, null or empty.

        Raises:
            BadField: If it is none.
        """
        value = self.single(name)
        if value is None or value == "":
            return None
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if isinstance(value, str) and _INTEGER.fullmatch(value):
            return int(value)
        raise BadField(f"Invalid request: {name} parameter must be a whole number, not {shown(value)}")

    def flag(self, name: str) -> bool | None:
        """True or false, as JSON or as `1`, `0`, `true`, `false`; None where it is missing, null or empty.

        Raises:
            BadField: If it is neither.
        """
        value = self.single(name)
        if value is None or isinstance(value, bool):
            return value
        word = str(value).strip().lower()
        if word in _TRUE | _FALSE:
            return None if word == "" else word in _TRUE
        raise BadField(f"Invalid request: {name} must be true or false (1 or 0), not {shown(value)}")


async def read_fields(request: Request) -> Fields:
    """Reads body and query; where both name a field, the body's counts.

    No body is no fault, whatever the content type says: clients set it on GET and DELETE too.

    Raises:
        BadField: If the body cannot be read.
        ClientDisconnect: If the client goes away.
    """
    query = _pairs(request.scope["query_string"])
    kind, subtype = _media_type(request)
    if kind == "multipart" and subtype == "form-data":
        body = await _read_multipart(request)
    elif subtype == "json" or subtype.endswith("+json"):
        body = Fields(_parse_json(await request.body()))
    else:
        # Also what says nothing about itself: a form is what clients send that set no content type.
        content = await request.body()
        if content[:1] == b"{":
            given = shown(request.headers.get("content-type", "not given"))
            raise BadField(f"Invalid request: the body begins like JSON, but the content type is {given}")
        body = Fields(_pairs(content))
    return Fields({**query, **body.values}, body.files)


class DialectRoute(APIRoute):
    """A route that survives clients that go away while they send, or wait."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with an answer that nobody reads where the client has gone."""
        handle = super().get_route_handler()

        async def handle_dialect(request: Request) -> Response:
            check_content_encoding(request)
            try:
                return await handle(request)
            except (ClientDisconnect, ClientGone):
                return Response(status_code=CLIENT_CLOSED_REQUEST)

        return handle_dialect


def dialect_router(name: str) -> APIRouter:
    """A router for a dialect.

    Its routes stand in docs/dialects.md and not in the OpenAPI document, which describes the native API.
    """
    return APIRouter(route_class=DialectRoute, tags=[name], include_in_schema=False)


def _parse_json(body: bytes) -> dict[str, object]:
    if not body:
        return {}
    try:
        content = read_json(body)
    except InvalidJson as error:
        raise BadField(f"Invalid JSON format: {error.reason}") from error
    if not isinstance(content, dict):
        raise BadField(f"Invalid JSON format: the body must be an object, not {_kind(content)}")
    return content


def _pairs(encoded: bytes) -> dict[str, object]:
    """A form or a query."""
    try:
        # Strict: a byte that is no UTF-8 would silently become another character. curl -d sends UTF-8 as it is.
        pairs = urllib.parse.parse_qsl(
            encoded.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS
        )
    except UnicodeDecodeError as error:
        raise BadField(f"Invalid request: the form is not UTF-8 ({error.reason} at byte {error.start})") from error
    except ValueError as error:
        raise BadField(f"Invalid request: more than {MAX_FIELDS} fields") from error
    return _grouped(pairs)


class _Utf8Parser(MultiPartParser):
    """Texts are UTF-8, as RFC 7578 wants it; Starlette takes what is not for Latin-1, which no client means."""

    def on_part_end(self) -> None:
        part = self._current_part
        if part.file is not None:
            super().on_part_end()
            return
        try:
            self.items.append((part.field_name, part.data.decode()))
        except UnicodeDecodeError as error:
            name = shown(part.field_name)
            raise BadField(f"Invalid request: {name} is not UTF-8 ({error.reason} at byte {error.start})") from error


async def _read_multipart(request: Request) -> Fields:
    body_limit: int = request.app.state.services.settings.max_body_bytes
    parser = _Utf8Parser(
        request.headers, request.stream(), max_files=1, max_fields=MAX_FIELDS, max_part_size=body_limit
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise BadField(f"Invalid request: {error.message}") from error
    files = {}
    try:
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                files[name] = UploadedFile(value.filename or "", await value.read())
    finally:
        await form.close()
    return Fields(_grouped([(name, value) for name, value in form.multi_items() if isinstance(value, str)]), files)


def _grouped(pairs: list[tuple[str, str]]) -> dict[str, object]:
    grouped: dict[str, list[str]] = {}
    lists: set[str] = set()
    for given, value in pairs:
        name = given.removesuffix("[]")  # how some write a list, also of one
        grouped.setdefault(name, []).append(value)
        if name != given:
            lists.add(name)
    return {
        name: values[0] if len(values) == 1 and name not in lists else tuple(values) for name, values in grouped.items()
    }


def _media_type(request: Request) -> tuple[str, str]:
    message = email.message.Message()
    message["content-type"] = request.headers.get("content-type") or "none"
    return message.get_content_maintype(), message.get_content_subtype()


def _kind(value: object) -> str:
    """What kind of JSON value this is, in words."""
    if isinstance(value, str):
        return "a string"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, list):
        return "a list"
    return "an object" if isinstance(value, dict) else "a number"
