"""What OpenAPI says about errors."""

from __future__ import annotations

from typing import Any

from service.api.errors import MEDIA_TYPE

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Problem",
    "description": "RFC 9457 problem details.",
    "required": ["type", "title", "status", "detail", "request_id"],
    "properties": {
        "type": {"type": "string", "description": "urn:gossamer:problem: and the kind."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "request_id": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"field": {"type": "string"}, "given": {}, "allowed": {}},
            },
        },
    },
}

_DESCRIPTIONS = {
    400: "The body is not valid JSON.",
    404: "There is no such model, or looking inside is turned off.",
    406: "There is no such format.",
    413: "The body, the text or the list is too large; both numbers are given.",
    415: "The body is not said to be JSON.",
    422: "A field is not valid, or no model fits; what is allowed is given.",
    429: "Too many look inside at once; see `Retry-After`.",
    502: "The model gave no usable translation.",
    503: "The server is busy, loading or stopping; see `Retry-After`.",
    504: "The deadline passed; see `Retry-After`.",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that may fail with these statuses."""
    return {
        status: {"description": _DESCRIPTIONS[status], "content": {MEDIA_TYPE: {"schema": _SCHEMA}}}
        for status in statuses
    }
