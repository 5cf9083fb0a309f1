"""Everything that can go wrong for a client, and the one table that says with which status.

Errors are problem details (RFC 9457) with the media type `application/problem+json`:

    {"type": "urn:gossamer:problem:invalid-request", "title": "The request is not valid", "status": 422,
     "detail": "decoding.beam_size is 99; allowed is an integer from 1 to 16", "request_id": "...",
     "errors": [{"field": "decoding.beam_size", "given": 99, "allowed": "an integer from 1 to 16"}]}

ApiError
├── MalformedRequest       what came is no HTTP
│   ├── UnknownHttpVersion
│   ├── UnknownTransferCoding
│   └── UnmetExpectation
├── HeadersTooLarge
├── InvalidJson            the body is no JSON
├── UnsupportedMediaType   the body is not said to be JSON
├── InvalidField           a field's value is not allowed
├── BodyTooLarge
├── BodyTooSlow
├── TextTooLarge
├── TooManyTexts
├── InspectionTooLarge     with the nearest request that fits
├── NotAcceptable          no format that the client takes
├── Unauthenticated        no key that holds
├── Forbidden              the key is good for something else
├── RateLimited            the client has had its share of this minute
├── OverRateLimit          more at once than the client's share of a minute
└── NotReady               loading, draining or dead
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from model.decoding import ALLOWED as ALLOWED_OPTIONS
from model.decoding import InvalidDecodingOptions
from model.selection import TraceError
from service.api.schemas import fields_at
from service.engine import errors as engine_errors
from service.inspection.errors import InspectionDisabled, InvalidInspection, TooLarge
from service.observability.facts import note_reason
from service.observability.logging import request_id
from service.routing import UnknownLanguagePair
from service.translator import UnknownSourceLanguage

MEDIA_TYPE = "application/problem+json"

_MAX_SHOWN_CHARACTERS = 100
_MAX_FAULTS = 10
"""How many wrong fields are told of; a body may have a hundred thousand."""


class ApiError(Exception):
    """Something is wrong with the request, or with the moment; the message is for the client."""


class MalformedRequest(ApiError):
    """What came is no request in HTTP/1.1, or is one in a way that the server does not know.

    Attributes:
        field: Which part of it: a header, or in words.
        given: What that was; None if it is missing.
        allowed: What it may be, in words.
    """

    def __init__(self, field: str, given: str | None, allowed: str) -> None:
        fault = f"{field} is missing" if given is None else f"{field} is {shown(given)}"
        super().__init__(f"what came is no HTTP/1.1 request that can be served: {fault}; allowed is {allowed}")
        self.field = field
        self.given = given
        self.allowed = allowed


class UnknownHttpVersion(MalformedRequest):
    """The request is in another HTTP than 1.x."""


class UnknownTransferCoding(MalformedRequest):
    """The body is sent in another form than as it is, or in chunks."""


class UnmetExpectation(MalformedRequest):
    """The client expects something that the server does not do (RFC 9110, section 10.1.1)."""


class HeadersTooLarge(ApiError):
    """The request's line and headers have more bytes than the server reads; `num_bytes` is None while they go on."""

    def __init__(self, num_bytes: int | None, max_bytes: int, what: str = "the request's line and headers") -> None:
        size = f"more than {max_bytes}" if num_bytes is None else num_bytes
        super().__init__(f"{what} have {size} bytes; at most {max_bytes} are allowed")
        self.field = what
        self.num_bytes = num_bytes
        self.max_bytes = max_bytes


