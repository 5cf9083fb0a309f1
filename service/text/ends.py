"""How a translation begins and ends: with the marks and the capital of its source.

    shown = ending("Loading...")             # a model is shown "Loading."
    finished("Loading...", [Piece("chargement.", 0, 11)], "fr")    # "Chargement..."

Small models write three dots as five, or none, two exclamation marks as one, and forget the capital of a sentence that
begins with a day of the week. None of this needs a model: what stands at the ends of the source stands there again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import regex

from service.text.forms import Piece
from service.text.kept import KeptSpan
from service.text.languages import base_language
from service.text.quotes import with_quotes

# Dashes and bullets before a space, dots that something was before.
_BEGINNING = regex.compile(r"(?:[-–—―•·*]++\s++|(?:\.{2,}+|…++)\s*+)++(?=\S)")
_WRITTEN_BEGINNING = regex.compile(r"(?:[-–—―•·*]++\s++|[.…]{2,}+\s*+|…\s*+|[.,]\s++)++")

_CLOSERS = r"[\"'“”’»)\]\s]*+"
_ENDING = regex.compile(rf"\s*+((?:[.!?…:;,‽]|(?<=\s)[—–-]+\Z|[—–]+\Z)*)({_CLOSERS})\Z")
_LAST_MARK = regex.compile(rf"([ \u00a0\u202f]*+)([.!?…:;,‽—–]*)({_CLOSERS})\Z")
_MARKS = frozenset(".!?…:;,‽—–-\"'“”’»)]")
"""All that the two may match, but for white space."""
_UNSURE = regex.compile(r"[\s.!?…:;,‽—–\"'“”’»)\]]++\Z")
_MARKS_OF_SENTENCES = frozenset(".!?…:;,‽—–-") | {""}
_ADDED_MARK = regex.compile(r"[.!?…‽]+|[,;:]")
# A full stop that is a part of its word: a.m., U.S., etc., J.
_ABBREVIATION = regex.compile(
    r"(?:\p{L}\.[\p{L}-]{0,3}|\betc|\b\p{L}|\b(?:Mr|Mrs|Dr|Jr|Sr|St|vs|Inc|Ltd|Co|Corp|apr|env|p|No))\Z"
)
_INITIALS = regex.compile(r"\p{L}\.[\p{L}-]{0,3}\Z")
_ABBREVIATED_MARKS = regex.compile(r"\.(?:[^.]++|\.{3})")

ENGLISH_ORDINAL = regex.compile(r"(?:st|nd|rd|th)(?!\w)")
"""What stands behind a number that counts: `21st`."""
ORDINAL = regex.compile(r"(?:st|nde?|rd|th|er|re|ère|e|ème|ième)(?!\w)")
"""The same in English and in French."""
_OPENERS = r"[\"'“”‘’«»(\[¿¡\s]*+"
_FIRST_LETTER = regex.compile(rf"({_OPENERS})(\p{{L}})([\p{{L}}\p{{M}}]*)")
_UNCASED_OR_NOUNS = frozenset({"de", "lb"})
"""Languages in which a word in the middle of a sentence may well have a capital."""

_OTHER_SENTENCE_MARKS = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Arabic}\p{Devanagari}\p{Armenian}\p{Khmer}]"
)


_FIRST_OF_OTHERS = "\u0530"
"""No letter of these scripts comes before it."""


@dataclass(frozen=True, slots=True)
class Ends:
    """What stands at the ends of a segment.

    Attributes:
        beginning: Marks before its first word, with the space behind them.
        end: Where its last marks begin.
        marks: Those, without quotation marks and brackets.
        shown: What a model is shown instead of them.
    """

    beginning: str
    end: int
    marks: str
    shown: str


def ends(text: str, spans: Sequence[KeptSpan] = ()) -> Ends:
    """The marks at the ends of a segment that are in none of its kept spans."""
    first = _BEGINNING.match(text)
    beginning = first[0] if first and not any(span.start < first.end() for span in spans) else ""
    last = _ENDING.search(text, _last_marks(text, len(beginning)))
    start, stop = last.span(1) if last else (len(text), len(text))
    # What is kept may end in marks, as in *5 p.m....*, and so may a word; brackets behind them are kept, too.
    start = max([start, *(span.end for span in spans if span.start < stop)])
    marks = text[start:stop]
    if _ABBREVIATED_MARKS.fullmatch(marks) and _ABBREVIATION.search(text[:start]):
        start, marks = start + 1, marks[1:]
    if not marks:
        return Ends(beginning, len(text), "", "")
    return Ends(beginning, start, marks, _plain(marks))


def _last_marks(text: str, start: int = 0) -> int:
    """Where the white space and marks begin that a text ends with: what is before is not searched."""
    place = len(text)
    while place > start and (text[place - 1] in _MARKS or text[place - 1].isspace()):
        place -= 1
    return place


def _plain(marks: str) -> str:
    """What a model has seen often: one mark."""
    if len(marks) == 1 and marks != "…":
        return marks if marks not in "—–-" else ""
    return "?" if "?" in marks else "!" if "!" in marks else "." if set(marks) & set(".…") else marks[-1:]


def certain(text: str, found: Ends, written: str, language: str) -> str:
    """How the translation begins, whatever follows, of a segment without marks at its beginning.

    Args:
        text: The source.
        found: Its ends.
        written: What the model has written of the translation.
        language: Of the translation.
    """
    written = written.lstrip()
    sure = _UNSURE.sub("", written)
    if not sure or len(sure) == len(written) and not regex.search(r"\s", sure):
        return ""  # the first word may go on
    return "".join(piece.text for piece in finished(text, found, [Piece(sure, 0, len(sure))], language, is_cut=True))


def finished(text: str, found: Ends, pieces: Sequence[Piece], language: str, *, is_cut: bool = False) -> list[Piece]:
    """A translation with the marks and the capital of its source.

    Args:
        text: The source.
        found: Its ends.
        pieces: Of its translation, without white space at the ends.
        language: Of the translation; of French the space before high marks is known.
        is_cut: Whether the translation does not end yet.
    """
    result = list(pieces)
    if not result or any(_has_other_marks(piece.text) for piece in result):
        return result
    main = base_language(language)
    result = [*_with_ordinals(result, main)]
    if not is_cut:
        result = with_quotes(text, _with_ending(text, found, result, main), main)
    if found.beginning:
        result = _with_beginning(found.beginning, result)
    return _with_capital(text, found, result, main)


def _has_other_marks(text: str) -> bool:
    return max(text, default="") >= _FIRST_OF_OTHERS and _OTHER_SENTENCE_MARKS.search(text) is not None


def _with_ordinals(pieces: Sequence[Piece], language: str) -> Iterator[Piece]:
    """Numbers with the endings that English has, with those of French; a model copies *21st* as it stands."""
    last: Piece | None = None
    for piece in pieces:
        match = ENGLISH_ORDINAL.match(piece.text) if language == "fr" and piece.span is None else None
        if match is not None and last is not None and last.span is not None and last.text[-1:].isdigit():
            place = min(piece.start + match.end(), piece.end)  # what was hidden has no place of its own
            yield Piece("er" if last.text == "1" else "e", piece.start, place)
            piece = replace(piece, text=piece.text[match.end() :], start=place)
        if piece.text:
            yield piece
        last = piece


def _with_beginning(beginning: str, pieces: list[Piece]) -> list[Piece]:
    first = pieces[0]
    if first.span is None and (match := _WRITTEN_BEGINNING.match(first.text)):
        rest = first.text[match.end() :]
        pieces = ([replace(first, text=rest, start=first.start + match.end())] if rest else []) + pieces[1:]
    return [Piece(beginning, first.start, first.start), *pieces]


def _with_ending(text: str, found: Ends, pieces: list[Piece], language: str) -> list[Piece]:
    behind = found.end + len(found.marks)
    closing = [piece for piece in pieces[1:] if piece.span and piece.span.start >= behind] if found.marks else []
    if closing and pieces[-len(closing) :] == closing:  # brackets
        return [*_with_ending(text[:behind], found, pieces[: -len(closing)], language), *closing]
    last = pieces[-1]
    if last.span is not None:
        is_whole = not found.marks or text[behind:].strip()
        return pieces if is_whole else [*pieces, Piece(_spaced(found.marks, language), last.end, last.end)]
    match = _LAST_MARK.search(last.text, _last_marks(last.text))
    assert match is not None  # it may be empty
    written = match[2]
    if written == found.marks or last.text[: match.start()].strip() == "" and len(pieces) == 1:
        return pieces
    if not found.marks:
        # A mark of the model's own, where the source is no sentence; not what an abbreviation ends in.
        source_end = text.rstrip("\"'“”’»)] \t")
        ends_in_mark = source_end[-1:] in _MARKS_OF_SENTENCES
        if not _ADDED_MARK.fullmatch(written) or ends_in_mark or _is_abbreviated(last.text, match):
            return pieces
    elif found.marks == "." and (_ABBREVIATION.search(text[: found.end]) or _is_abbreviated(last.text, match)):
        return pieces
    elif found.marks in (",", ";", ":") and not written and last.text[match.start() :]:
        return pieces  # what follows a closing bracket or quotation mark
    marks = _spaced(found.marks, language)
    before = last.text[: match.start()]
    if (written == "." or _ABBREVIATED_MARKS.fullmatch(written)) and _INITIALS.search(before) and found.marks:
        before, written = before + ".", written[1:]
    result = pieces[:-1]
    place = last.start + len(before)
    if before:
        result.append(replace(last, text=before, end=place))
    if marks:
        result.append(Piece(marks, place, place + len(match[1]) + len(written)))
    if match[3]:
        result.append(Piece(match[3], last.end - len(match[3]), last.end))
    return result


def _is_abbreviated(text: str, match: regex.Match[str]) -> bool:
    return match[2] == "." and _ABBREVIATION.search(text[: match.start()]) is not None


def _spaced(marks: str, language: str) -> str:
    return " " + marks if language == "fr" and marks[:1] in ("!", "?", ":", ";", "—", "–", "‽") else marks


def _with_capital(text: str, found: Ends, pieces: list[Piece], language: str) -> list[Piece]:
    source = _FIRST_LETTER.match(text, len(found.beginning))
    index = 1 if found.beginning and len(pieces) > 1 else 0
    first = pieces[index]
    written = _FIRST_LETTER.match(first.text) if first.span is None else None
    if source is None or written is None:
        return pieces
    place, char, rest = written.end(1), written[2], written[3]
    if source[2].isupper():
        if not char.islower() or any(letter.isupper() for letter in rest):
            return pieces
        wanted = char.upper()
    else:
        has_capitals_inside = any(letter.isupper() for letter in source[3] + rest)
        word = char + rest
        if not source[2].islower() or has_capitals_inside or not char.isupper():
            return pieces
        if language in _UNCASED_OR_NOUNS or (word in text and len(word) > 1):
            return pieces
        wanted = char.lower()
    if len(wanted) == 1:
        pieces[index] = replace(first, text=first.text[:place] + wanted + first.text[place + 1 :])
    return pieces
