"""OpenDocument text (`.odt`) and books (`.epub`): zip files of XML in which formatting stands around the words.

Each file in it is one part, which the translator takes apart and puts together again.
"""

from __future__ import annotations

import posixpath
import re
import urllib.parse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from service.text.documents.archive import Archive
from service.text.documents.parts import InvalidDocument, Part, decode_text, encode_text
from service.text.documents.trees import local_name, read_xml
from service.text.languages import Languages
from service.text.markup import TRANSLATED_ATTRIBUTES

_ODT_SPLITTING = frozenset(
    "text:p text:h text:tab text:line-break text:note text:note-citation text:note-body text:list text:list-item "
    "text:section text:table-of-content text:index-body text:index-title table:table table:table-row table:table-cell "
    "draw:frame draw:text-box draw:custom-shape office:annotation office:text office:body office:document-content "
    "office:document-styles office:master-styles style:master-page style:header style:footer style:header-left "
    "style:footer-left style:header-first style:footer-first".split()
)
_ODT_UNTRANSLATED = frozenset(
    "office:scripts office:font-face-decls office:automatic-styles office:styles office:meta office:settings "
    "office:forms dc:creator dc:date meta:creator-initials text:sequence-decls text:variable-decls "
    "text:user-field-decls text:tracked-changes text:page-number text:page-count text:date text:time text:sequence "
    "text:bookmark-ref text:reference-ref text:chapter text:file-name text:author-name text:author-initials "
    "text:note-citation text:bibliography-mark math:math svg:title svg:desc office:binary-data text:variable-set "
    "text:variable-get text:user-field-get text:expression text:database-display text:template-name".split()
)

# Spaces that are an element, right behind a word: the first of them can as well be written as one.
_ODT_SPACES = re.compile(
    r"""(?<=[^\s>])((?:</text:(?:span|a)>)*)<text:s(?:\s+text:c\s*=\s*["']([0-9]{1,5})["'])?\s*/>"""
)

_XHTML_SPLITTING = frozenset(
    "address article aside blockquote body br caption center dd details dialog div dl dt fieldset figcaption figure "
    "footer form h1 h2 h3 h4 h5 h6 head header hgroup hr html li link main meta nav ol optgroup option p section "
    "select summary table tbody td tfoot th thead title tr ul".split()
)
_XHTML_UNTRANSLATED = frozenset("script style code pre kbd samp var svg math object audio video template".split())
_NCX_SPLITTING = frozenset("ncx head meta docTitle docAuthor navMap navPoint navLabel text content pageList".split())
_NCX_UNTRANSLATED = frozenset({"head", "docAuthor"})

_Rules = tuple[frozenset[str], frozenset[str], tuple[str, ...]]
"""Of a file: what comes back as it is, where a text ends, which attributes are texts."""


class PagesDocument:
    """A zip file of XML files."""

    def __init__(
        self, archive: Archive, pages: Mapping[str, Part], sources: Mapping[str, str], labels: Sequence[str]
    ) -> None:
        """Takes what was read.

        Args:
            archive: The file.
            pages: The parts, by the names of their entries.
            sources: The codecs of those entries.
            labels: Names of other entries that may say which language the pages are in.
        """
        self._archive = archive
        self._pages = dict(pages)
        self._codecs = dict(sources)
        self._labels = [name for name in labels if name in archive.names]

    @property
    def parts(self) -> Sequence[Part]:
        """One for each file with text."""
        return list(self._pages.values())

    def changed(self, change: Callable[[str], str]) -> PagesDocument:
        """The same with other texts."""
        pages = {name: replace(part, text=change(part.text)) for name, part in self._pages.items()}
        return PagesDocument(self._archive, pages, self._codecs, self._labels)

    def render(self, translations: Sequence[str], languages: Languages | None = None) -> bytes:
        """The file with its pages translated."""
        texts = dict(zip(self._pages, translations, strict=True))
        contents = {name: encode_text(_declared(text, languages), self._codecs[name]) for name, text in texts.items()}
        for name in self._labels:
            # What is changed is ASCII in any encoding of theirs, and all other bytes come back as they are.
            contents[name] = _declared(self._archive.read(name).decode("latin-1"), languages).encode("latin-1")
        return self._archive.replaced(contents)


