r"""What a model is shown instead of a text with kept spans, and the way back.

    form = make_form("See https://x.org at 10:30", spans, hidden=[url], placeholders=Placeholders(("\ue000", ...)))
    form.text                                  # "See \ue000 at 10:30"
    form.restore("Voir \ue000 à 10h30").text    # "Voir https://x.org à 10:30"

A hidden span is one *placeholder* in the model's text: a private-use character that the model was trained to copy, or a
single digit, which other models copy too (docs/experiments.md has the figures). A soft span that stays visible is
looked for in the translation, also in another notation (`10h30`), and gets its own back.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import regex

from service.text.capitals import in_capitals, visible_text
from service.text.kept import KeptSpan, number_runs
from service.text.languages import base_language

MASKS = tuple(chr(0xE000 + index) for index in range(10))
"""Private-use characters that bundled models copy."""

DIGITS = tuple("789564321")
"""Placeholders for models without masks; those that are rare as numbers come first."""

QUOTE = '"'
"""What an escaped quotation mark is shown as; a model may write another one."""

# A placeholder too many, half a character, a control: never right, and the text's own are kept spans.
NEVER_WRITTEN = regex.compile(r"[\p{Co}\ufffd\p{Cc}]")
_GLUED_MARK = regex.compile(r"[,;:!?]++(?=\p{L})")
_MARK_BEFORE_WORD = regex.compile(r"[,;:!?](?=\w)")
_SPACED_MARK = regex.compile(r"[ \u00a0\u202f]*+([,;:!?])[ \u00a0\u202f]*+(?=\w)")
_UNSPACED_SCRIPT = regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]")

_LETTER = regex.compile(r"\p{L}")
_SEPARATOR = r"[\s.,:;/'’·×hH⁄–—-]{1,3}"
_PRONOUN = regex.compile(r"(?<![\w'’])i(?!\w)")
_THOUSANDS = regex.compile(r",|[ \u00a0\u202f](?=\d)")
_LETTERS = regex.compile(r"\p{L}++")
_ORDINALS = frozenset("st nd rd th er re ère e ème eme ième d de ste o a h s x m".split())
_FRENCH_ORDINAL = regex.compile(r"(?:er|re|ère|e|ème)(?!\p{L})")
_ENGLISH_ORDINAL = regex.compile(r" ?+(st|nd|rd|th)(?!\p{L})")
_GROUPS = regex.compile(r"\d+")
_NUMBER_UNIT = regex.compile(r"(.*\d)\s*(\D*)", regex.DOTALL)
_BETWEEN_AMOUNTS = regex.compile(r"\s?[–—-]\s?(?=\p{Lu}*\p{Sc})|(?<=[^\d\s(])(?<!\d[eE])\s?[–—-]\s?(?=\d)")
_BEFORE_AMOUNT = regex.compile(r"\p{Lu}*\p{Sc}")


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a restored translation.

    Attributes:
        text: As it is given to the caller.
        start: Where it stood in what the model wrote, in code points.
        end: One past its end there.
        span: The kept span that it is; None for the model's own words.
    """

    text: str
    start: int
    end: int
    span: KeptSpan | None = None


@dataclass(frozen=True, slots=True)
class Restored:
    """A translation with its kept spans put back.

    Attributes:
        pieces: In order; together they are the text.
    """

    pieces: tuple[Piece, ...]

    @property
    def text(self) -> str:
        """The translation."""
        return "".join(piece.text for piece in self.pieces)


@dataclass(frozen=True, slots=True)
class Spoken:
    """A sign that a model reads as a word, as `&` as *and*, or as a quotation mark.

    Attributes:
        span: The sign.
        shown: The word that it is shown as.
        written: What that is in the translation.
        rank: Which of all such words of the shown text it is, from 0.
        times: How many there are.
    """

    span: KeptSpan
    shown: str
    written: str
    rank: int = 0
    times: int = 1


