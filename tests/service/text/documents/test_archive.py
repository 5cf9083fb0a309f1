import io
import struct
import zipfile
import zlib

import pytest

from service.text.documents.archive import MAX_ENTRIES, Archive
from service.text.documents.parts import DocumentTooLarge, InvalidDocument


def zipped(contents, compression=zipfile.ZIP_DEFLATED):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", compression) as archive:
        for name, content in contents:
            archive.writestr(name, content)
    return data.getvalue()


def test_a_bomb_is_refused_before_it_is_unpacked():
    data = zipped([("a", b"\0" * 5_000_000)])
    assert len(data) < 10_000
    with pytest.raises(DocumentTooLarge, match="unpacks to 5000000 bytes; at most 1000000"):
        Archive(data, max_expanded_bytes=1_000_000)


def test_an_entry_that_lies_about_its_size_gives_no_more_than_it_said():
    honest = zipped([("a", b"\0" * 5_000_000)])
    size = struct.pack("<L", 5_000_000)
    assert honest.count(size) == 2  # before the entry and in the directory
    archive = Archive(honest.replace(size, struct.pack("<L", 10)), max_expanded_bytes=1000)
    with pytest.raises(InvalidDocument, match="damaged"):
        archive.read("a")


def test_too_many_entries_are_refused():
    with pytest.raises(DocumentTooLarge, match=f"holds {MAX_ENTRIES + 1} others"):
        Archive(zipped([(str(index), b"") for index in range(MAX_ENTRIES + 1)]), max_expanded_bytes=1000)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_other_strange_files_are_refused():
    for data, message in (
        (b"", "no zip archive"),
        (b"PK\x03\x04 but no more", "no zip archive"),
        (zipped([("a", b"1"), ("a", b"2")]), "two entries of one name"),
        (zipped([("a", b"1")], zipfile.ZIP_LZMA), "compressed in a way"),
        (zipped([("a", b"1")], zipfile.ZIP_BZIP2), "compressed in a way"),
    ):
        with pytest.raises(InvalidDocument, match=message):
            Archive(data, max_expanded_bytes=1000)


def test_encrypted_files_are_refused():
    data = bytearray(zipped([("a", b"1")]))
    directory = data.index(b"PK\x01\x02")
    data[directory + 8] |= 1
    with pytest.raises(InvalidDocument, match="encrypted"):
        Archive(bytes(data), max_expanded_bytes=1000)


def test_damage_is_found_when_it_is_read():
    data = zipped([("a", b"hello " * 100)])
    packed = zlib.compressobj(wbits=-15)
    start = data.index(packed.compress(b"hello " * 100) + packed.flush())
    archive = Archive(data[: start + 3] + b"\xff\xff" + data[start + 5 :], max_expanded_bytes=1000)
    with pytest.raises(InvalidDocument, match="damaged"):
        archive.read("a")
    with pytest.raises(InvalidDocument):
        archive.replaced({})
    with pytest.raises(InvalidDocument, match="no b in it"):
        archive.read("b")


def test_names_that_lead_elsewhere_lead_nowhere():
    archive = Archive(zipped([("../../evil", b"1"), ("/abs", b"2")]), max_expanded_bytes=1000)
    with zipfile.ZipFile(io.BytesIO(archive.replaced({"/abs": b"3"}))) as copy:
        assert [copy.read(name) for name in copy.namelist()] == [b"1", b"3"]