class InvalidJson(ApiError):
    """The body cannot be read as JSON.

    Attributes:
        reason: What is wrong with it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the body is not valid JSON: {reason}")
        self.reason = reason


class UnsupportedMediaType(ApiError):
    """The body is not said to be JSON in UTF-8."""


class InvalidField(ApiError):
    """A field has a value that is not allowed."""

    def __init__(self, field: str, given: object, allowed: str) -> None:
        super().__init__(f"{field} is {shown(given)}; allowed is {allowed}")
        self.field = field
        self.given = given
        self.allowed = allowed


class BodyTooLarge(ApiError):
    """More bytes than the server reads; `num_bytes` is None where the client did not say how many come."""

    def __init__(self, num_bytes: int | None, max_bytes: int) -> None:
        size = f"more than {max_bytes}" if num_bytes is None else num_bytes
        super().__init__(f"the body has {size} bytes; at most {max_bytes} are allowed")
        self.num_bytes = num_bytes
        self.max_bytes = max_bytes


class BodyTooSlow(ApiError):
    """The body did not arrive in time."""

    def __init__(self, num_bytes: int, max_seconds: float) -> None:
        super().__init__(f"the body had not arrived after {max_seconds:g} s: {num_bytes} bytes came")
        self.num_bytes = num_bytes
        self.max_seconds = max_seconds


class TextTooLarge(ApiError):
    """The texts together have too many bytes."""

    def __init__(self, num_bytes: int, max_bytes: int) -> None:
        super().__init__(f"text has {num_bytes} bytes in UTF-8; at most {max_bytes} are allowed in one request")
        self.num_bytes = num_bytes
        self.max_bytes = max_bytes


class TooManyTexts(ApiError):
    """The list of texts is too long."""

    def __init__(self, num_texts: int, max_texts: int) -> None:
        super().__init__(f"text has {num_texts} items; at most {max_texts} are allowed in one request")
        self.num_texts = num_texts
        self.max_texts = max_texts


class InspectionTooLarge(ApiError):
    """An answer about the inside would be too large, or too much work.

    Attributes:
        extensions: Members of the problem document beside those of every one.
    """

    def __init__(self, error: TooLarge, body: Mapping[str, Any]) -> None:
        """Takes over an error, and the request, of which one that fits is made; an empty one makes none."""
        super().__init__(str(error))
        self.extensions: dict[str, Any] = {f"needed_{error.unit}": error.needed, f"limit_{error.unit}": error.limit}
        if error.nearest is not None and body:
            self.extensions["nearest"] = {
                "says": error.nearest.says,
                "accept": error.nearest.accept,
                "body": {**body, **error.nearest.changes},
                "needed_bytes": error.nearest.needed_bytes,
            }


class NotAcceptable(ApiError):
    """The client takes none of the formats there are."""

    def __init__(self, given: str, allowed: Sequence[str]) -> None:
        super().__init__(f"Accept is {shown(given)}; there is {', '.join(allowed)}")


class NotReady(ApiError):
    """No request is taken now."""


class Unauthenticated(ApiError):
    """A key is needed, and none was given that holds."""

    def __init__(self, is_missing: bool) -> None:
        how = "send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`"
        super().__init__(f"an API key is needed: {how}" if is_missing else "this API key does not hold")


class Forbidden(ApiError):
    """The key holds, but not for this."""

    def __init__(self, key_id: str, scopes: Sequence[str], needed: str) -> None:
        super().__init__(f"the key {key_id} has the scopes {', '.join(scopes)}; this needs {needed}")


class RateLimited(ApiError):
    """A client has had as much as it may have in a minute.

    Attributes:
        unit: Of what: requests or tokens.
        amount: How many it may have in a minute.
        cost: How many this request wants.
        retry_after_seconds: When there will be room for the same request.
    """

    def __init__(self, whose: str, unit: str, amount: int, cost: int, retry_after_seconds: float) -> None:
        super().__init__(
            f"this {whose} may have {amount} {unit} a minute; try again in {math.ceil(retry_after_seconds)} s"
        )
        self.unit = unit
        self.amount = amount
        self.cost = cost
        self.retry_after_seconds = retry_after_seconds


class OverRateLimit(ApiError):
    """One request is more than its client may have in a whole minute: to wait is of no use."""

    def __init__(self, whose: str, num_tokens: int, amount: int) -> None:
        super().__init__(f"the request has {num_tokens} source tokens; this {whose} may have {amount} a minute")
        self.num_tokens = num_tokens
        self.amount = amount


@dataclass(frozen=True, slots=True)
class Kind:
    """How an error is answered.

    Attributes:
        status: HTTP status.
        slug: Last part of `type`.
        title: The same for all errors of the kind.
    """

    status: int
    slug: str
    title: str


_INVALID = Kind(422, "invalid-request", "The request is not valid")
_UNAVAILABLE = Kind(503, "not-ready", "The server takes no requests now")

STATUS_TABLE: Mapping[type[Exception], Kind] = {
    MalformedRequest: Kind(400, "malformed-request", "The request is not valid HTTP"),
    UnknownHttpVersion: Kind(505, "http-version", "The version of HTTP is not supported"),
    UnknownTransferCoding: Kind(501, "transfer-coding", "The transfer coding is not supported"),
    UnmetExpectation: Kind(417, "expectation-failed", "The expectation cannot be met"),
    HeadersTooLarge: Kind(431, "headers-too-large", "The headers are too large"),
    InvalidJson: Kind(400, "invalid-json", "The body is not valid JSON"),
    UnsupportedMediaType: Kind(415, "unsupported-media-type", "The body must be JSON"),
    RequestValidationError: _INVALID,
    InvalidField: _INVALID,
    InvalidDecodingOptions: _INVALID,
    engine_errors.InvalidOptions: _INVALID,
    engine_errors.SequenceTooLarge: _INVALID,
    InvalidInspection: _INVALID,
    TraceError: _INVALID,
    InspectionDisabled: Kind(404, "inspection-disabled", "Looking inside is turned off"),
    NotAcceptable: Kind(406, "not-acceptable", "There is no such format"),
    InspectionTooLarge: Kind(413, "inspection-too-large", "The answer would be too large"),
    engine_errors.InspectionBusy: Kind(429, "inspection-busy", "Too many look inside at once"),
    UnknownLanguagePair: Kind(422, "unknown-language-pair", "No model translates between these languages"),
    UnknownSourceLanguage: Kind(422, "unknown-source-language", "The language of a text was not recognised"),
    engine_errors.UnknownModel: Kind(422, "unknown-model", "There is no such model"),
    BodyTooSlow: Kind(408, "body-too-slow", "The body came too slowly"),
    BodyTooLarge: Kind(413, "body-too-large", "The body is too large"),
    TextTooLarge: Kind(413, "text-too-large", "There is too much text in one request"),
    TooManyTexts: Kind(413, "too-many-texts", "There are too many texts in one request"),
    engine_errors.RequestTooLarge: Kind(413, "text-too-large", "There is too much text in one request"),
    engine_errors.SourceTooLong: Kind(413, "text-too-large", "There is too much text in one request"),
    engine_errors.QueueFull: Kind(503, "queue-full", "The server is busy"),
    engine_errors.EngineStopping: _UNAVAILABLE,
    engine_errors.RequestAborted: _UNAVAILABLE,
    NotReady: _UNAVAILABLE,
    Unauthenticated: Kind(401, "unauthenticated", "An API key is needed"),
    Forbidden: Kind(403, "forbidden", "The API key is not good for this"),
    RateLimited: Kind(429, "rate-limited", "Too much was asked for in a minute"),
    OverRateLimit: Kind(413, "text-too-large", "There is too much text in one request"),
    engine_errors.EngineDead: Kind(503, "engine-dead", "The translation engine has failed"),
    engine_errors.DeadlineExceeded: Kind(504, "deadline-exceeded", "The translation took too long"),
    engine_errors.SequenceFailed: Kind(502, "model-failed", "The model gave no usable translation"),
    engine_errors.EngineError: Kind(503, "engine-error", "The translation engine could not do this"),
}
"""The only place where errors become statuses; a class that is not listed has the kind of its nearest base class."""

_UNEXPECTED = Kind(500, "internal-error", "Something went wrong in the server")
_UNEXPECTED_DETAIL = "an unexpected error; it has been logged under the request id"

_HTTP_TITLES = {404: ("not-found", "There is no such page"), 405: ("method-not-allowed", "The method is not allowed")}
_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
_METHODS_OF_ALL = ("GET", "HEAD", *_METHODS[1:], "OPTIONS")
"""Of `OPTIONS *`, which asks for those of the server."""

_PASSING = (429, 503, 504)
"""Statuses of what may pass by itself: the answer always says when to try again."""

_RETRY_AFTER_SECONDS = 1

_DEADLINE = "deadline_seconds"
current_timeout: ContextVar[tuple[float, float] | None] = ContextVar("current_timeout", default=None)
"""How many seconds the request that is being served may take, and how many it could have asked for."""


_PLAIN_NAME = re.compile(r"[\w-]+")
_LARGEST_EXACT = 2**53
"""From here on a float is no certain integer any more."""

_MAX_BITS = 63
"""Of an integer that is written as a number of JSON; a `Content-Length` may have more."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with one field.

    Attributes:
        field: Its name, with those of the objects around it; shortened.
        given: As JSON, shortened.
        allowed: In words, or a list of the values.
        sentence: All of it, for people.
    """

    field: str
    given: object
    allowed: object
    sentence: str

    def to_json(self) -> dict[str, object]:
        """What stands in `errors`."""
        return {"field": self.field, "given": self.given, "allowed": self.allowed}


def problem_of(error: Exception, schema: type[BaseModel] | None = None) -> dict[str, Any]:
    """The problem details of an error; `status` among them.

    Errors without an entry in the table get a 500 that says nothing about the inside.

    Args:
        error: What went wrong.
        schema: Of the body that was read, which knows the names that fields may have.
    """
    problem = _problem_of(error, schema)
    note_reason(problem["type"].rpartition(":")[2])
    return problem


def _problem_of(error: Exception, schema: type[BaseModel] | None) -> dict[str, Any]:
    if isinstance(error, HTTPException):
        slug, title = _HTTP_TITLES.get(error.status_code, ("http-error", str(error.detail)))
        return _problem(Kind(error.status_code, slug, title), str(error.detail), [])
    for base in type(error).__mro__:
        if base in STATUS_TABLE:
            faults = _faults(error, schema)
            detail = _sentence(faults) if STATUS_TABLE[base] is _INVALID and faults else str(error) + _limit_of(error)
            problem = _problem(STATUS_TABLE[base], detail, [fault.to_json() for fault in faults[:_MAX_FAULTS]])
            return problem | getattr(error, "extensions", {})
    return _problem(_UNEXPECTED, _UNEXPECTED_DETAIL, [])


def problem_response(error: Exception, schema: type[BaseModel] | None = None) -> Response:
    """The answer to an error; see `problem_of`."""
    problem = problem_of(error, schema)
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = "Bearer"
    headers |= retry_headers(error, problem["status"])
    if isinstance(error, BodyTooLarge | BodyTooSlow | MalformedRequest | HeadersTooLarge):
        headers["Connection"] = "close"  # the rest is not read
    return Response(orjson.dumps(problem), problem["status"], headers, MEDIA_TYPE)


def retry_headers(error: Exception, status: int) -> dict[str, str]:
    """`Retry-After`, where an error may pass by itself."""
    if status not in _PASSING:
        return {}
    seconds = getattr(error, "retry_after_seconds", _RETRY_AFTER_SECONDS)
    return {"Retry-After": str(max(1, math.ceil(seconds)))}


async def answer_error(request: Request, error: Exception) -> Response:
    """The exception handler for every class of the table."""
    if isinstance(error, HTTPException):
        if request.method == "OPTIONS" and error.status_code in (404, 405):
            methods = _METHODS_OF_ALL if request.scope["path"] == "*" else _allowed_methods(request)
            if methods:
                return Response(status_code=204, headers={"Allow": ", ".join(methods)})
        error = _explained(request, error)
    return problem_response(error, _body_schema(request))


def shown(value: object) -> str:
    """A value as it may stand in a message: as JSON, short, and without its insides."""
    given = _given(value)
    return given if isinstance(given, str) and not isinstance(value, str) else json.dumps(given, ensure_ascii=False)


def _explained(request: Request, error: HTTPException) -> HTTPException:
    """What the framework says of unknown paths and wrong methods, with what there is instead."""
    path = shown(request.scope["path"])
    if error.status_code == 405:
        allowed = ", ".join(_allowed_methods(request))
        detail = f"{shortened(request.method)} is not allowed for {path}; allowed is {allowed}"
        return HTTPException(405, detail, {**(error.headers or {}), "Allow": allowed})
    if error.status_code == 404 and error.detail == "Not Found":
        return HTTPException(404, f"there is nothing at {path}; /docs lists what there is", error.headers)
    return error


def _allowed_methods(request: Request) -> list[str]:
    """All methods of a path; the framework names those of its first route."""
    routes = request.app.router.routes
    allowed = [
        method
        for method in _METHODS
        if any(route.matches({**request.scope, "method": method})[0] is Match.FULL for route in routes)
    ]
    if "GET" in allowed:
        allowed.insert(1, "HEAD")
    return [*allowed, "OPTIONS"] if allowed else []


def _body_schema(request: Request) -> type[BaseModel] | None:
    """What the route takes as its body, if it takes one."""
    field = getattr(request.scope.get("route"), "body_field", None)
    schema = getattr(getattr(field, "field_info", None), "annotation", None)
    return schema if isinstance(schema, type) and issubclass(schema, BaseModel) else None


def _problem(kind: Kind, detail: str, faults: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    problem: dict[str, Any] = {
        "type": f"urn:gossamer:problem:{kind.slug}",
        "title": kind.title,
        "status": kind.status,
        "detail": detail,
        "request_id": request_id.get(),
    }
    return problem | {"errors": list(faults)} if faults else problem


def shortened(text: str) -> str:
    """At most the first hundred characters of what a client sent: no answer repeats a whole body."""
    return text if len(text) <= _MAX_SHOWN_CHARACTERS else text[:_MAX_SHOWN_CHARACTERS] + "…"


def _given(value: object) -> object:
    """A value for the field `given`: JSON, and short."""
    if isinstance(value, str):
        return shortened(value)
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"an object with {len(value)} field{'' if len(value) == 1 else 's'}"
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return shortened(str(value))
    return value if value is None or isinstance(value, bool | int | float) else type(value).__name__


def _unconverted(value: object) -> object:
    """A value that went through a field for numbers, which makes 1.0 of the 1 that was given."""
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST_EXACT else value


def _faults(error: Exception, schema: type[BaseModel] | None) -> list[Fault]:
    if isinstance(error, RequestValidationError):
        return [_validation_fault(details, schema) for details in error.errors()]
    if isinstance(error, MalformedRequest):
        return [_fault(error.field, error.given, error.allowed)]
    if isinstance(error, HeadersTooLarge):
        return [_fault(error.field, error.num_bytes, f"at most {error.max_bytes} bytes")]
    if isinstance(error, InvalidField | InvalidInspection):
        return [_fault(error.field, _unconverted(error.given), error.allowed)]
    if isinstance(error, InvalidDecodingOptions | engine_errors.InvalidOptions):
        return [_fault(f"decoding.{error.field}", _unconverted(error.value), error.allowed)]
    if isinstance(error, UnknownLanguagePair):
        return [_fault(error.field, error.given, list(error.available))]
    if isinstance(error, UnknownSourceLanguage):
        return [
            _fault(field, text, list(error.available)) for field, text in zip(error.fields, error.texts, strict=True)
        ]
    if isinstance(error, engine_errors.UnknownModel):
        return [_fault("model", error.model, list(error.available))]
    if isinstance(error, TextTooLarge):
        return [_fault("text", error.num_bytes, f"at most {error.max_bytes} bytes in UTF-8")]
    if isinstance(error, TooManyTexts):
        return [_fault("text", error.num_texts, f"at most {error.max_texts} items")]
    if isinstance(error, engine_errors.RequestTooLarge):
        return [_fault("text", error.num_tokens, f"at most {error.max_tokens} source tokens")]
    if isinstance(error, OverRateLimit):
        return [_fault("text", error.num_tokens, f"at most {error.amount} source tokens")]
    if isinstance(error, RateLimited):
        return [_fault(f"{error.unit}_per_minute", error.cost, f"{error.amount} a minute, all together")]
    if isinstance(error, engine_errors.InspectionBusy):
        return [_fault("waiting_inspections", error.num_pending, f"at most {error.max_waiting} that wait")]
    if isinstance(error, engine_errors.WaitTooLong):
        return [_fault("wait_seconds", round(error.wait_seconds, 1), f"at most {error.max_wait_seconds:g}")]
    if isinstance(error, engine_errors.NotInTime):
        needed = f"about {error.needed_seconds:.0f} for this text now"
        return [_fault(_DEADLINE, round(error.left_seconds, 1), needed)]
    if isinstance(error, engine_errors.QueueFull):
        return [_fault("waiting_tokens", error.waiting_tokens, f"at most {error.max_waiting_tokens}")]
    if isinstance(error, engine_errors.DeadlineExceeded) and (timeout := current_timeout.get()) is not None:
        return [_fault(_DEADLINE, _unconverted(timeout[0]), f"a number above 0 and at most {timeout[1]:g}")]
    if isinstance(error, BodyTooLarge):
        return [_fault("body", error.num_bytes, f"at most {error.max_bytes} bytes")]
    return []


def _limit_of(error: Exception) -> str:
    """What an error does not know that is raised far from where its limit was set."""
    timeout = current_timeout.get()
    if not isinstance(error, engine_errors.DeadlineExceeded) or timeout is None:
        return ""
    seconds, longest = timeout
    if seconds < longest:
        return f"; it was given {seconds:g} s: give it more, up to {longest:g}, or send less text at once"
    return f"; it was given {seconds:g} s, the most that is allowed: send less text at once"


def _fault(field: str, given: object, allowed: object) -> Fault:
    field = shortened(field)
    return Fault(field, _given(given), allowed, f"{field} is {shown(given)}; allowed is {allowed}")


_EXPECTED = {
    "missing": "required",
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dict_type": "an object",
}


def _validation_fault(details: Mapping[str, Any], schema: type[BaseModel] | None) -> Fault:
    """A fault that pydantic found, in our words."""
    path = list(details["loc"][1:])  # without where it is: in the body, or behind the `?`
    context = details.get("ctx") or {}
    kind, given = details["type"], details.get("input")
    field = _path(path) or "body"
    if kind == "field":  # raised by a validator of schemas.py
        return _fault(field + context.get("at", ""), context.get("given"), context["allowed"])
    if kind == "missing":
        return Fault(field, None, "required", f"{field} is missing")
    if kind == "extra_forbidden":
        return _unknown_field(field, path, given, schema)
    if kind == "literal_error":
        return _fault(field, given, context["expected"])
    if kind == "string_too_long":
        return _fault(field, given, f"a string of at most {context['max_length']} characters")
    if path[:1] == ["decoding"] and path[-1] in ALLOWED_OPTIONS:
        return _fault(field, given, ALLOWED_OPTIONS[path[-1]])
    return _fault(field, given, _EXPECTED.get(kind, details["msg"]))


def _unknown_field(field: str, path: Sequence[Any], given: object, schema: type[BaseModel] | None) -> Fault:
    known = fields_at(schema, path[:-1])
    nearest = difflib.get_close_matches(shortened(str(path[-1])), known, n=1)
    hint = f"did you mean {nearest[0]}?" if nearest else ""
    allowed = f"only these fields{f' ({hint})' if hint else ''}: {', '.join(known)}"
    sentence = f"{field} is an unknown field{f'; {hint}' if hint else ''} (there are: {', '.join(known)})"
    return Fault(field, _given(given), allowed, sentence)


def _path(parts: Sequence[object]) -> str:
    """The name of a field; names that the client made up are shortened, and quoted if they look like none."""
    names = (f"[{part}]" if isinstance(part, int) else f".{_field_name(str(part))}" for part in parts)
    return "".join(names).removeprefix(".")


def _field_name(name: str) -> str:
    return shortened(name) if _PLAIN_NAME.fullmatch(name) else shown(name)


def _sentence(faults: Sequence[Fault]) -> str:
    told = [fault.sentence for fault in faults[:_MAX_FAULTS]]
    more = len(faults) - len(told)
    return "; ".join([*told, f"and {more} more"] if more else told)