@dataclass(frozen=True, slots=True)
class Form:
    """A text as the model sees it.

    Attributes:
        original: The text itself.
        text: What the model is shown.
        spans: All kept spans of the original, in its code points.
        hidden: The hidden ones with their placeholders.
        starts: For each character of `text`, where it begins in the original.
        ends: Likewise, where it ends.
        is_capitals: Whether the original was in capitals, and the model is shown small letters.
        spoken: The signs that are shown as words.
    """

    original: str
    text: str
    spans: tuple[KeptSpan, ...]
    hidden: tuple[tuple[str, KeptSpan], ...]
    starts: Sequence[int]
    ends: Sequence[int]
    is_capitals: bool = False
    spoken: tuple[Spoken, ...] = ()

    @property
    def shows_original(self) -> bool:
        """Whether the model is shown the very text."""
        return self.text is self.original

    def source_span(self, start: int, end: int) -> tuple[int, int]:
        """A span of `text` as one of the original."""
        if start >= end:
            place = self.starts[start] if start < len(self.starts) else len(self.original)
            return place, place
        return self.starts[start], self.ends[end - 1]

    def restore(self, translation: str) -> Restored | None:
        """Puts the kept spans back.

        Args:
            translation: What the model wrote.

        Returns:
            The translation, in which each kept span occurs as often as in the original; None if that cannot be had.
        """
        pieces = [Piece(translation, 0, len(translation))] if translation else []
        for placeholder, span in self.hidden:
            found = _exact_places(pieces, placeholder)
            if len(found) != 1:
                return None
            pieces = _with_span(pieces, found, [span])
        for written, group in itertools.groupby(self.spoken, key=lambda sign: sign.written):
            signs = list(group)
            found = _places(pieces, _word(written))
            if len(found) != signs[0].times:
                return None  # one was added, or lost: nobody knows which one is the sign's
            pieces = _with_span(pieces, [found[sign.rank] for sign in signs], [sign.span for sign in signs])
        hidden = self.hides()
        visible = [span for span in self.spans if id(span) not in hidden]
        # The longest first, for "5" may be a part of "5.5".
        for text in sorted({span.text for span in visible}, key=len, reverse=True):
            same = [span for span in visible if span.text == text]
            found = _exact_places(pieces, text)
            if len(found) < len(same) and same[0].is_soft:
                pattern = _other_notation(text)
                found += [place for place in _places(pieces, pattern) if not _overlaps(place, found)]
            if len(found) < len(same):
                return None
            found = sorted(found[: len(same)])
            pieces = _with_span(pieces, found, same)
        if self.is_capitals:
            pieces = [piece if piece.span else _upper(piece) for piece in pieces]
        restored = Restored(tuple(_spaced_as_before(pieces, self)))
        return restored if self._keeps_everything(restored) else None

    def hides(self) -> set[int]:
        """The `id` of each span that the model does not see as it is."""
        return {id(span) for _, span in self.hidden} | {id(sign.span) for sign in self.spoken}

    def _keeps_everything(self, restored: Restored) -> bool:
        text = restored.text
        if not all(span.stays(self.original, text) for span in self.spans):
            return False
        if any(piece.span is None and NEVER_WRITTEN.search(piece.text) for piece in restored.pieces):
            return False
        runs = set(number_runs(self.original))
        if not runs:
            return True
        free = [run for piece in restored.pieces if piece.span is None for run in number_runs(piece.text)]
        # A number that the model wrote for a word (twenty, 20) is right, but must not double one of the text.
        return not any(run in number for number in free for run in runs)


def exchanged(pieces: Sequence[Piece], changes: Mapping[int, tuple[int, str]]) -> list[Piece]:
    """Exchanges stretches of a translation's own words.

    Args:
        pieces: Of the translation.
        changes: `{start: (end, instead)}` in code points of the whole; what would reach over two pieces, or into a kept
            span, is left alone.

    Returns:
        The pieces; what has another length than before is one of its own, so that places within the others stay true.
    """
    result: list[Piece] = []
    offset = 0
    for piece in pieces:
        done, out = 0, ""
        size, start = len(piece.text), piece.start
        is_literal = size == piece.end - piece.start
        for place in sorted(changes) if piece.span is None else ():
            left, right = place - offset, changes[place][0] - offset
            instead = changes[place][1]
            if not done <= left < right <= size:
                continue
            out += piece.text[done:left]
            done = right
            if len(instead) == right - left or not is_literal:
                out += instead
                continue
            if out:
                result.append(Piece(out, start, piece.start + left))
            result.append(Piece(instead, piece.start + left, piece.start + right))
            out, start = "", piece.start + right
        out += piece.text[done:]
        if out:
            result.append(replace(piece, text=out, start=start))
        offset += size
    return result


