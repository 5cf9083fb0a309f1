"""Spaces that are no plain ones: a translation has them where its source does.

    with_spaces("It costs 5\u00a0euros.", pieces)     # "Ça coûte 5\u00a0euros."

Models know one kind of space. A no-break or narrow space is put back beside the word that it stood at, if that is in
the translation, as numbers and names are; otherwise as far into the translation as it was in the source. Several of
them in a row are one.
"""

from __future__ import annotations

from collections.abc import Sequence

import regex

from service.text.forms import Piece, exchanged
from service.text.kept import KeptSpan

_UNUSUAL = regex.compile(r"(?<=\S)[ ]*+[\u00a0\u2002-\u200a\u202f\u3000][ \u00a0\u2002-\u200a\u202f\u3000]*+(?=\S)")
_LEFT = regex.compile(r"[\p{L}\p{M}\p{N}.,%€$£-]+\Z")
_RIGHT = regex.compile(r"[\p{L}\p{M}\p{N}%€$£-]+")
_SOFT_HYPHEN = "\xad"
_HYPHENATED = regex.compile(r"[\p{L}\p{M}\p{N}]*+(?:\xad[\p{L}\p{M}\p{N}]*+)+")


def has_unusual_spaces(text: str) -> bool:
    """Whether there is anything to put back."""
    return not text.isascii() and (_SOFT_HYPHEN in text or _UNUSUAL.search(text) is not None)


def with_spaces(source: str, spans: Sequence[KeptSpan], pieces: Sequence[Piece]) -> list[Piece]:
    """A translation with the unusual spaces of its source, as far as it has spaces.

    A soft hyphen says where its word may be broken, so only a word that stays has it again.

    Args:
        source: A segment.
        spans: Its kept spans; the spaces in them are kept already.
        pieces: Of its translation.
    """
    result = list(pieces)
    if source.isascii():
        return result
    free = "".join("x" * len(piece.text) if piece.span else piece.text for piece in pieces)
    text = "".join(piece.text for piece in pieces)
    changes: dict[int, tuple[int, str]] = {}
    taken: set[int] = set()
    for match in _HYPHENATED.finditer(source) if _SOFT_HYPHEN in source else ():
        plain = match[0].replace(_SOFT_HYPHEN, "")
        if not plain or _is_kept(match.start(), spans):
            continue
        for found in regex.finditer(rf"(?<!\w){regex.escape(plain)}(?!\w)", free):
            if found.start() not in changes and text[found.start() : found.end()] == plain:
                changes[found.start()] = found.end(), match[0]
                break
    spaces = [place for place, char in enumerate(free) if char == " " and text[place] == " "]
    for match in _UNUSUAL.finditer(source):
        places = [place for place in spaces if place not in taken]
        if _is_kept(match.start(), spans):
            continue
        if not places:
            break
        left = _LEFT.search(source, 0, match.start())
        right = _RIGHT.match(source, match.end())
        goal = match.start() * len(text) / len(source)

        def distance(place: int) -> tuple[bool, float]:
            beside = (right and text.startswith(right[0], place + 1)) or (left and text.endswith(left[0], 0, place))  # noqa: B023
            return not beside, abs(place - goal)  # noqa: B023

        place = min(places, key=distance)
        taken.add(place)
        changes[place] = place + 1, match[0]
    return exchanged(result, changes) if changes else result


def _is_kept(place: int, spans: Sequence[KeptSpan]) -> bool:
    return any(span.start <= place < span.end for span in spans)
