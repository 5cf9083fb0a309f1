import pytest

from service.text.documents.formats import FORMATS, file_ending, open_document
from service.text.documents.parts import InvalidDocument, UnknownFormat
from tests.service.text.documents.translators import translated

LIMIT = 1 << 20


def through(name, data):
    return translated(open_document(name, data, max_expanded_bytes=LIMIT))


@pytest.mark.parametrize("codec", ["utf-8", "utf-8-sig", "utf-16"])
def test_text_keeps_its_encoding_and_line_breaks(codec):
    text = "Où ça?\r\n\r\n\tGare\n\nlast line"
    assert through("a.txt", text.encode(codec)).decode(codec) == text.upper()
    assert through("a.txt", b"") == b""


def test_long_text_is_several_parts_that_end_with_lines():
    text = "".join(f"Line {index} of a long text.\n" for index in range(2000))
    document = open_document("long.txt", text.encode(), max_expanded_bytes=LIMIT)
    assert len(document.parts) > 10
    assert all(part.text.endswith("\n") and len(part.text) <= 4000 for part in document.parts)
    assert translated(document) == text.upper().encode()


@pytest.mark.parametrize("data", [b"caf\xe9", b"\xff\xfea", b"\xfe\xff\xd8\x00\x00a"])
def test_other_encodings_are_refused_and_not_guessed(data):
    with pytest.raises(InvalidDocument, match="is not UTF-"):
        open_document("a.txt", data, max_expanded_bytes=LIMIT)


@pytest.mark.parametrize(
    ("head", "codec"),
    [
        ("", "utf-8"),
        ('<meta charset="utf-8">', "utf-8"),
        ('<meta charset="iso-8859-1">', "cp1252"),
        ('<meta http-equiv="Content-Type" content="text/html; charset=windows-1252">', "cp1252"),
        ("<meta charset=koi8-r>", "koi8-r"),
    ],
)
def test_a_page_is_read_and_written_in_the_encoding_that_it_names(head, codec):
    word = "да" if codec == "koi8-r" else "é—x" if codec == "cp1252" else "é🙂x"
    page = f"{head}<p>{word}</p>"
    assert through("a.html", page.encode(codec)).decode(codec) == f"{head}<p>{word.upper()}</p>"


def test_what_a_page_s_encoding_has_not_becomes_a_reference():
    document = open_document("a.htm", b'<meta charset="iso-8859-1"><p>a</p>', max_expanded_bytes=LIMIT)
    page = document.render(['<meta charset="iso-8859-1"><p>\u0153uvre \u2192</p>'])
    assert page == b'<meta charset="iso-8859-1"><p>\x9cuvre &#8594;</p>'


@pytest.mark.parametrize("charset", ["utf-8", "no-such-thing", "unicode_escape", "hex"])
def test_a_page_that_says_what_is_not_so_is_refused(charset):
    with pytest.raises(InvalidDocument):
        open_document("a.html", f"<meta charset={charset}><p>".encode() + b"\xe9\\", max_expanded_bytes=LIMIT)


def test_the_ending_of_the_name_decides():
    assert file_ending("Dir/Report.DOCX") == ".docx"
    assert file_ending("..\\..\\page.htm") == ".htm"
    for name in ("", "a", "a.pdf", "docx", "a.docx/b", ".txt"):
        with pytest.raises(UnknownFormat, match=r"there is: \.txt, \.html"):
            file_ending(name)
    assert set(FORMATS) == {".txt", ".html", ".htm", ".srt", ".docx", ".pptx", ".odt", ".epub"}
