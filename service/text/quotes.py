"""Quotation marks: what stands in them stays in them, with its own marks at the end.

    misplaced('"Wait," she said', "« Nous l'avons dit »")       # True: she said it, and was not quoted
    with_quotes('"No..." he said', [Piece('"Non." dit-il', 0, 13)], "fr")      # '"Non..." dit-il'

Single quotes are shown to a model as double ones, which it has seen often; where it writes straight ones, those of
the source are put back. Guillemets are French, and stay where a model writes them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import regex

from service.text.forms import Piece, exchanged
from service.text.kept import KeptSpan
from service.text.languages import base_language

Pair = tuple[int, int]
"""The places of an opening and of a closing quotation mark."""

_DOUBLE = re.compile(r"[\"“”„‟«»]")
_OPENING = re.compile(r"(?<![^\W_])['‘]")
"""What the first mark of `_SINGLE` is at least: one that is behind no letter."""
_SINGLE = regex.compile(
    r"""(?<![\p{L}\p{N}'’)\]])['‘](?!(?:tis|twas|em|cause|til|bout|round|n|cos|ere|neath)\b)(?=[\p{L}\p{N}\p{Sc}({\[#@…])
        (?:[^'‘’\n"“”«»]|(?<=[\p{L}\p{M}\p{N}])['’](?=[\p{L}\p{N}])){1,200}?
        (?<=[\p{L}\p{M}\p{N}.,;:!?…)\]}%])['’](?![\p{L}\p{N}'’])""",
    regex.VERBOSE,
)
_WORD = regex.compile(r"[\p{L}\p{N}\p{Co}]")
_MARKS = regex.compile(r"[ \u00a0\u202f]*+(?:[.!?…‽]++|,)?[ \u00a0\u202f]*+\Z")
_SAYS_MORE = regex.compile(r"(?:\.{2,}|[!?…‽])[.!?…‽]*\Z")
"""Marks that are more than the end of a sentence."""
_BRACKET = re.compile(r"[(（\[]")
_BRACKETS = regex.compile(r"[(（][\s.,;:!?…]*[)）]|\[[\s.,;:!?…]*\]")


def pairs(text: str) -> list[Pair]:
    """The quotation marks of a text, by twos; none if they do not come so."""
    double = [match.start() for match in _DOUBLE.finditer(text)]
    if len(double) % 2:
        return []
    found = list(zip(double[::2], double[1::2], strict=True))
    single = _single(text)
    return sorted(found + single) if single else found


def _single(text: str) -> list[Pair]:
    if not _OPENING.search(text):  # an apostrophe is no quotation mark
        return []
    return [(match.start(), match.end() - 1) for match in _SINGLE.finditer(text)]


def doubled(text: str) -> str:
    """The text with double quotation marks in the place of single ones; as long as before."""
    single = _single(text)
    if not single:
        return text
    chars = list(text)
    for place in (place for pair in single for place in pair):
        chars[place] = '"'
    return "".join(chars)


def misplaced(source: str, target: str) -> bool:
    """Whether quotation marks or brackets hold nothing, or everything, or do not end, unlike those of the source."""
    if _num_empty(target) > _num_empty(source) or _num_double(target) % 2 > _num_double(source) % 2:
        return True
    theirs = pairs(source)
    if not theirs:
        return False
    ours = pairs(target)
    return len(ours) == len(theirs) and _says_more(source, theirs) and not _says_more(target, ours)


def _num_empty(text: str) -> int:
    empty = sum(not _WORD.search(text, left + 1, right) for left, right in pairs(text))
    return empty + (sum(1 for _ in _BRACKETS.finditer(text)) if _BRACKET.search(text) else 0)


def _num_double(text: str) -> int:
    return sum(1 for _ in _DOUBLE.finditer(text))


def _says_more(text: str, quoted: Sequence[Pair]) -> bool:
    """Whether there are words outside of the quotation marks."""
    ends = [0, *(right + 1 for _, right in quoted)]
    starts = [*(left for left, _ in quoted), len(text)]
    return any(_WORD.search(text, end, start) for end, start in zip(ends, starts, strict=True) if end < start)


def signs(text: str) -> list[KeptSpan]:
    """The quotation marks, each closing one with the marks before it, to part a text around them."""
    found = []
    for left, right in pairs(text):
        marks = _MARKS.search(text, left + 1, right)
        start = right if marks is None else marks.start()
        found += [
            KeptSpan(left, left + 1, text[left], "symbol"),
            KeptSpan(start, right + 1, text[start : right + 1], "symbol"),
        ]
    return sorted(found, key=lambda span: span.start)


def with_quotes(source: str, pieces: Sequence[Piece], language: str) -> list[Piece]:
    """A translation with its quotation marks as in its source.

    Args:
        source: A segment.
        pieces: Of its translation.
        language: Of the translation.
    """
    theirs = pairs(source)
    if not theirs:
        return list(pieces)
    text = "".join(piece.text for piece in pieces)
    ours = pairs(text)
    if len(ours) != len(theirs):
        return list(pieces)
    is_french = base_language(language) == "fr"
    changes: dict[int, tuple[int, str]] = {}
    for (their_left, their_right), (left, right) in zip(theirs, ours, strict=True):
        is_straight = text[left] == text[right] == '"' and (is_french or source[their_left] not in "«»")
        opening, closing = (source[their_left], source[their_right]) if is_straight else (text[left], text[right])
        if opening != text[left]:
            changes[left] = left + 1, opening
        elif is_french and opening == "«" and text[left + 1 : left + 2].isalnum():
            changes[left] = left + 1, "« "
        marks = _MARKS.search(source, their_left + 1, their_right)
        written = _MARKS.search(text, left + 1, right)
        wanted = "" if marks is None else marks[0].lstrip()
        start = right
        if _SAYS_MORE.match(wanted) and written is not None and written[0].strip() != wanted:
            space = " " if is_french and wanted[0] in "!?‽" else ""
            behind = regex.search(r"\s*\Z", text, pos=left + 1, endpos=right)
            closing = space + wanted + (behind[0] if behind else "") + closing
            start = written.start()
        if closing != text[start : right + 1]:
            changes[start] = right + 1, closing
    return exchanged(pieces, changes) if changes else list(pieces)
