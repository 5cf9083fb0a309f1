"""Spaces that are no plain ones: a translation has them where its source does.

    with_spaces("It costs 5\u00a0euros.", pieces)     # "Ça coûte 5\u00a0euros."

Models know one kind of space. A no-break or narrow space is put back beside the word that it stood at, if that is in
the translation, as numbers and names are; otherwise as far into the translation as it was in the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import regex

from service.text.forms import Piece
from service.text.kept import KeptSpan

_UNUSUAL = regex.compile(r"(?<=\S)[\u00a0\u2007\u2009\u202f](?=\S)")
_LEFT = regex.compile(r"[\p{L}\p{M}\p{N}.,%€$£-]+\Z")
_RIGHT = regex.compile(r"[\p{L}\p{M}\p{N}%€$£-]+")


def has_unusual_spaces(text: str) -> bool:
    """Whether there is anything to put back."""
    return not text.isascii() and _UNUSUAL.search(text) is not None


def with_spaces(source: str, spans: Sequence[KeptSpan], pieces: Sequence[Piece]) -> list[Piece]:
    """A translation with the unusual spaces of its source, as far as it has spaces.

    Args:
        source: A segment.
        spans: Its kept spans; the spaces in them are kept already.
        pieces: Of its translation; no text gets longer or shorter.
    """
    if source.isascii():
        return list(pieces)
    found = [match for match in _UNUSUAL.finditer(source) if not any(s.start <= match.start() < s.end for s in spans)]
    if not found:
        return list(pieces)
    text = "".join(piece.text for piece in pieces)
    free = "".join("x" * len(piece.text) if piece.span else piece.text for piece in pieces)
    chars = list(text)
    for match in found:
        places = [place for place, char in enumerate(free) if char == " " and chars[place] == " "]
        if not places:
            break
        left = _LEFT.search(source, 0, match.start())
        right = _RIGHT.match(source, match.end())
        goal = match.start() * len(text) / len(source)

        def distance(place: int) -> tuple[bool, float]:
            beside = (right and text.startswith(right[0], place + 1)) or (left and text.endswith(left[0], 0, place))  # noqa: B023
            return not beside, abs(place - goal)  # noqa: B023

        chars[min(places, key=distance)] = match[0]
    result, done = [], 0
    for piece in pieces:
        result.append(replace(piece, text="".join(chars[done : done + len(piece.text)])))
        done += len(piece.text)
    return result
