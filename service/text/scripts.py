"""Superscripts and subscripts of HTML: parts of a formula, or notes to a word.

`H<sub>2</sub>O`, `10<sup>6</sup>` and `x<sub>i</sub>` are one word that no translation changes, with its tags where
they are. `house<sup>1</sup>` is a word with a note, and no reader would read *house1*: the note is no part of the
sentence, but goes where its word goes. `1<sup>st</sup>` and `M<sup>me</sup>` are spelled so, and stay words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import regex

from service.text.markup_tokens import Kind, Token

_SCRIPTS = frozenset({"sup", "sub"})
_STYLES = frozenset("a abbr b em i mark small span strong u var".split()) | _SCRIPTS
"""Elements that may stand in a formula, and in a note."""

_MAX_CHARACTERS = 20

_TAIL = regex.compile(r"[\p{L}\p{M}\p{N}](?:[\p{L}\p{M}\p{N}]|[.,×·*/⁄−-](?=[\p{L}\p{N}]|\Z)){0,19}+\Z")
_HEAD = regex.compile(r"(?:[\p{L}\p{M}\p{N}]|[.,×·*/⁄−-](?=[\p{L}\p{N}])){0,20}+(?![\p{L}\p{M}\p{N}])")
_JOINED = regex.compile(r"[\p{L}\p{M}\p{N}+−±*/=().,-]++")
_NOTE = regex.compile(r"[\[(]?(?:\d{1,4}(?:[,–-]\d{1,4})*+|[A-Za-z]|[*†‡§¶\#]++|TM|SM|[®™©])[\])]?")
_ELEMENTS = regex.compile(r"(?:[A-Z][a-z]?){2,6}")
_NAMES = frozenset("cos det exp lim ln log max min mod mol pH rad sec sin sum tan".split())
_SHORT_WORDS = frozenset(
    "am an as at be by do eu go he hi if in is it me my no of oh ok on or so to tv uk un up us we".split()
)
_SPELLED = regex.compile(r"(?:M|MM|Mm|D|[Nn]|S|V|P)")


@dataclass(frozen=True, slots=True)
class Scripts:
    """What was found.

    Attributes:
        tokens: Those of the document; texts are parted where a formula begins or ends.
        formulas: For the first token of each formula, one past its last.
        notes: Likewise for notes.
    """

    tokens: list[Token]
    formulas: Mapping[int, int]
    notes: Mapping[int, int]


Place = tuple[int, int]
"""A token, and how far into its text."""


def find_scripts(tokens: list[Token], partners: Mapping[int, int]) -> Scripts:
    """Finds the formulas and notes of a document.

    Args:
        tokens: Of the document.
        partners: Start tags to end tags, and back.
    """
    formulas: list[tuple[Place, Place]] = []
    notes: list[tuple[Place, Place]] = []
    done: Place = (0, 0)
    for index, token in enumerate(tokens):
        if token.kind is not Kind.OPEN or token.name not in _SCRIPTS or (index, 0) < done:
            continue
        last = partners.get(index, index)
        inner = _inner(tokens, index, last)
        if inner is None:
            continue
        start, base = _before(tokens, partners, index)
        if start < done:
            continue
        if base and _is_formula(base, token.name, inner):
            done = _behind(tokens, partners, last + 1)
            formulas.append((start, done))
        elif _NOTE.fullmatch(inner) and not _is_spelled(base, inner) and _touches(tokens, index):
            done = (last + 1, 0)
            notes.append(((index, 0), done))
    if not formulas and not notes:
        return Scripts(tokens, {}, {})
    parted, places = _parted(tokens, (place for span in formulas for place in span))

    def indices(spans: Iterable[tuple[Place, Place]]) -> dict[int, int]:
        return {places(start): places(end) for start, end in spans}

    return Scripts(parted, indices(formulas), indices(notes))


def _inner(tokens: Sequence[Token], first: int, last: int) -> str | None:
    """The text of an element that may be a part of a formula, or a note; None if it can be neither."""
    if not first < last <= first + 8:
        return None
    inside = tokens[first + 1 : last]
    if not all(token.is_text or (token.kind in (Kind.OPEN, Kind.CLOSE) and token.name in _STYLES) for token in inside):
        return None
    text = "".join(token.text for token in inside if token.is_text)
    return text if 0 < len(text) <= _MAX_CHARACTERS and not any(map(str.isspace, text)) else None


def _before(tokens: Sequence[Token], partners: Mapping[int, int], index: int) -> tuple[Place, str]:
    """What stands before a token without a space between: where it begins, and its text."""
    start, base = (index, 0), ""
    index -= 1
    while index >= 0 and len(base) < _MAX_CHARACTERS:
        token = tokens[index]
        if token.kind is Kind.TEXT:
            match = _TAIL.search(token.text[-_MAX_CHARACTERS:])
            if match is None:
                break
            base = match[0] + base
            size = len(token.text) - len(match[0])
            start = (index, size)
            if size:
                break
        elif token.kind is Kind.REFERENCE and _JOINED.fullmatch(token.text):
            start, base = (index, 0), token.text + base
        elif token.kind is Kind.CLOSE and token.name in _STYLES:
            opened = partners.get(index, index)
            inner = _inner(tokens, opened, index)
            if inner is None or not _JOINED.fullmatch(inner):
                break
            start, base = (opened, 0), inner + base
            index = opened
        else:
            break
        index -= 1
    return start, base


def _behind(tokens: Sequence[Token], partners: Mapping[int, int], index: int) -> Place:
    """Where a formula ends that reaches at least to a token."""
    while index < len(tokens):
        token = tokens[index]
        if token.kind is Kind.TEXT:
            match = _HEAD.match(token.text)
            size = match.end() if match else 0
            if size < len(token.text):
                return index, size
        elif token.kind is Kind.OPEN and token.name in _STYLES:
            last = partners.get(index, index)
            inner = _inner(tokens, index, last)
            if inner is None or not _JOINED.fullmatch(inner):
                break
            index = last
        elif token.kind is not Kind.REFERENCE or not token.text.isalnum():
            break
        index += 1
    return index, 0


def _is_spelled(base: str, inner: str) -> bool:
    """Whether a small letter is a part of its word: `M<sup>e</sup>`, `3<sup>e</sup>`."""
    return _SPELLED.fullmatch(base) is not None or (base.isdecimal() and inner in ("a", "e", "o"))


def _is_formula(base: str, name: str, inner: str) -> bool:
    if base.isdecimal() and inner.isalpha() and name == "sup":
        return False  # 1st
    if any(map(str.isdigit, base)) or base in _NAMES:
        return True
    if name == "sub":
        return len(base) <= 2 or _ELEMENTS.fullmatch(base) is not None
    if _SPELLED.fullmatch(base) and inner.isalpha() and inner.islower():
        return False
    return len(base) <= 2 and base.lower() not in _SHORT_WORDS


def _touches(tokens: Sequence[Token], index: int) -> bool:
    """Whether there is a word or a mark right before a token."""
    before = tokens[index - 1] if index else None
    if before is not None and before.kind is Kind.CLOSE and before.name in _STYLES:
        return True
    return before is not None and before.is_text and before.text[-1:].strip() != ""


def _parted(tokens: Sequence[Token], cuts: Iterable[Place]) -> tuple[list[Token], Callable[[Place], int]]:
    """Tokens parted at places, and which token begins at a place."""
    by_token: dict[int, list[int]] = {}
    for index, size in cuts:
        if size:
            by_token.setdefault(index, []).append(size)
    result: list[Token] = []
    begins: dict[Place, int] = {}
    for index, token in enumerate(tokens):
        sizes = sorted({0, *by_token.get(index, ())})
        for left, right in zip(sizes, [*sizes[1:], len(token.raw)], strict=True):
            begins[index, left] = len(result)
            if len(sizes) == 1:
                result.append(token)
            else:
                start = token.start + left
                part = replace(token, start=start, end=token.start + right, raw=token.raw[left:right])
                result.append(replace(part, text=token.text[left:right]))
    begins[len(tokens), 0] = len(result)
    return result, begins.__getitem__
