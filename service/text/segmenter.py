"""Text to segments and gaps, and back.

A *segment* is what a model translates at once: a sentence, or a window of one that is too long. Everything between
segments is a *gap*: white space, line breaks, indents, list markers. Gaps come back byte for byte:

    document = segment_text(text, "en", max_tokens=128, count_tokens=count)
    translated = document.join([translate(segment.text) for segment in document.segments])

Lines are never joined: a sentence that was wrapped by hard line breaks is translated line by line, also where they are
written as escapes. No segment ends inside what must be kept whole: an address, code, a format string.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from service.text.escapes import blank_escapes
from service.text.kept import structured_spans
from service.text.messages import message_spans
from service.text.sentences import sentence_spans
from service.text.windows import window_spans

# What str.splitlines takes for a line break, and every other control: where one belongs in a translation no model
# knows, so it stays between the same two texts. Tabs, and spaces in a row, part columns of a table.
_LINE = re.compile("(?:(?! {4})[^\x00-\x1f\x7f-\x9f\u2028\u2029])+")

_STAND_IN = "\ue000"
_SHORT_TOKENS = re.compile(f"[\x00-\x7f{_STAND_IN}]*")

# White space, zero-width and bidi marks, controls: invisible at the edges of a segment, and the caller's.
_BLANK = r"[\s\ufeff\u200b\u200e\u200f\u061c\u202a-\u202e\u2060\u2066-\u2069\x00-\x1f\x7f-\x9f]"
_ASCII_BLANKS = "".join(char for char in map(chr, range(128)) if re.match(_BLANK, char))
_OUTER_BLANK = re.compile(rf"\A{_BLANK}*+|(?<!{_BLANK}){_BLANK}+\Z")

# Bullets, numbers, quote marks and headings, each followed by white space, with the indents around them.
_LIST_MARKER = re.compile(
    rf"""\A{_BLANK}*+(?:(?:
        [-*+•‣◦▪▫●○■□–—·]           # bullets
        | \(?\d{{1,3}}[.)]          # 1.  2)  (3)
        | \(?(?:[A-Za-z]|[ivx]{{2,4}}|[IVX]{{2,4}})\)  # a)  (b)  C)  ii)
        | [#]{{1,6}}                # headings
        | >{{1,6}}                  # quoted mail
        | \[[ xX]\]                 # check boxes
    ){_BLANK}++)*""",
    re.VERBOSE,
)

# Within a line: Choose: A) Yes B) No. What begins with a small letter may be a part of the sentence.
_INLINE_MARKER = re.compile(r"(?<!\S)(?:(\d{1,2})|([A-Za-z]))\)\s+(?=[\"'“«(]?(?:[A-ZÀ-ÖØ-Þ]|\d))")

# A line that begins with the first of them is such a list whatever the others begin with: a. tea b. coffee. In capitals
# from three on: they may be initials.
_DOTTED_MARKER = re.compile(r"(?<!\S)([A-Z]|[a-z]|[ivx]{2,4})\.\s+(?=\w)")
_SERIES = ("abcdefghijklmnopqrst", "ABCDEFGHIJKLMNOPQRST", "i ii iii iv v vi vii viii ix x xi xii".split())

_NOT_LETTERS = frozenset("ℹªº")
"""Letters to Unicode, but a reader sees a symbol."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of the text.

    Attributes:
        start: Its first character, in code points of the whole text.
        end: One past its last character.
        text: The characters themselves; no white space at either end.
        translatable: Whether there is a letter in it. What has none is not shown to a model.
        windowed: Whether it is a part of a sentence that was too long for the model.
    """

    start: int
    end: int
    text: str
    translatable: bool
    windowed: bool = False


@dataclass(frozen=True, slots=True)
class Document:
    """A text with its segments.

    Attributes:
        text: All of it.
        segments: In order, without overlap; none is empty.
    """

    text: str
    segments: tuple[Segment, ...]

    @property
    def windowed(self) -> bool:
        """Whether a sentence had to be parted."""
        return any(segment.windowed for segment in self.segments)

    def gaps(self) -> list[str]:
        """What stands before, between and after the segments: one more than there are segments, some empty."""
        ends = [0, *(segment.end for segment in self.segments)]
        starts = [*(segment.start for segment in self.segments), len(self.text)]
        return [self.text[end:start] for end, start in zip(ends, starts, strict=True)]

    def join(self, texts: Sequence[str]) -> str:
        """Puts other texts in the places of the segments.

        Args:
            texts: One for each segment.

        Raises:
            ValueError: If there are more or fewer.
        """
        first, *others = self.gaps()
        return first + "".join(text + gap for text, gap in zip(texts, others, strict=True))


def segment_text(
    text: str,
    language: str,
    *,
    max_tokens: int,
    count_tokens: Callable[[str], int],
    kept: Callable[[str], Sequence[tuple[int, int]]] = structured_spans,
    split_sentences: bool = True,
) -> Document:
    """Finds the segments of a text.

    Args:
        text: Any text.
        language: Code of its language.
        max_tokens: Segments for which `count_tokens` says more are parted into windows.
        count_tokens: The length of a text for the model.
        kept: Gives the `[start, end)` spans of a sentence that are never parted; each counts as one private-use
            character for `count_tokens`.
        split_sentences: Whether lines are parted into sentences; otherwise each counts as one.

    Returns:
        The text with its segments. Takes time linear in the length of the text.
    """
    segments: list[Segment] = []
    for start, end in _sentences(text, language, split_sentences):
        sentence = text[start:end]
        if not has_letter(sentence):
            segments.append(Segment(start, end, sentence, translatable=False))
        else:
            short, places = compress(sentence, kept(sentence))
            if _fits(short, max_tokens, count_tokens):
                segments.append(Segment(start, end, sentence, translatable=True))
            else:
                segments += _windows(sentence, short, places, start, max_tokens, count_tokens)
    return Document(text, tuple(segments))


def has_letter(text: str) -> bool:
    """Whether a model could find something to translate."""
    return any(char.isalpha() and char not in _NOT_LETTERS for char in text)


def _sentences(text: str, language: str, split: bool) -> Iterator[tuple[int, int]]:
    for first, last in _lines(text, split):
        line = text[first:last]
        marker = _LIST_MARKER.match(line)
        offset = first + (marker.end() if marker else 0)
        rest = text[offset:last]
        for start, end in _whole(sentence_spans(rest, language), rest) if split else [(0, len(rest))]:
            inner = _inner_span(rest[start:end])
            if inner is not None:
                yield offset + start + inner[0], offset + start + inner[1]


def _lines(text: str, split: bool) -> Iterator[tuple[int, int]]:
    """The lines of a text, of files of messages only their texts; those with a list are parted at its markers."""
    for line in _LINE.finditer(text):
        texts = message_spans(line[0])
        for first, last in [(0, len(line[0]))] if texts is None else texts:
            yield from _parts_of_line(text[line.start() + first : line.start() + last], line.start() + first, split)


def _parts_of_line(line: str, offset: int, split: bool) -> Iterator[tuple[int, int]]:
    cuts = blank_escapes(line)
    if split and ") " in line:
        cuts = sorted([*cuts, *_inline_markers(line)])
    if split and ". " in line:
        cuts = sorted([*cuts, *_dotted_markers(line)])
    done = 0
    for start, end in cuts:
        yield offset + done, offset + start
        done = end
    yield offset + done, offset + len(line)


def _inline_markers(line: str) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    ranks: list[int] = []
    for match in _INLINE_MARKER.finditer(line):
        rank = int(match[1]) if match[1] else ord(match[2]) - ord("a" if match[2].islower() else "A") + 1
        if rank == len(ranks) + 1:
            ranks.append(rank)
            found.append(match.span())
    return found if len(found) > 1 else []


def _dotted_markers(line: str) -> list[tuple[int, int]]:
    start = len(line) - len(line.lstrip())
    if _DOTTED_MARKER.match(line, start) is None:  # nearly always
        return []
    matches = list(_DOTTED_MARKER.finditer(line, start))
    for series in _SERIES:
        found: list[tuple[int, int]] = []
        for match in matches:
            if len(found) < len(series) and match[1] == series[len(found)]:
                found.append(match.span())
        if len(found) > 1 + series[0].isupper():
            return found
    return []


def compress(text: str, spans: Sequence[tuple[int, int]]) -> tuple[str, Sequence[int]]:
    """Shrinks spans to one private-use character each, so that none can be parted.

    Args:
        text: Any text.
        spans: `[start, end)` in order, without overlap.

    Returns:
        The shorter text, and for each place in it, its end included, the place in `text`.
    """
    if not spans:
        return text, range(len(text) + 1)
    chars: list[str] = []
    places: list[int] = []
    done = 0
    for start, end in spans:
        chars += text[done:start] + _STAND_IN
        places += range(done, start + 1)
        done = end
    chars += text[done:]
    places += range(done, len(text) + 1)
    return "".join(chars), places


def _whole(sentences: list[tuple[int, int]], line: str) -> list[tuple[int, int]]:
    """The sentences of a line, joined where one would end inside a kept span."""
    if len(sentences) < 2:
        return sentences
    inside = {place for start, end in structured_spans(line) for place in range(start + 1, end)}
    cuts = [start for start, _ in sentences if start not in inside]
    return list(zip(cuts, [*cuts[1:], len(line)], strict=True))


def _inner_span(text: str) -> tuple[int, int] | None:
    """The text without blanks at its ends, or None if nothing is left."""
    if text.isascii():
        start, end = len(text) - len(text.lstrip(_ASCII_BLANKS)), len(text.rstrip(_ASCII_BLANKS))
        return (start, end) if start < end else None
    blanks = [match.span() for match in _OUTER_BLANK.finditer(text)]
    start = blanks[0][1]
    end = blanks[-1][0] if len(blanks) > 1 else len(text)
    return (start, end) if start < end else None


def _fits(sentence: str, max_tokens: int, count_tokens: Callable[[str], int]) -> bool:
    # A character of ASCII is one token at most, and so is a stand-in but for its bytes; two more stand at the ends.
    if len(sentence) + 2 * sentence.count(_STAND_IN) + 4 <= max_tokens and _SHORT_TOKENS.fullmatch(sentence):
        return True
    # A very long one is not counted as a whole: the tokenizer would do all of it in vain.
    return len(sentence) <= 16 * max_tokens and count_tokens(sentence) <= max_tokens


def _windows(
    sentence: str,
    short: str,
    places: Sequence[int],
    offset: int,
    max_tokens: int,
    count_tokens: Callable[[str], int],
) -> list[Segment]:
    segments = []
    for start, end in window_spans(short, max_tokens, count_tokens):
        first = places[start]
        inner = _inner_span(sentence[first : places[end]])
        if inner is not None:
            window = sentence[first + inner[0] : first + inner[1]]
            place = offset + first + inner[0]
            segments.append(Segment(place, place + len(window), window, has_letter(window), windowed=True))
    return segments
