"""What can be wrong with a wish to look inside; the messages are for the client.

InspectionError
├── InvalidInspection       a field's value that the model or the other fields do not allow
├── InspectionDisabled      looking inside is turned off
└── TooLarge
    ├── TooManyBytes        the answer would be larger than the server sends
    └── TooManyTokens       more tokens than the server replays
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from service.engine.errors import EngineError


class InspectionError(EngineError):
    """A wish to look inside that is not met."""


class InvalidInspection(InspectionError):
    """A field has a value that is not allowed.

    Attributes:
        field: Its name.
        given: Its value.
        allowed: What would be accepted, in words.
    """

    def __init__(self, field: str, given: object, allowed: str) -> None:
        super().__init__(f"{field} is {given!r}; allowed is {allowed}")
        self.field = field
        self.given = given
        self.allowed = allowed


class InspectionDisabled(InspectionError):
    """The operator has turned looking inside off."""

    def __init__(self) -> None:
        super().__init__("looking inside is turned off on this server (GOSSAMER_INSPECTION)")


@dataclass(frozen=True, slots=True)
class Nearest:
    """A request like the one that was refused, which fits.

    Attributes:
        says: How it differs, in words.
        accept: The media type to ask for.
        changes: Fields to set.
        needed_bytes: What its answer takes.
    """

    says: str
    accept: str
    changes: Mapping[str, Any]
    needed_bytes: int


class TooLarge(InspectionError):
    """The answer, or the work for it, would be too large.

    Attributes:
        needed: How much there would be.
        limit: The most there may be.
        nearest: A request that fits, if there is one.
    """

    unit = "bytes"

    def __init__(self, what: str, needed: int, limit: int, nearest: Nearest | None) -> None:
        super().__init__(f"{what} {needed} {self.unit}; at most {limit} are allowed")
        self.needed = needed
        self.limit = limit
        self.nearest = nearest


class TooManyBytes(TooLarge):
    """The answer would have too many bytes."""


class TooManyTokens(TooLarge):
    """There are more tokens than are replayed at once."""

    unit = "tokens"