def make_form(
    original: str,
    spans: Sequence[KeptSpan],
    hidden: Sequence[KeptSpan],
    placeholders: Sequence[str],
    *,
    language: str = "en",
    changes: Sequence[tuple[int, int, str]] = (),
    spoken: Sequence[Spoken] = (),
) -> Form | None:
    """Hides spans of a text.

    Args:
        original: The text.
        spans: Its kept spans, in order.
        hidden: Those to be hidden.
        placeholders: Characters to stand for them; those that occur in the rest of the text are not used.
        language: Of the text.
        changes: `[start, end)` of stretches outside all spans, and what is shown instead of each; in order.
        spoken: Other spans, to be shown as words.

    Returns:
        The form; None if there are not enough placeholders.
    """
    is_capitals = in_capitals(original, spans)
    signs = {id(sign.span) for sign in spoken}
    if any(_word(sign.written).search(span.text) for sign in spoken for span in spans if id(span) not in signs):
        return None  # what is kept would be taken for the sign
    visible = visible_text(original, hidden)
    usable = [char for char in placeholders if char not in visible]
    if len(usable) < len(hidden):
        return None
    if not (is_capitals or hidden or changes or spoken):  # nearly always
        size = len(original)
        return Form(original, original, tuple(spans), (), range(size), range(1, size + 1))
    text: list[str] = []
    starts: list[int] = []
    ends: list[int] = []

    def put(part: str, start: int, end: int) -> None:
        text.append(part)
        starts.extend([start] * len(part))
        ends.extend([end] * len(part))

    rest = deque(changes)

    def put_visible(start: int, end: int) -> None:
        place = start
        while place < end or (rest and rest[0][0] == place == end == len(original)):
            if rest and rest[0][0] == place:
                _, change_end, instead = rest.popleft()
                put(instead, place, change_end)
                place = change_end
                continue
            if not is_capitals:  # nearly always: all up to the next change as it is
                stop = min(end, rest[0][0]) if rest and rest[0][0] > place else end
                text.append(original[place:stop])
                starts.extend(range(place, stop))
                ends.extend(range(place + 1, stop + 1))
                place = stop
                continue
            char = original[place]
            put(char if place in kept_places else _lower(char), place, place + 1)
            place += 1

    kept_places = {place for span in spans for place in range(span.start, span.end)}
    done = 0
    instead = [*zip(usable, hidden, strict=False), *((sign.shown, sign.span) for sign in spoken)]
    for placeholder, span in sorted(instead, key=lambda item: item[1].start):
        put_visible(done, span.start)
        # Beside a letter a digit would be misread, and a mask break the word in pieces that the model has never seen.
        is_quote = placeholder == QUOTE
        if original[max(span.start - 1, 0) : span.start].isalnum() and not is_quote:
            put(" ", span.start, span.start)
        put(placeholder, span.start, span.end)
        if original[span.end : span.end + 1].isalnum() and not is_quote:
            put(" ", span.end, span.end)
        done = span.end
    put_visible(done, len(original))
    shown = "".join(text)
    if is_capitals:
        shown = _sentence_case(shown, language)
    pairs = tuple(zip(usable, hidden, strict=False))
    ranked = _ranked(spoken, shown, starts)
    return Form(original, shown, tuple(spans), pairs, tuple(starts), tuple(ends), is_capitals, ranked)


def _ranked(spoken: Sequence[Spoken], shown: str, starts: Sequence[int]) -> tuple[Spoken, ...]:
    """The signs with their places among all the same words of the shown text; those of one word side by side."""
    found = []
    for sign in spoken:
        places = [starts[match.start()] for match in _word(sign.shown).finditer(shown)]
        found.append(replace(sign, rank=places.index(sign.span.start), times=len(places)))
    return tuple(sorted(found, key=lambda sign: (sign.written, sign.rank)))


@lru_cache(maxsize=64)
def _word(word: str) -> regex.Pattern[str]:
    if word == QUOTE:
        return regex.compile(r"[\"“”„]|«[ \u00a0\u202f]*+|[ \u00a0\u202f]*+»")
    return regex.compile(rf"(?<![\w'’-]){regex.escape(word)}(?![\w'’-])", regex.IGNORECASE)


