"""Texts that shout: all in capitals, which a model is shown in small letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import regex

if TYPE_CHECKING:
    from service.text.kept import KeptSpan

_SMALL_LETTER = regex.compile(r"\p{Ll}")
_WORD = regex.compile(r"\p{L}[\p{L}\p{M}'’-]*")


def in_capitals(text: str, spans: Sequence[KeptSpan] = ()) -> bool:
    """Whether a text shouts: all its letters are capitals, and it is more than an acronym."""
    visible = visible_text(text, spans)
    if _SMALL_LETTER.search(visible):  # nearly always, and soon
        return False
    words = _WORD.findall(visible)
    if not words or any(char.islower() for word in words for char in word):
        return False
    long_words = [word for word in words if sum(char.isupper() for char in word) > 1]
    return len(long_words) > 1 or any(len(word) > 4 for word in long_words)


def visible_text(text: str, hidden: Sequence[KeptSpan]) -> str:
    """What is between spans, which become a space each."""
    parts, done = [], 0
    for span in hidden:
        parts.append(text[done : span.start])
        done = span.end
    return " ".join([*parts, text[done:]])
