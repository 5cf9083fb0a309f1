"""What the dialects remember between requests: in memory, and gone when the server stops."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class DialectState:
    """Used by the event loop only.

    Attributes:
        num_characters: Translated by the DeepL dialect since the start, in code points of the source.
    """

    num_characters: int = 0
