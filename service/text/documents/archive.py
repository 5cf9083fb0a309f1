"""Zip files that hold documents: opened with limits, and written again as they were but for what was replaced."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping

from service.text.documents.parts import DocumentTooLarge, InvalidDocument

MAX_ENTRIES = 5_000

# Whatever a damaged file can make zipfile and its decompressors raise.
_FAULTS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
)


class Archive:
    """A zip file in memory. Nothing is ever unpacked to a disk, so that names in it cannot lead anywhere."""

    def __init__(self, data: bytes, *, max_expanded_bytes: int) -> None:
        """Opens a file.

        Args:
            data: All of it.
            max_expanded_bytes: The most that all its entries may have together.

        Raises:
            InvalidDocument: If it is no zip file, encrypted, or damaged.
            DocumentTooLarge: If it says that it unpacks to more, or has too many entries.
        """
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except _FAULTS as error:
            raise InvalidDocument(f"the file is no zip archive, as such documents are ({error})") from error
        entries = self._zip.infolist()
        if len(entries) > MAX_ENTRIES:
            raise DocumentTooLarge(f"the file holds {len(entries)} others; at most {MAX_ENTRIES} are opened")
        num_bytes = sum(entry.file_size for entry in entries)
        if num_bytes > max_expanded_bytes:
            raise DocumentTooLarge(f"the file unpacks to {num_bytes} bytes; at most {max_expanded_bytes} are opened")
        if any(entry.flag_bits & 0x1 for entry in entries):
            raise InvalidDocument("the file is encrypted")
        # Others may unpack a few bytes to very many at once.
        if any(entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for entry in entries):
            raise InvalidDocument("the file is compressed in a way that such documents are not")
        if len({entry.filename for entry in entries}) < len(entries):
            raise InvalidDocument("the file has two entries of one name")

    @property
    def names(self) -> list[str]:
        """Of all entries, in order."""
        return self._zip.namelist()

    def read(self, name: str) -> bytes:
        """An entry; never more bytes than it said it has.

        Raises:
            InvalidDocument: If there is none, or it is damaged.
        """
        try:
            return self._zip.read(name)
        except KeyError as error:
            raise InvalidDocument(f"the file has no {name} in it") from error
        except _FAULTS as error:
            raise InvalidDocument(f"{name} in the file is damaged ({error})") from error

    def replaced(self, contents: Mapping[str, bytes]) -> bytes:
        """The file with other contents for some entries; order, times, attributes and compression stay.

        Raises:
            InvalidDocument: If an entry is damaged.
        """
        output = io.BytesIO()
        with zipfile.ZipFile(output, "w") as target:
            target.comment = self._zip.comment
            for entry in self._zip.infolist():
                copied = zipfile.ZipInfo(entry.filename, entry.date_time)
                copied.compress_type = entry.compress_type
                copied.comment, copied.create_system = entry.comment, entry.create_system
                copied.external_attr, copied.internal_attr = entry.external_attr, entry.internal_attr
                content = contents.get(entry.filename)
                target.writestr(copied, self.read(entry.filename) if content is None else content)
        return output.getvalue()
