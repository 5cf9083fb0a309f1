"""How long a request may take."""

from __future__ import annotations

import re

from starlette.datastructures import Headers

from service.api.errors import InvalidField, current_timeout
from service.settings import Settings

TIMEOUT_HEADER = "X-Request-Timeout"
"""Seconds that the client will wait, for clients that cannot change the body."""

_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?")


def timeout_seconds(settings: Settings, headers: Headers, deadline_seconds: float | None = None) -> float:
    """How long a request may take: the shortest of what its body, its header and the settings say; noted for errors.

    Raises:
        InvalidField: One of the two is not above 0, or above what the settings allow.
    """
    longest = settings.request_timeout_seconds
    allowed = f"a number above 0 and at most {longest:g}"
    if deadline_seconds is not None and not 0 < deadline_seconds <= longest:
        raise InvalidField("deadline_seconds", deadline_seconds, allowed)
    header = headers.get(TIMEOUT_HEADER)
    if header is not None and (not _NUMBER.fullmatch(header.strip()) or not 0 < float(header) <= longest):
        raise InvalidField(TIMEOUT_HEADER, header, allowed)
    given = [longest if deadline_seconds is None else deadline_seconds, *([] if header is None else [float(header)])]
    current_timeout.set((min(given), longest))
    return min(given)
