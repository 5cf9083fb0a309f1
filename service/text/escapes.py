r"""Escapes of the sources of programs: a line break, a tab, a letter or an apostrophe, written with a backslash.

    blank_escapes(r"First line\nSecond line")       # [(10, 12)]
    blank_escapes(r"C:\new\table, or type \n here")     # []
    shown_escapes(r"It\'s a caf\u00e9")     # [(2, 4, "'"), (10, 16, "é")]
    with_escapes(r"It\'s late", (), [Piece("C'est l'heure", 0, 13)])        # C\'est l\'heure

Files of messages (`.po`, `.properties`, JSON) hold texts so. `\n`, `\r` and `\t` part what stands around them as a real
line break does, unless they belong to a path, to TeX, to a regular expression or to code, or are spoken of: alone
between spaces, quotation marks or brackets. A Latin letter, and an apostrophe within a word, are shown to a model as
what they mean, and its translation is written likewise. Every other escape is a kept span (`service/text/kept.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

import regex

from service.text.forms import Piece, exchanged
from service.text.kept import BLANK_ESCAPE, SHOWN_APOSTROPHE, SHOWN_LETTER, KeptSpan, structured_spans

_BLANKS = regex.compile(rf"(?:{BLANK_ESCAPE})++(?:[ ]*+(?:{BLANK_ESCAPE})++)*+")
# With a letter before it, what begins behind one would be no path.
_BEFORE_PATH = regex.compile(rf"{BLANK_ESCAPE}(?=[A-Za-z]:[\\/]|\\\\\w)")
_STRING = regex.compile(r"""(?<!\\)"(?:[^"\\]|\\.)*+"|“[^“”]*+”|«[^«»]*+»""")
_OPENING, _CLOSING = frozenset("([{\"'“‘«/|^"), frozenset(")]}\"'”’»/|")
_PAUSES = frozenset(",;:.!?)]}/|")
_ENDS = frozenset(".!?:…")

_SHOWN = regex.compile(rf"(?P<apostrophe>{SHOWN_APOSTROPHE})|{SHOWN_LETTER}")
_WRITTEN_APOSTROPHE = regex.compile(r"(?<=\p{L})['’](?=\p{L})")
_BEYOND_ASCII = regex.compile(r"[^\x00-\x7f]")
_HEX = regex.compile(r"[0-9A-Fa-f]+")


def blank_escapes(line: str) -> list[tuple[int, int]]:
    """`[start, end)` of the line breaks and tabs of a line that are written as escapes; several in a row are one."""
    if "\\" not in line:
        return []
    found = [match.span() for match in _BLANKS.finditer(line) if not _is_spoken_of(line, *match.span())]
    if not found:
        return []
    kept = deque(structured_spans(_BEFORE_PATH.sub(lambda match: " " * len(match[0]), line)))
    result = []
    for start, end in found:
        while kept and kept[0][1] <= start:
            kept.popleft()
        if not kept or end <= kept[0][0] or (start <= kept[0][0] and kept[0][1] <= end):
            result.append((start, end))
    return _with_quotes(line, result) if result else result


def _with_quotes(line: str, found: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The escapes with the quotation marks of the strings that they stand in, of which each part would have but one."""
    starts = [start for start, _ in found]
    quotes = []
    for match in _STRING.finditer(line):
        if bisect_left(starts, match.start()) < bisect_left(starts, match.end()):
            quotes += [(match.start(), match.start() + 1), (match.end() - 1, match.end())]
    return sorted([*found, *quotes])


def _is_spoken_of(line: str, start: int, end: int) -> bool:
    r"""Whether an escape is a word of a sentence: *use \n for a new line*."""
    before, after = line[start - 1 : start] if start else "", line[end : end + 1]
    if before in _OPENING:
        return after in _CLOSING
    if not before.isspace():
        return False
    if not after.isspace():
        return after in _PAUSES
    following = line[end : end + 80].lstrip()[:1]
    return following.islower() and line[max(start - 80, 0) : start].rstrip()[-1:] not in _ENDS


def shown_escapes(text: str) -> list[tuple[int, int, str]]:
    """`[start, end)` of the letters and apostrophes within words that are written as escapes, and what they mean."""
    if "\\" not in text:
        return []
    return [(*match.span(), _meaning(match[0])) for match in _SHOWN.finditer(text)]


def read_escapes(text: str) -> str:
    """The text with what is shown of its escapes in their places."""
    return _SHOWN.sub(lambda match: _meaning(match[0]), text) if "\\" in text else text


def with_escapes(source: str, spans: Sequence[KeptSpan], pieces: Sequence[Piece]) -> list[Piece]:
    """A translation in which letters beyond ASCII, or apostrophes, are written as escapes, if those of its source are.

    Args:
        source: A segment.
        spans: Its kept spans; the escapes in them are kept already.
        pieces: Of its translation.
    """
    found = [
        match
        for match in (_SHOWN.finditer(source) if "\\" in source else ())
        if not any(span.start < match.end() and match.start() < span.end for span in spans)
    ]
    if not found:
        return list(pieces)
    text = "".join(piece.text for piece in pieces)
    changes: dict[int, tuple[int, str]] = {}
    letter = next((match[0] for match in found if not match["apostrophe"]), None)
    if letter is not None:
        for match in _BEYOND_ASCII.finditer(text):
            if match[0] not in source:
                changes[match.start()] = match.end(), _written_as(letter, match[0])
    apostrophe = next((match[0] for match in found if match["apostrophe"]), None)
    if apostrophe is not None:
        for match in _WRITTEN_APOSTROPHE.finditer(text):
            changes[match.start()] = match.end(), apostrophe
    return exchanged(pieces, changes)


def _meaning(escape: str) -> str:
    code = _HEX.search(escape, 2)
    return escape[1:] if code is None else chr(int(code[0], 16))


def _written_as(escape: str, char: str) -> str:
    """A character in the notation of an escape, or the next one that has it."""
    code = f"{ord(char):x}"
    if any(map(str.isupper, escape[2:])):
        code = code.upper()
    if escape[1] == "x" and len(code) <= 2:
        return f"\\x{code:0>2}"
    if escape.endswith("}"):
        return f"\\u{{{code}}}"
    if escape[1] == "U" or len(code) > 4:
        return f"\\U{code:0>8}"
    return f"\\u{code:0>4}"
