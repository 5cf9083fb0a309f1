"""Spellings that small models have hardly seen, shown to them as they know them.

    changes("I cant swim on the 4th of July", "en")    # ((3, 3, "'"), ...)

Only what a model is shown changes, each change with its place, so that every token still knows where in the caller's
text it comes from. Nothing here changes what a text says.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

import regex

from service.text.capitals import visible_text
from service.text.escapes import shown_escapes
from service.text.forms import QUOTE, Piece, Spoken
from service.text.kept import KeptSpan
from service.text.languages import base_language
from service.text.quotes import doubled, pairs

_NO_SPELLINGS: Mapping[str, str] = MappingProxyType({})

Change = tuple[int, int, str]
"""`[start, end)` of the text, and what is shown instead; an empty stretch is an insertion."""

# Each with the place of its apostrophe, from its end. Left out is what is a word too: its, were, ill, well, shed, hell,
# id, wed, cant as a noun; *wont* and *cant* are rare as such, and only behind *the*, *a* or *is* left alone.
_CONTRACTIONS: dict[str, int] = {
    **dict.fromkeys(
        "cant dont wont isnt arent wasnt werent didnt doesnt hasnt havent hadnt couldnt shouldnt wouldnt mustnt aint "
        "neednt shant".split(),
        1,
    ),
    **dict.fromkeys("im".split(), 1),
    **dict.fromkeys("ive youve weve theyve couldve shouldve wouldve mustve youre theyre youll theyll".split(), 2),
    **dict.fromkeys("thats whats theres heres wheres hes shes lets whos".split(), 1),
    **dict.fromkeys("youd theyd".split(), 1),
}
_AMBIGUOUS = regex.compile(r"(?i:\b(?:the|a|an|his|her|their|our|my|of|are|is|was|were|as)\s)\Z")
_LETS = regex.compile(
    r"(?i)\s(?:go|see|do|be|have|get|eat|play|start|take|talk|try|not|make|move|say|meet|hope|just)\b"
)
_CONTRACTION = regex.compile(
    r"(?<![\p{L}\p{N}'’_@#./-])(?:"
    + "|".join(sorted(_CONTRACTIONS, key=len, reverse=True))
    + r")(?![\p{L}\p{N}'’_@./-]*[\p{L}\p{N}_@])",
    regex.IGNORECASE,
)
_ASCII_WORD = re.compile(r"[a-z]+")
_PLAIN_WORD = re.compile(r"(?<![\w@#_/.-])[A-Za-z]{3,}(?![\w@_/-]|\.\w)")
WITHOUT = regex.compile(r"(?<!\S)w/o(?=\s)")
_POSSESSIVE = regex.compile(r"(?<=\p{L}[sS])['’](?=\s\p{L})")
"""Behind a plural: *the students' books*."""
_GLUED_PAUSE = regex.compile(r"(?<=(?<![^\s(\"'“‘,;])\p{L}[\p{L}\p{M}'’-]+[,;])(?=\p{L}{2})")
"""A comma that somebody forgot the space behind: *Hello,how are you?*"""
_TWO_TITLES = regex.compile(r"(?<!\w)Mr\.?+(?= (?:and|&) (?:Mrs|Ms|Miss)\b)")
_DIGIT = re.compile(r"\d")
_IN_BRACKETS = regex.compile(r"(?<![\w)\]])([(\[])(?=\p{L}\p{L}|[aAI]\s)[^()\[\]\n]*?(?<!\s)([)\]])(?![\w(\[])")
_WITHIN = regex.compile(r"(?<=[(\[])\s+|\s+(?=[)\]])")
# A sign between words that has a name: which of the words below. Parted from them by spaces or, but for +, not at all.
_NAMED_SIGN = regex.compile(
    r"(?<=[\p{L}\p{M}\p{N}][)\]\"'”’]?(\s?))(?:(&(?:amp;)?+)|(?<=\s)(\+)|(?<=\p{L}{2}\s?)(/))\1"
    r"(?=[(\[\"'“‘]?\p{L}{2}|(?<=&(?:amp;)?\s)[\p{L}\p{N}])"
)
_ESCAPED_QUOTES = frozenset({'\\"', "\\'", r"\u201c", r"\u201d"})
_QUOTATION_MARK = regex.compile(r"[\"“”„«»]")
_NAMES_OF_SIGNS = ("and", "and", "or")
_CONJUNCTIONS: dict[str, dict[str, str]] = {
    "en": {"and": "and", "or": "or"},
    "fr": {"and": "et", "or": "ou"},
}
_MONTHS = (
    "January|February|March|April|May|June|July|August|September|October|November|December"
    "|Jan\\.?|Feb\\.?|Mar\\.?|Apr\\.?|Aug\\.?|Sept?\\.?|Oct\\.?|Nov\\.?|Dec\\.?"
)
_DAY = regex.compile(rf"(?<!\d[.,]|\d)\d{{1,2}}(st|nd|rd|th)( of)? (?:{_MONTHS})(?!\p{{L}})")
_DAY_AFTER = regex.compile(rf"(?<!\p{{L}})(?:{_MONTHS}) \d{{1,2}}(st|nd|rd|th)(?!\w)")


def changes(
    text: str, spans: Sequence[KeptSpan], language: str, spellings: Mapping[str, str] = _NO_SPELLINGS
) -> tuple[Change, ...]:
    """What to show differently of a text, in order, outside its kept spans.

    Args:
        text: A segment.
        spans: Its kept spans.
        language: Code of its language.
        spellings: Words that the model's training data hardly has so, and how it has them, in small letters
            (`model.lexicon.Lexicon.spellings`).
    """
    is_english = base_language(language) == "en"
    found = [
        change
        for change in itertools.chain(
            _brackets(text),
            _quotes(text),
            _pauses(text),
            shown_escapes(text),
            _english(text) if is_english else (),
            _spellings(text, spellings) if spellings else (),
        )
        if not any(span.start < change[1] and change[0] < span.end for span in spans)
    ]
    return tuple(sorted(found))


