"""Subtitles (SubRip, `.srt`): what is said is translated, when it is said is not touched.

    1
    00:00:01,600 --> 00:00:04,200
    I went to the store
    <i>yesterday</i>.

The lines of a cue are one text, however they were broken to fit the screen, unless each is somebody else's (`- Hi.`).
Afterwards there are as many lines as before.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from service.text.documents.parts import InvalidDocument, Part, decode_text, encode_text
from service.text.languages import Languages

_TIMING = re.compile(
    r"^[^\S\r\n]*\d{1,3}:\d{1,2}:\d{1,2}[,.:]\d{1,3}[^\S\r\n]*-->[^\S\r\n]*\d{1,3}:\d{1,2}:\d{1,2}[,.:]\d{1,3}[^\r\n]*(?:\r\n|\r|\n|\Z)",
    re.MULTILINE,
)
_BLANK_LINES = re.compile(r"(?:[^\S\r\n]*(?:\r\n?+|\n))*+")
# A blank line ends a cue; a file may also go on with the number and the time of the next one.
_CUE_END = re.compile(r"(?:\r\n?+|\n)[^\S\r\n]*(?:\r\n?+|\n|\Z)|\Z")
_LINE_BREAK = re.compile(r"\r\n?+|\n")
_SPEAKER = re.compile(r"\s*(?:<[^>]{1,40}>\s*)?(?:[-–—]|[A-Z][A-Z .]{1,30}:)")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,80}>|\{\\[^{}]{1,80}\}")
# With the marks that French sets apart: none of them begins a line.
_WORD = re.compile(r"(?:<[^<>]*>|[^\s<]|<)+(?:[ \u00a0\u202f][!?:;»%]+(?![^\s<]))*")


@dataclass(frozen=True, slots=True)
class _Text:
    """Lines that are translated together."""

    start: int
    end: int
    line_break: str
    num_lines: int
    part: Part


class SubtitleDocument:
    """A file of subtitles."""

    def __init__(self, data: bytes) -> None:
        """Reads a file.

        Raises:
            InvalidDocument: If it is not UTF-8 or UTF-16, or has not a single time in it.
        """
        self._text, self._codec = decode_text(data)
        timings = list(_TIMING.finditer(self._text))
        if not timings and self._text.strip("\ufeff \r\n\t"):
            raise InvalidDocument("the file has no subtitle in it: no line is like 00:00:01,000 --> 00:00:02,000")
        starts = [*(match.start() for match in timings[1:]), len(self._text)] if timings else []
        self._texts: list[_Text] = []
        for timing, limit in zip(timings, starts, strict=True):
            self._add_cue(timing.end(), limit)

    @property
    def parts(self) -> Sequence[Part]:
        """What is said, cue by cue."""
        return [text.part for text in self._texts]

    def render(self, translations: Sequence[str], languages: Languages | None = None) -> bytes:  # noqa: ARG002 - says none
        """The file with what is said translated."""
        done, result = 0, []
        for text, translation in zip(self._texts, translations, strict=True):
            result += [self._text[done : text.start], _broken(translation, text)]
            done = text.end
        return encode_text("".join([*result, self._text[done:]]), self._codec)

    def _add_cue(self, start: int, limit: int) -> None:
        """Adds the texts of a cue that begins at `start`, the next one's time standing at `limit`."""
        if limit < len(self._text):
            limit = self._before_number(start, limit)
        blank = _BLANK_LINES.match(self._text, start, limit)  # nothing is said here; or it is, further down
        start = blank.end() if blank else start
        end = _CUE_END.search(self._text, start, limit)
        stop = end.start() if end else limit
        lines: list[tuple[int, int]] = []
        place = start
        for line_break in [*_LINE_BREAK.finditer(self._text, start, stop), None]:
            line_end = line_break.start() if line_break else stop
            lines.append((place, line_end))
            place = line_break.end() if line_break else stop
        together: list[list[tuple[int, int]]] = []
        for line in lines:
            if together and not _SPEAKER.match(self._text[slice(*line)]):
                together[-1].append(line)
            else:
                together.append([line])
        for group in together:
            self._add_text(group)

    def _before_number(self, start: int, limit: int) -> int:
        """Where the line with the next cue's number begins, which need not have a blank line before it; or `limit`."""
        lines = self._text[start:limit].removesuffix("\n").removesuffix("\r")
        begin = max(lines.rfind("\n"), lines.rfind("\r")) + 1
        return start + begin if lines[begin:].strip().isdecimal() else limit

    def _add_text(self, lines: Sequence[tuple[int, int]]) -> None:
        start, end = lines[0][0], lines[-1][1]
        text = " ".join(self._text[slice(*line)].strip() for line in lines).strip()
        if not text:
            return
        line_break = self._text[lines[0][1] : lines[1][0]] if len(lines) > 1 else "\n"
        is_html = bool(_TAG.search(text))
        part = Part(_protected(text) if is_html else text, "html" if is_html else "text")
        self._texts.append(_Text(start, end, line_break, len(lines), part))


def _protected(text: str) -> str:
    r"""A cue with tags as HTML: its `{\an8}` are elements too, so that they stay where they are."""
    pieces, done = [], 0
    for tag in _TAG.finditer(text):
        pieces.append(_escaped(text[done : tag.start()]))
        is_style = tag[0].startswith("{")
        pieces.append(f'<img data-style="{_escaped(tag[0])}">' if is_style else tag[0])
        done = tag.end()
    return "".join([*pieces, _escaped(text[done:])])


_STYLE = re.compile(r'<img data-style="([^"]*)">')


def _unprotected(text: str) -> str:
    pieces, done = [], 0
    for tag in _TAG.finditer(text):
        pieces.append(_unescaped(text[done : tag.start()]))
        style = _STYLE.fullmatch(tag[0])
        pieces.append(_unescaped(style[1]) if style else tag[0])
        done = tag.end()
    return "".join([*pieces, _unescaped(text[done:])])


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


def _unescaped(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", '"').replace("&amp;", "&")


def _broken(translation: str, text: _Text) -> str:
    """A translation on as many lines as its source had, of about the same length."""
    if text.part.format == "html":
        translation = _unprotected(translation)
    words = [match.span() for match in _WORD.finditer(translation)]
    if not words:
        return translation
    lines: list[str] = []
    first = 0
    for rest in range(text.num_lines, 0, -1):
        if first >= len(words):
            break
        remaining = words[-1][1] - words[first][0]
        last = first
        # Up to where the line comes nearest to its share; every line to come keeps at least a word.
        while rest > 1 and last + 1 < len(words) - (rest - 2) and last + 1 < len(words):
            wanted = words[first][0] + remaining / rest
            if abs(words[last + 1][1] - wanted) > abs(words[last][1] - wanted):
                break
            last += 1
        if rest == 1:
            last = len(words) - 1
        lines.append(translation[words[first][0] : words[last][1]])
        first = last + 1
    return text.line_break.join(lines)
