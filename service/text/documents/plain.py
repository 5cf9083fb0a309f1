"""Plain text and HTML: one encoding, and everything is text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.text.documents.parts import InvalidDocument, Part, decode_text, encode_text
from service.text.languages import Languages

_PART_CHARACTERS = 4_000
"""About how much plain text makes a part: parts are translated a few at a time, and no sentence goes over a line."""

_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w.:-]{1,40})""", re.IGNORECASE)
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


class PlainDocument:
    """A text file. Its parts are lines, several together."""

    def __init__(self, data: bytes) -> None:
        """Reads a file.

        Raises:
            InvalidDocument: If it is not UTF-8 or UTF-16.
        """
        text, self._codec = decode_text(data)
        lines: list[str] = []
        self._parts: list[Part] = []
        for line in _LINE.findall(text):
            if lines and sum(map(len, lines)) + len(line) > _PART_CHARACTERS:
                self._parts.append(Part("".join(lines)))
                lines = []
            lines.append(line)
        if lines:
            self._parts.append(Part("".join(lines)))

    @property
    def parts(self) -> Sequence[Part]:
        """Its lines, some thousand characters together."""
        return self._parts

    def render(self, translations: Sequence[str], languages: Languages | None = None) -> bytes:  # noqa: ARG002 - says none
        """The file with its lines translated."""
        return encode_text("".join(translations), self._codec)


class HtmlDocument:
    """A page; one part, which the translator takes apart."""

    def __init__(self, data: bytes) -> None:
        """Reads a page, in the encoding that it names.

        Raises:
            InvalidDocument: If it is in another one, or names none that there is.
        """
        named = _CHARSET.search(data[:2048])
        self._codec = "utf-8"
        if data.startswith((b"\xff\xfe", b"\xfe\xff")) or named is None:
            text, self._codec = decode_text(data)
        else:
            # What browsers read as Latin-1 is Windows' own.
            codec = named[1].decode().lower()
            self._codec = "cp1252" if codec in ("iso-8859-1", "latin1", "latin-1", "us-ascii", "ascii") else codec
            try:
                text = data.decode(self._codec)
            except (LookupError, UnicodeDecodeError) as error:
                raise InvalidDocument(f"the page says that it is {named[1].decode()}, and is not") from error
        self._text = text

    @property
    def parts(self) -> Sequence[Part]:
        """The page."""
        return [Part(self._text, "html")]

    def render(self, translations: Sequence[str], languages: Languages | None = None) -> bytes:  # noqa: ARG002 - says none
        """The page, translated; characters that its encoding has not are written as references."""
        (page,) = translations
        return page.encode(self._codec, errors="xmlcharrefreplace")