def _spellings(text: str, spellings: Mapping[str, str]) -> Iterator[Change]:
    for match in _PLAIN_WORD.finditer(text):
        if other := spellings.get(match[0].lower()):
            if match[0][0].isupper():
                other = other.upper() if match[0].isupper() else other[0].upper() + other[1:]
            yield match.start(), match.end(), other


def spoken(text: str, spans: Sequence[KeptSpan], source_language: str, target_language: str) -> tuple[Spoken, ...]:
    r"""The signs of a text that both languages have a word for, as in *salt & pepper*, and `\"`; in order.

    Args:
        text: A segment.
        spans: Its kept spans, of which the signs are some.
        source_language: Code of its language.
        target_language: Code of the translation's.
    """
    escaped = [span for span in spans if span.text in _ESCAPED_QUOTES]
    quotes = [Spoken(span, QUOTE, QUOTE) for span in escaped] if escaped and _come_in_pairs(text, escaped) else []
    shown = _CONJUNCTIONS.get(base_language(source_language))
    written = _CONJUNCTIONS.get(base_language(target_language))
    if shown is None or written is None:
        return tuple(quotes)
    found = list(quotes)
    for span in spans:
        match = _NAMED_SIGN.match(text, span.start) if span.text in ("&", "&amp;", "+", "/") else None
        if match is not None:
            name = next(name for name, group in zip(_NAMES_OF_SIGNS, match.groups()[1:], strict=True) if group)
            found.append(Spoken(span, shown[name], written[name]))
    return tuple(sorted(found, key=lambda sign: sign.span.start))


def _come_in_pairs(text: str, escaped: Sequence[KeptSpan]) -> bool:
    """Whether escaped quotation marks open and close by turns, and a text has no others."""
    if len(escaped) % 2 or _QUOTATION_MARK.search(visible_text(text, escaped)):
        return False
    sides = [(text[: span.start][-1:], text[span.end :][:1]) for span in escaped]
    return all(
        (before == "" or not before.isalnum()) and after.strip() != "" if index % 2 == 0 else before.strip() != ""
        for index, (before, after) in enumerate(sides)
    )


def close_brackets(pieces: Sequence[Piece]) -> list[Piece]:
    """A translation without the spaces within brackets that `changes` has the model read, and so write."""
    closed: list[Piece] = []
    for piece in pieces:
        done, is_literal = 0, len(piece.text) == piece.end - piece.start
        for match in _WITHIN.finditer(piece.text) if piece.span is None and is_literal else ():
            closed.append(Piece(piece.text[done : match.start()], piece.start + done, piece.start + match.start()))
            done = match.end()
        closed.append(replace(piece, text=piece.text[done:], start=piece.start + done) if done else piece)
    return [piece for piece in closed if piece.text]


def has_brackets(text: str) -> bool:
    """Whether `changes` parts a bracket from a word of the text."""
    return ("(" in text or "[" in text) and _IN_BRACKETS.search(text) is not None


def _brackets(text: str) -> Iterator[Change]:
    """A word behind a bracket is another piece than one behind a space, and one that is seldom seen."""
    for match in _IN_BRACKETS.finditer(text) if "(" in text or "[" in text else ():
        yield match.end(1), match.end(1), " "
        yield match.start(2), match.start(2), " "


def _quotes(text: str) -> Iterator[Change]:
    """Single quotation marks, which a model takes for apostrophes, as double ones."""
    shown = doubled(text)
    for place in range(len(text)) if shown != text else ():
        if shown[place] != text[place]:
            yield place, place + 1, shown[place]


def _pauses(text: str) -> Iterator[Change]:
    """A comma glued to the next word is another piece than one behind a space, and one that is seldom seen."""
    for match in _GLUED_PAUSE.finditer(text) if "," in text or ";" in text else ():
        yield match.start(), match.start(), " "


def _may_contract(text: str) -> bool:
    """Whether one of the contractions may be in a text: of ASCII it is soon said."""
    return not text.isascii() or not _CONTRACTIONS.keys().isdisjoint(_ASCII_WORD.findall(text.lower()))


def _english(text: str) -> Iterator[Change]:
    for match in _CONTRACTION.finditer(text) if _may_contract(text) else ():
        word = match[0].lower()
        if word in ("wont", "cant") and _AMBIGUOUS.search(text, 0, match.start()):
            continue
        if word == "lets" and (match.start() > 0 and text[: match.start()].rstrip()[-1:] not in ".!?,;:\"'“‘"):
            continue
        if word == "lets" and not _LETS.match(text, match.end()):
            continue
        if word == "im" and match[0] == "IM":
            continue  # a message
        place = match.end() - _CONTRACTIONS[word]
        yield place, place, "'"
    if "Mr" in text:
        # A title without its name is lost; written out it is a word.
        for match in _TWO_TITLES.finditer(text):
            yield *match.span(), "Mister"
    if "w/o" in text:
        for match in WITHOUT.finditer(text):
            yield *match.span(), "without"
    if "' " in text or "’ " in text:
        # With an s as behind other words: without it a model overlooks what is owned.
        quoted = {place for pair in pairs(text) for place in pair}
        for match in _POSSESSIVE.finditer(text):
            if match.start() not in quoted:
                yield match.end(), match.end(), "s"
    if not _DIGIT.search(text):
        return
    for match in _DAY.finditer(text):
        yield match.start(1), match.end(2) if match[2] else match.end(1), ""
    for match in _DAY_AFTER.finditer(text):
        yield *match.span(1), ""
