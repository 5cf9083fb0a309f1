"""Spaces that are no plain ones: a translation has them where its source does.

    with_spaces("It costs 5\u00a0euros.", (), pieces)     # "Ça coûte 5\u00a0euros."

Models know one kind of space. A no-break space is put back beside the word, number or mark that it stood at, if that is
in the translation, as numbers and names are; between other words it is a plain one, for what it held together is not
there. Wider spaces, and several in a row, are layout: beside their word as well, or else as far into the translation as
they were in the source.
"""

from __future__ import annotations

from collections.abc import Sequence

import regex

from service.text.forms import Piece, exchanged
from service.text.kept import KeptSpan

_UNUSUAL = regex.compile(r"(?<=\S)[ ]*+[\u00a0\u2002-\u200a\u202f\u3000][ \u00a0\u2002-\u200a\u202f\u3000]*+(?=\S)")
_NO_BREAK = frozenset("\u00a0\u202f\u2007")
_LEFT = regex.compile(r"(?:[\p{L}\p{M}\p{N}.,%€$£'’-]|\p{Pi})+\Z")
_RIGHT = regex.compile(r"[\p{L}\p{M}\p{N}%€$£'’-]+|[!?;:]+|\p{Pf}")
_LONGEST_WORD = 40
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
    rest = [match for match in _UNUSUAL.finditer(source) if not _is_kept(match.start(), spans)]
    goals = {match.start(): match.start() * len(text) / len(source) for match in rest}
    for is_beside in (True, False):
        for match in list(rest):
            places = [place for place in spaces if place not in taken]
            if is_beside:
                places = _beside(source, match, text, places)
            elif match[0] in _NO_BREAK:
                continue
            if places:
                goal = goals[match.start()]
                place = min(places, key=lambda place: abs(place - goal))
                taken.add(place)
                changes[place] = place + 1, match[0]
                rest.remove(match)
    return exchanged(result, changes) if changes else result


def _is_kept(place: int, spans: Sequence[KeptSpan]) -> bool:
    return any(span.start <= place < span.end for span in spans)


def _beside(source: str, space: regex.Match[str], text: str, places: Sequence[int]) -> list[int]:
    """Those of the spaces of a translation that stand beside the same word as a space of its source, at best two."""
    left = _LEFT.search(source, max(space.start() - _LONGEST_WORD, 0), space.start())
    right = _RIGHT.match(source, space.end())
    before, after = (match[0].lower() if match else "" for match in (left, right))
    text = text.lower() if len(text.lower()) == len(text) else text

    def num_beside(place: int) -> int:
        start, end = place - len(before), place + 1 + len(after)
        has_before = before and text.endswith(before, 0, place) and not text[max(start - 1, 0) : start].isalnum()
        has_after = after and text.startswith(after, place + 1) and not text[end : end + 1].isalnum()
        return bool(has_before) + bool(has_after)

    votes = {place: num_beside(place) for place in places}
    most = max(votes.values(), default=0)
    return [place for place in places if votes[place] == most > 0]