def _lower(char: str) -> str:
    small = char.lower()
    return small if len(small) == 1 else char


def _sentence_case(text: str, language: str) -> str:
    if base_language(language) == "en":
        text = _PRONOUN.sub("I", text)
    first = _LETTER.search(text)
    if first is None:
        return text
    place = first.start()
    capital = text[place].upper()
    return text[:place] + (capital if len(capital) == 1 else text[place]) + text[place + 1 :]


def _upper(piece: Piece) -> Piece:
    return Piece(piece.text.upper(), piece.start, piece.end)


@lru_cache(maxsize=1_024)
def _other_notation(text: str) -> regex.Pattern[str]:
    """Finds a number or amount as another language may write it: `1,234.5` as `1 234,5`, `5 %`, `10h30`, `$5 – $10`."""
    pattern = r"\s?[–—-]\s?".join(map(_notation, _BETWEEN_AMOUNTS.split(text)))
    return regex.compile(rf"(?<!\d)(?<!\d[.,]){pattern}(?!\d)(?![.,]\d)")


def _notation(text: str) -> str:
    match = _NUMBER_UNIT.fullmatch(text)
    number, unit = (match[1], match[2]) if match else (text, "")
    groups = _GROUPS.findall(number)
    sign = r"[-+−±~≈]?" if number[0] in "-+−±~≈" else ""
    currency = next(iter(_BEFORE_AMOUNT.findall(number)), "")
    pattern = sign + _SEPARATOR.join(map(regex.escape, groups))
    if len(groups) > 1 and len(_THOUSANDS.findall(number)) == len(groups) - 1:  # they may lose their signs
        pattern = sign + rf"(?:{_SEPARATOR})?".join(map(regex.escape, groups))
    if unit:
        after = r"(?!\w)" if unit[-1].isalnum() else ""
        pattern = rf"{pattern}[\s\u00a0\u202f-]*{regex.escape(unit)}{after}"
    if currency:
        sign_pattern = regex.escape(currency)
        pattern = rf"(?:{sign_pattern}\s*{pattern}|{pattern}\s*{sign_pattern})"
    return pattern


_Place = tuple[int, int, int]  # which piece, start and end within its text


def _exact_places(pieces: Sequence[Piece], text: str) -> list[_Place]:
    """Where a text stands, not as a part of a longer number. Without a pattern: to compile one takes a millisecond."""
    found = []
    for index, piece in enumerate(pieces):
        place = -1 if piece.span else piece.text.find(text)
        while place >= 0:
            end = place + len(text)
            if _parts_number(piece.text, place, end):
                place = piece.text.find(text, place + 1)
            else:
                found.append((index, place, end))
                place = piece.text.find(text, end)
    return found


def _parts_number(text: str, start: int, end: int) -> bool:
    """Whether a stretch begins or ends in the middle of a number."""
    before, after = text[max(0, start - 2) : start], text[end : end + 2]
    begins = text[start].isdigit() and (
        before[-1:].isdecimal() or (before[:1].isdecimal() and before[1:] in (".", ","))
    )
    ends = text[end - 1].isdigit() and (
        after[:1].isdecimal() or (after[:1] in (".", ",", ":") and after[1:].isdecimal())
    )
    return begins or ends


def _places(pieces: Sequence[Piece], pattern: regex.Pattern[str]) -> list[_Place]:
    return [
        (index, match.start(), match.end())
        for index, piece in enumerate(pieces)
        if piece.span is None
        for match in pattern.finditer(piece.text)
    ]


def _overlaps(place: _Place, others: Sequence[_Place]) -> bool:
    return any(place[0] == other[0] and place[1] < other[2] and other[1] < place[2] for other in others)


def _with_span(pieces: Sequence[Piece], places: Sequence[_Place], spans: Sequence[KeptSpan]) -> list[Piece]:
    """Cuts the places out and puts spans there, in order."""
    result: list[Piece] = []
    todo = list(zip(places, spans, strict=True))
    for index, piece in enumerate(pieces):
        done = 0
        for (_, start, end), span in [item for item in todo if item[0][0] == index]:
            if done < start:
                result.append(Piece(piece.text[done:start], piece.start + done, piece.start + start))
            result.append(Piece(span.text, piece.start + start, piece.start + end, span))
            done = end
        if done < len(piece.text) or piece.span is not None:
            rest = piece if done == 0 else Piece(piece.text[done:], piece.start + done, piece.end)
            result.append(rest)
    return result


