"""What every kind of file is taken apart into, and what can be wrong with one.

    document = open_document("report.docx", data, max_expanded_bytes=...)     # service/text/documents/formats.py
    document.parts[0].text                                                    # "The first paragraph."
    document.render([translate(part) for part in document.parts])             # the file, translated

DocumentError
├── UnknownFormat      no such kind of file
├── InvalidDocument    not what its name says, or not safe to open
└── DocumentTooLarge   unpacks to too much
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from service.text.languages import Languages

PartFormat = Literal["text", "html", "xml"]


class DocumentError(ValueError):
    """A file cannot be translated; the message is for the client."""


class UnknownFormat(DocumentError):
    """No such kind of file.

    Attributes:
        endings: Those there are.
    """

    def __init__(self, name: str, endings: Sequence[str]) -> None:
        super().__init__(f"{name or 'the file'} has no ending that is known; there is: {', '.join(endings)}")
        self.endings = tuple(endings)


class InvalidDocument(DocumentError):
    """The file is not what its name says, or not safe to open."""


class DocumentTooLarge(DocumentError):
    """The file unpacks to more bytes, or to more files, than are opened."""


@dataclass(frozen=True, slots=True)
class Part:
    """A text of a file, translated on its own.

    Attributes:
        text: As the translator takes it.
        format: What it is.
        untranslated: In XML: names of elements that come back as they are.
        splitting: In XML: names of elements at which a text ends; all others are inline.
        attributes: In XML: names of the attributes whose values are texts.
    """

    text: str
    format: PartFormat = "text"
    untranslated: frozenset[str] = frozenset()
    splitting: frozenset[str] = frozenset()
    attributes: tuple[str, ...] = ()


class TranslatableDocument(Protocol):
    """A file that was taken apart."""

    @property
    def parts(self) -> Sequence[Part]:
        """Its texts, in order."""

    def render(self, translations: Sequence[str], languages: Languages | None = None) -> bytes:
        """The file with other texts in the places of its own; everything else is as it was.

        Args:
            translations: One for each part.
            languages: What the file says of its language outside its parts is changed likewise; None leaves it.
        """


def decode_text(data: bytes, *, what: str = "the file") -> tuple[str, str]:
    """Text and its encoding: UTF-8, or UTF-16 with its mark.

    Returns:
        The text, a byte-order mark included, and the codec that gives `data` back.

    Raises:
        InvalidDocument: If it is neither. No other encoding is guessed: that would turn letters into others unseen.
    """
    codec = "utf-8"
    if data.startswith(b"\xff\xfe"):
        codec = "utf-16-le"
    elif data.startswith(b"\xfe\xff"):
        codec = "utf-16-be"
    try:
        return data.decode(codec), codec
    except UnicodeDecodeError as error:
        hint = "" if codec.startswith("utf-16") else ", nor UTF-16 with a byte-order mark; save it as UTF-8"
        raise InvalidDocument(f"{what} is not {codec.upper()} (at byte {error.start}){hint}") from error


def encode_text(text: str, codec: str) -> bytes:
    """Text back in the encoding it came in."""
    return text.encode(codec)
