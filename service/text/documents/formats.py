"""Which kinds of file there are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from service.text.documents.office import open_slides, open_word
from service.text.documents.pages import open_epub, open_odt
from service.text.documents.parts import TranslatableDocument, UnknownFormat
from service.text.documents.plain import HtmlDocument, PlainDocument
from service.text.documents.subtitles import SubtitleDocument


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A kind of file.

    Attributes:
        media_type: Its name in HTTP.
        open: Takes all its bytes, and the most that it may unpack to.
    """

    media_type: str
    open: Callable[[bytes, int], TranslatableDocument]


FORMATS: Mapping[str, FileFormat] = {
    ".txt": FileFormat("text/plain", lambda data, _: PlainDocument(data)),
    ".html": FileFormat("text/html", lambda data, _: HtmlDocument(data)),
    ".htm": FileFormat("text/html", lambda data, _: HtmlDocument(data)),
    ".srt": FileFormat("application/x-subrip", lambda data, _: SubtitleDocument(data)),
    ".docx": FileFormat(
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        lambda data, most: open_word(data, max_expanded_bytes=most),
    ),
    ".pptx": FileFormat(
        "application/vnd.openxmlformats-officedocument.presentationml.presentation",
        lambda data, most: open_slides(data, max_expanded_bytes=most),
    ),
    ".odt": FileFormat(
        "application/vnd.oasis.opendocument.text", lambda data, most: open_odt(data, max_expanded_bytes=most)
    ),
    ".epub": FileFormat("application/epub+zip", lambda data, most: open_epub(data, max_expanded_bytes=most)),
}
"""By the ending of the name, in small letters."""


def file_ending(name: str) -> str:
    """The ending of a file's name, in small letters.

    Raises:
        UnknownFormat: If it is none of `FORMATS`.
    """
    ending = PurePosixPath(name.replace("\\", "/")).suffix.lower()
    if ending not in FORMATS:
        raise UnknownFormat(name[:100], list(FORMATS))
    return ending


def open_document(name: str, data: bytes, *, max_expanded_bytes: int) -> TranslatableDocument:
    """Takes a file apart.

    Args:
        name: Its name, of which only the ending counts.
        data: All of it.
        max_expanded_bytes: The most that it may unpack to.

    Raises:
        DocumentError: If it cannot be translated; the message is for the client.
    """
    return FORMATS[file_ending(name)].open(data, max_expanded_bytes)
