"""Everything that can go wrong for a client, and the one table that says with which status.

Errors are problem details (RFC 9457) with the media type `application/problem+json`:

    {"type": "urn:gossamer:problem:invalid-request", "title": "The request is not valid", "status": 422,
     "detail": "decoding.beam_size is 99; it must be an integer from 1 to 16", "request_id": "...",
     "errors": [{"field": "decoding.beam_size", "given": 99, "allowed": "an integer from 1 to 16"}]}

ApiError
├── InvalidJson            the body is no JSON
├── UnsupportedMediaType   the body is not said to be JSON
├── InvalidField           a field's value is not allowed
├── BodyTooLarge
├── TextTooLarge
├── TooManyTexts
└── NotReady               loading, draining or dead
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from model.decoding import InvalidDecodingOptions
from service.api.schemas import known_fields
from service.engine import errors as engine_errors
from service.observability.logging import request_id
from service.translator import UnknownLanguagePair

MEDIA_TYPE = "application/problem+json"

_MAX_SHOWN_CHARACTERS = 100


class ApiError(Exception):
    """Something is wrong with the request, or with the moment; the message is for the client."""


class InvalidJson(ApiError):
    """The body cannot be read as JSON."""


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


class NotReady(ApiError):
    """No request is taken now."""


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
    InvalidJson: Kind(400, "invalid-json", "The body is not valid JSON"),
    UnsupportedMediaType: Kind(415, "unsupported-media-type", "The body must be JSON"),
    RequestValidationError: _INVALID,
    InvalidField: _INVALID,
    InvalidDecodingOptions: _INVALID,
    engine_errors.InvalidOptions: _INVALID,
    engine_errors.SequenceTooLarge: _INVALID,
    UnknownLanguagePair: Kind(422, "unknown-language-pair", "No model translates between these languages"),
    engine_errors.UnknownModel: Kind(422, "unknown-model", "There is no such model"),
    BodyTooLarge: Kind(413, "body-too-large", "The body is too large"),
    TextTooLarge: Kind(413, "text-too-large", "There is too much text in one request"),
    TooManyTexts: Kind(413, "too-many-texts", "There are too many texts in one request"),
    engine_errors.RequestTooLarge: Kind(413, "text-too-large", "There is too much text in one request"),
    engine_errors.SourceTooLong: Kind(413, "text-too-large", "There is too much text in one request"),
    engine_errors.QueueFull: Kind(503, "queue-full", "The server is busy"),
    engine_errors.EngineStopping: _UNAVAILABLE,
    engine_errors.RequestAborted: _UNAVAILABLE,
    NotReady: _UNAVAILABLE,
    engine_errors.EngineDead: Kind(503, "engine-dead", "The translation engine has failed"),
    engine_errors.DeadlineExceeded: Kind(504, "deadline-exceeded", "The translation took too long"),
    engine_errors.SequenceFailed: Kind(502, "model-failed", "The model gave no usable translation"),
    engine_errors.EngineError: Kind(503, "engine-error", "The translation engine could not do this"),
}
"""The only place where errors become statuses; a class that is not listed has the kind of its nearest base class."""

_UNEXPECTED = Kind(500, "internal-error", "Something went wrong in the server")
_UNEXPECTED_DETAIL = "an unexpected error; it has been logged under the request id"

_HTTP_TITLES = {404: ("not-found", "There is no such page"), 405: ("method-not-allowed", "The method is not allowed")}

_RETRY_AFTER_SECONDS = 1


def problem_of(error: Exception) -> dict[str, Any]:
    """The problem details of an error; `status` among them.

    Errors without an entry in the table get a 500 that says nothing about the inside.
    """
    if isinstance(error, HTTPException):
        slug, title = _HTTP_TITLES.get(error.status_code, ("http-error", str(error.detail)))
        return _problem(Kind(error.status_code, slug, title), str(error.detail), [])
    for base in type(error).__mro__:
        if base in STATUS_TABLE:
            faults = _faults(error)
            detail = str(error) if not isinstance(error, RequestValidationError) else _sentence(faults)
            return _problem(STATUS_TABLE[base], detail, faults)
    return _problem(_UNEXPECTED, _UNEXPECTED_DETAIL, [])


def problem_response(error: Exception) -> Response:
    """The answer to an error."""
    problem = problem_of(error)
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    if problem["status"] == 503 and not isinstance(error, engine_errors.EngineDead):
        seconds = getattr(error, "retry_after_seconds", _RETRY_AFTER_SECONDS)
        headers["Retry-After"] = str(max(1, math.ceil(seconds)))
    if isinstance(error, BodyTooLarge):
        headers["Connection"] = "close"  # the rest of the body is not read
    return Response(orjson.dumps(problem), problem["status"], headers, MEDIA_TYPE)


async def answer_error(_request: Request, error: Exception) -> Response:
    """The exception handler for every class of the table."""
    return problem_response(error)


def shown(value: object) -> str:
    """A value as it may stand in a message: short, and without its insides."""
    return repr(_given(value)) if isinstance(value, str) else str(_given(value))


def _problem(kind: Kind, detail: str, faults: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    problem: dict[str, Any] = {
        "type": f"urn:gossamer:problem:{kind.slug}",
        "title": kind.title,
        "status": kind.status,
        "detail": detail,
        "request_id": request_id.get(),
    }
    return problem | {"errors": list(faults)} if faults else problem


def _given(value: object) -> object:
    """A value for the field `given`: JSON, and short."""
    if isinstance(value, str):
        return value if len(value) <= _MAX_SHOWN_CHARACTERS else value[:_MAX_SHOWN_CHARACTERS] + "…"
    if isinstance(value, list | tuple):
        return f"a list of {len(value)}"
    if isinstance(value, dict):
        return f"an object with {len(value)} field{'' if len(value) == 1 else 's'}"
    return value if value is None or isinstance(value, bool | int | float) else type(value).__name__


def _faults(error: Exception) -> list[dict[str, Any]]:
    if isinstance(error, RequestValidationError):
        return [_validation_fault(details) for details in error.errors()]
    if isinstance(error, InvalidField):
        return [_fault(error.field, error.given, error.allowed)]
    if isinstance(error, InvalidDecodingOptions | engine_errors.InvalidOptions):
        return [_fault(f"decoding.{error.field}", error.value, error.allowed)]
    if isinstance(error, UnknownLanguagePair):
        return [_fault(error.field, error.given, list(error.available))]
    if isinstance(error, engine_errors.UnknownModel):
        return [_fault("model", error.model, list(error.available))]
    if isinstance(error, TextTooLarge):
        return [_fault("text", error.num_bytes, f"at most {error.max_bytes} bytes in UTF-8")]
    if isinstance(error, TooManyTexts):
        return [_fault("text", error.num_texts, f"at most {error.max_texts} items")]
    if isinstance(error, engine_errors.RequestTooLarge):
        return [_fault("text", error.num_tokens, f"at most {error.max_tokens} tokens")]
    if isinstance(error, BodyTooLarge):
        return [_fault("body", error.num_bytes, f"at most {error.max_bytes} bytes")]
    return []


def _fault(field: str, given: object, allowed: object) -> dict[str, Any]:
    return {"field": field, "given": _given(given), "allowed": allowed}


_EXPECTED = {
    "missing": "required",
    "string_type": "a string",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "list_type": "a list",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "dict_type": "an object",
}


def _validation_fault(details: Mapping[str, Any]) -> dict[str, Any]:
    """A fault that pydantic found, in our words."""
    path = [part for part in details["loc"] if part != "body"]
    context = details.get("ctx") or {}
    kind, given = details["type"], details.get("input")
    field = _path(path) or "body"
    if kind == "field":  # raised by a validator of schemas.py
        return _fault(field + context.get("at", ""), context.get("given"), context["allowed"])
    if kind == "missing":
        return {"field": field, "given": None, "allowed": "required"}
    if kind == "extra_forbidden":
        known = known_fields(path[:-1])
        nearest = difflib.get_close_matches(str(path[-1]), known, n=1)
        hint = f" (did you mean {nearest[0]}?)" if nearest else ""
        return _fault(field, given, f"only these fields{hint}: {', '.join(known)}")
    if kind == "literal_error":
        return _fault(field, given, context["expected"])
    return _fault(field, given, _EXPECTED.get(kind, details["msg"]))


def _path(parts: Sequence[object]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts).removeprefix(".")


def _sentence(faults: Sequence[Mapping[str, Any]]) -> str:
    return "; ".join(
        f"{fault['field']} is missing"
        if fault["allowed"] == "required"
        else f"{fault['field']} is {shown(fault['given'])}; allowed is {fault['allowed']}"
        for fault in faults
    )