def open_odt(data: bytes, *, max_expanded_bytes: int) -> PagesDocument:
    """Opens an OpenDocument text: what is written, headers and footers.

    Raises:
        DocumentError: If it is no such file, damaged, or too large.
    """
    archive = Archive(data, max_expanded_bytes=max_expanded_bytes)
    names = [name for name in ("content.xml", "styles.xml") if name in archive.names]
    if "content.xml" not in names:
        raise InvalidDocument("the file has no content.xml in it")
    document = _pages(archive, dict.fromkeys(names, (_ODT_UNTRANSLATED, _ODT_SPLITTING, ())), ["meta.xml"])
    return document.changed(lambda text: _ODT_SPACES.sub(_spaces, text))


def open_epub(data: bytes, *, max_expanded_bytes: int) -> PagesDocument:
    """Opens a book: the pages that its manifest lists, and its table of contents.

    Raises:
        DocumentError: If it is no such file, damaged, or too large.
    """
    archive = Archive(data, max_expanded_bytes=max_expanded_bytes)
    container = read_xml(archive.read("META-INF/container.xml"), "META-INF/container.xml")
    packages = [node.get("full-path", "") for node in container.getroot().iter() if local_name(node) == "rootfile"]
    rules: dict[str, _Rules] = {}
    for package in packages:
        folder = posixpath.dirname(package)
        for item in read_xml(archive.read(package), package).getroot().iter():
            if local_name(item) != "item":
                continue
            # Only looked up among the entries: where a name leads to nothing, there is nothing.
            name = posixpath.normpath(posixpath.join(folder, urllib.parse.unquote(item.get("href", ""))))
            kind = item.get("media-type", "")
            if name not in archive.names:
                continue
            if kind == "application/xhtml+xml":
                rules[name] = (_XHTML_UNTRANSLATED, _XHTML_SPLITTING, TRANSLATED_ATTRIBUTES)
            elif kind == "application/x-dtbncx+xml":
                rules[name] = (_NCX_UNTRANSLATED, _NCX_SPLITTING, ())
    if not rules:
        raise InvalidDocument("the book has no pages in it")
    return _pages(archive, rules, packages)


def _spaces(match: re.Match[str]) -> str:
    more = int(match[2] or 1) - 1
    return f"{match[1]} " + (f'<text:s text:c="{more}"/>' if more > 0 else "")


_ENCODING = re.compile(r"""<\?xml[^>]*?encoding\s*=\s*["']([\w.-]+)["']""")


_LANGUAGE_ELEMENT = re.compile(r"(<(?:[\w.-]+:)?language(?:\s[^<>]*)?>\s*)([A-Za-z0-9-]+)")
_ODT_PROPERTIES = re.compile(r"<style:text-properties\s[^<>]*>")
_ODT_LANGUAGE = re.compile(r"""(\sfo:language\s*=\s*["'])([A-Za-z]+)""")
_ODT_COUNTRY = re.compile(r"""(\sfo:country\s*=\s*["'])([A-Za-z0-9]+)""")


def _declared(text: str, languages: Languages | None) -> str:
    """XML that says its language in another way than `xml:lang`: in `dc:language`, or in OpenDocument's styles."""
    if languages is None:
        return text

    def of_style(style: re.Match[str]) -> str:
        named = _ODT_LANGUAGE.search(style[0])
        if named is None or languages.declared(named[2]) == named[2]:
            return style[0]
        language, _, country = languages.target.partition("-")
        changed = _ODT_LANGUAGE.sub(lambda match: match[1] + language, style[0])
        return _ODT_COUNTRY.sub(lambda match: match[1] + (country or "none"), changed)

    text = _LANGUAGE_ELEMENT.sub(lambda match: match[1] + languages.declared(match[2]), text)
    return _ODT_PROPERTIES.sub(of_style, text)


def _pages(archive: Archive, rules: Mapping[str, _Rules], labels: Sequence[str]) -> PagesDocument:
    pages, codecs = {}, {}
    for name, (untranslated, splitting, attributes) in rules.items():
        data = archive.read(name)
        read_xml(data, name)  # refuses what is not well-formed, or defines entities
        text, codec = decode_text(data, what=name)
        named = _ENCODING.search(text[:200])
        if named and not named[1].lower().startswith(("utf-8", "utf-16", "us-ascii")):
            raise InvalidDocument(f"{name} is in {named[1]}; such files must be UTF-8")
        pages[name] = Part(text, "xml", untranslated, splitting, attributes)
        codecs[name] = codec
    return PagesDocument(archive, pages, codecs, labels)
