import io
import zipfile

import pytest
from lxml import etree

from service.text.documents.formats import open_document
from service.text.documents.parts import InvalidDocument
from service.text.languages import Languages
from tests.service.text.documents.translators import translated

ODT_CONTENT = """<?xml version="1.0" encoding="UTF-8"?>
<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><office:body><office:text>
<text:h text:outline-level="1">A title</text:h>
<text:p>The <text:span text:style-name="T1">red</text:span> car.</text:p></office:text></office:body>
</office:document-content>"""

CONTAINER = """<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>"""
PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf"><manifest>
<item id="a" href="text/first%20page.xhtml" media-type="application/xhtml+xml"/>
<item id="b" href="toc.ncx" media-type="application/x-dtbncx+xml"/>
<item id="c" href="style.css" media-type="text/css"/>
<item id="d" href="../../../etc/passwd" media-type="application/xhtml+xml"/></manifest></package>"""
PAGE = """<?xml version="1.0" encoding="utf-8"?>
<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.1//EN" "http://www.w3.org/TR/xhtml11/DTD/xhtml11.dtd">
<html xmlns="http://www.w3.org/1999/xhtml"><head><title>A book</title></head><body>
<p>Once&nbsp;upon a <i>time</i>.<a id="x"/></p></body></html>"""
NCX = """<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/"><navMap><navPoint id="a"><navLabel>
<text>Begin</text></navLabel><content src="text/first%20page.xhtml"/></navPoint></navMap></ncx>"""


def zipped(contents, **options):
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content, zipfile.ZIP_STORED if name == "mimetype" else None)
    return data.getvalue()


def book(**changes):
    contents = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": CONTAINER,
        "OEBPS/book.opf": PACKAGE,
        "OEBPS/text/first page.xhtml": PAGE,
        "OEBPS/toc.ncx": NCX,
        "OEBPS/style.css": "p {}",
    }
    return zipped(contents | changes)


def opened(name, data):
    return open_document(name, data, max_expanded_bytes=1 << 24)


def test_an_opendocument_text_is_xml_in_which_formatting_stands_around_words():
    document = opened(
        "a.odt", zipped({"mimetype": "application/vnd.oasis.opendocument.text", "content.xml": ODT_CONTENT})
    )
    (part,) = document.parts
    assert part.format == "xml"
    assert "text:p" in part.splitting and "text:span" not in part.splitting
    assert "office:automatic-styles" in part.untranslated
    with zipfile.ZipFile(io.BytesIO(translated(document))) as archive:
        first = archive.infolist()[0]
        assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)
        text = archive.read("content.xml").decode()
    assert text == ODT_CONTENT.replace("A title", "A TITLE").replace("The", "THE").replace("red", "RED").replace(
        "car", "CAR"
    )


def test_the_pages_and_the_contents_of_a_book_are_translated():
    document = opened("a.epub", book())
    page, contents = document.parts
    assert ("alt" in page.attributes, contents.attributes) == (True, ())
    with zipfile.ZipFile(io.BytesIO(translated(document))) as archive:
        assert archive.namelist()[0] == "mimetype"
        page = archive.read("OEBPS/text/first page.xhtml").decode()
        assert "ONCE&nbsp;UPON A <i>TIME</i>." in page and "<title>A BOOK</title>" in page
        assert "<text>BEGIN</text>" in archive.read("OEBPS/toc.ncx").decode()
        assert archive.read("OEBPS/style.css") == b"p {}"
        assert archive.read("OEBPS/book.opf").decode() == PACKAGE


BOMB = """<?xml version="1.0"?><!DOCTYPE d [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><d>&b;</d>"""
EXTERNAL = """<?xml version="1.0"?><!DOCTYPE d [<!ENTITY a SYSTEM "file:///etc/passwd">]><d>&a;</d>"""


@pytest.mark.parametrize("page", [BOMB, EXTERNAL, BOMB.replace("&b;", ""), "<d>", "<d>&undefined;</d>", "", "\x00"])
def test_entities_of_its_own_and_broken_xml_are_refused(page):
    with pytest.raises(InvalidDocument):
        opened("a.epub", book(**{"OEBPS/text/first page.xhtml": page}))
    with pytest.raises(InvalidDocument):
        opened("a.odt", zipped({"content.xml": page}))
    with pytest.raises(InvalidDocument):
        opened("a.docx", zipped({"word/document.xml": page}))
    with pytest.raises(InvalidDocument):
        opened("a.pptx", zipped({"ppt/presentation.xml": "<p/>", "ppt/slides/slide1.xml": page}))


def test_pages_in_other_encodings_than_they_are_read_in_are_refused():
    page = PAGE.replace("utf-8", "koi8-r")
    with pytest.raises(InvalidDocument, match="koi8-r; such files must be UTF-8"):
        opened("a.epub", book(**{"OEBPS/text/first page.xhtml": page}))


def test_what_is_missing_is_named():
    for name, contents, missing in (
        ("a.odt", {"a": "b"}, "content.xml"),
        ("a.docx", {"a": "b"}, "word/document"),
        ("a.pptx", {"a": "b"}, "ppt/presentation"),
        ("a.epub", {"a": "b"}, "META-INF/container.xml"),
        ("a.epub", {"META-INF/container.xml": CONTAINER}, "OEBPS/book.opf"),
        ("a.epub", {"META-INF/container.xml": "<a/>"}, "no pages"),
    ):
        with pytest.raises(InvalidDocument, match=missing):
            opened(name, zipped(contents))


def test_a_doctype_without_entities_is_no_fault():
    assert etree.fromstring(ODT_CONTENT.encode()) is not None
    content = ODT_CONTENT.replace(
        "<office:document-content", "<!DOCTYPE office:document-content>\n<office:document-content", 1
    )
    assert len(opened("a.odt", zipped({"content.xml": content})).parts) == 1


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('car<text:s text:c="3"/>is', 'car <text:s text:c="2"/>is'),
        ("<text:span>car</text:span><text:s/>is", "<text:span>car</text:span> is"),
        ('car <text:s text:c="2"/>is', 'car <text:s text:c="2"/>is'),
        ('</text:p><text:p><text:s text:c="2"/>is', '</text:p><text:p><text:s text:c="2"/>is'),
    ],
)
def test_words_that_only_spaces_as_elements_part_stay_two(written, expected):
    content = ODT_CONTENT.replace("</text:p>", f"</text:p><text:p>{written}</text:p>", 1)
    (part,) = opened("a.odt", zipped({"content.xml": content})).parts
    assert f"<text:p>{expected}</text:p>" in part.text


@pytest.mark.parametrize("encoding", ["utf-8", "iso-8859-1"])
def test_a_book_says_which_language_it_is_in_now(encoding):
    metadata = """<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title xml:lang="en">Café</dc:title>
<dc:language id="x">en-GB</dc:language><dc:language>
 la</dc:language></metadata>"""
    package = f"<?xml version='1.0' encoding='{encoding}'?>" + PACKAGE.replace("<manifest>", metadata + "<manifest>")
    document = opened("a.epub", book(**{"OEBPS/book.opf": package.encode(encoding)}))
    texts = [part.text for part in document.parts]
    for languages, changed in (
        (None, package),
        (Languages("de", "fr"), package),
        (Languages("en", "fr"), package.replace("en-GB", "fr")),
    ):
        with zipfile.ZipFile(io.BytesIO(document.render(texts, languages))) as archive:
            assert archive.read("OEBPS/book.opf").decode(encoding) == changed
            assert archive.read("OEBPS/style.css") == b"p {}"


def test_an_opendocument_text_says_which_language_it_is_in_now():
    style = (
        '<style:style style:name="T1"><style:text-properties fo:language="{}" fo:country="{}" '
        'fo:color="#000000"/></style:style>'
    )
    styles = "<office:automatic-styles>{}{}</office:automatic-styles>".format
    namespaces = ' xmlns:style="urn:s" xmlns:fo="urn:fo" xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
    content = ODT_CONTENT.replace(" xmlns:text", ' xmlns:style="urn:s" xmlns:fo="urn:fo" xmlns:text', 1)
    before = content.replace(
        "<office:body>", styles(style.format("en", "US"), style.format("de", "DE")) + "<office:body>"
    )
    meta = f"<office:meta{namespaces} xmlns:office='o' xmlns:dc='d'><dc:language>en-US</dc:language></office:meta>"
    document = opened("a.odt", zipped({"mimetype": "x", "content.xml": before, "meta.xml": meta}))
    for target, language, country in (("fr", "fr", "none"), ("pt-BR", "pt", "BR")):
        result = document.render([part.text for part in document.parts], Languages("en", target))
        with zipfile.ZipFile(io.BytesIO(result)) as archive:
            assert archive.read("content.xml").decode() == before.replace(
                'fo:language="en" fo:country="US"', f'fo:language="{language}" fo:country="{country}"'
            )
            assert archive.read("meta.xml").decode() == meta.replace("en-US", target)