def _spaced_as_before(pieces: Sequence[Piece], form: Form) -> list[Piece]:
    """Beside what was hidden a letter stands as close as in the source, whatever the model made of the space."""
    hidden = form.hides()
    result: list[Piece] = []
    for piece in pieces:
        last = result[-1] if result else None
        if last is not None and last.span is None and piece.span is not None:
            before = form.original[max(piece.span.start - 1, 0) : piece.span.start]
            written = last.text.rstrip()[-1:]
            if before.isalnum():
                result[-1] = _cut(last, at_end=True) if id(piece.span) in hidden else last
            elif before.strip() and written and not written.isalnum() and written != "«" and id(piece.span) in hidden:
                result[-1] = _cut(last, at_end=True)
            elif _needs_space(last.text[-1:]):
                result.append(Piece(" ", last.end, last.end))
            result.append(piece)
        elif last is not None and last.span is not None and piece.span is None:
            after = form.original[last.span.end : last.span.end + 8]
            is_number = last.span.is_soft and (after[:1].isalnum() or _FRENCH_ORDINAL.match(piece.text) is not None)
            ordinal = _ENGLISH_ORDINAL.match(piece.text) if last.span.is_soft else None
            if ordinal is not None:
                result.append(_ordinal(last.span.text, piece, ordinal))
            else:
                result += _behind_number(piece, after) if is_number else _behind(piece, after)
        else:
            result.append(piece)
    return [piece for piece in result if piece.text]


def _behind_number(piece: Piece, source: str) -> list[Piece]:
    """A translation's words behind a number that a letter followed, as in *1st* and *5kg*."""
    letters = _LETTERS.match(source)
    written = _LETTERS.match(piece.text)
    if letters is None or written is None or written[0].casefold() in (*_ORDINALS, letters[0].casefold()):
        return [piece]
    return [Piece(" ", piece.start, piece.start), piece]


def _ordinal(number: str, piece: Piece, ending: regex.Match[str]) -> Piece:
    """A translation's words behind a number that English makes an ordinal, *the 14th* of *le 14*: of this number."""
    written = ending[1]
    if number.isdecimal():
        last = int(number[-2:])
        written = "th" if 10 < last < 20 else {1: "st", 2: "nd", 3: "rd"}.get(last % 10, "th")
    return Piece(written + piece.text[ending.end() :], piece.start + ending.start(1), piece.end)


def _behind(piece: Piece, source: str) -> list[Piece]:
    """A translation's words behind a hidden span, which `source` followed."""
    if source[:1].isalnum():
        return [_cut(piece, at_end=False)]
    spaced = _SPACED_MARK.match(piece.text) if _MARK_BEFORE_WORD.match(source) else None
    if spaced is not None:  # it parts no sentence
        start, behind = piece.start + spaced.start(1), piece.start + spaced.end()
        return [Piece(spaced[1], start, start + 1), Piece(piece.text[spaced.end() :], behind, piece.end)]
    if _needs_space(piece.text[:1]):
        return [Piece(" ", piece.start, piece.start), piece]
    mark = _GLUED_MARK.match(piece.text)
    if mark and _needs_space(piece.text[mark.end()]) and not _GLUED_MARK.match(source):
        middle = piece.start + mark.end()
        return [
            Piece(mark[0], piece.start, middle),
            Piece(" ", middle, middle),
            Piece(piece.text[mark.end() :], middle, piece.end),
        ]
    return [piece]


def _needs_space(char: str) -> bool:
    """Whether a word that begins or ends with it is parted from others."""
    return char.isalnum() and not _UNSPACED_SCRIPT.match(char)


def _cut(piece: Piece, *, at_end: bool) -> Piece:
    if at_end:
        text = piece.text.rstrip()
        return Piece(text, piece.start, piece.end - len(piece.text) + len(text))
    text = piece.text.lstrip()
    return Piece(text, piece.start + len(piece.text) - len(text), piece.end)
