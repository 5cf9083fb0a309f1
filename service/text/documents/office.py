"""Word (`.docx`) and PowerPoint (`.pptx`): zip files of XML in which only the words are exchanged."""

from __future__ import annotations

import re
from collections.abc import Sequence

from lxml import etree

from service.text.documents.archive import Archive
from service.text.documents.parts import InvalidDocument, Part
from service.text.documents.runs import SLIDES, WORD, Stretch, Vocabulary, paragraph_stretches
from service.text.documents.trees import local_name, read_xml, write_xml
from service.text.languages import Languages

_WORD_FILES = re.compile(r"word/(?:document|header|footer|footnotes|endnotes|comments)\d*\.xml")
_SLIDE_FILES = re.compile(r"ppt/(?:slides/slide|notesSlides/notesSlide|diagrams/data|charts/chart)\d+\.xml")

_LANGUAGE_FILES = ("word/styles.xml", "word/settings.xml", "ppt/presentation.xml", "docProps/core.xml")
"""Without text, but they say which language it is in."""

_WORD_NAMESPACES = (
    "http://schemas.openxmlformats.org/wordprocessingml/2006/main",
    "http://purl.oclc.org/ooxml/wordprocessingml/main",
)
_DRAWING_NAMESPACES = (
    "http://schemas.openxmlformats.org/drawingml/2006/main",
    "http://purl.oclc.org/ooxml/drawingml/main",
)


class OfficeDocument:
    """A Word document, or a presentation."""

    def __init__(self, data: bytes, *, max_expanded_bytes: int, files: re.Pattern[str], required: str) -> None:
        """Opens a file.

        Args:
            data: All of it.
            max_expanded_bytes: As for `Archive`.
            files: Names of the entries that hold text.
            required: How an entry's name begins that there must be.

        Raises:
            DocumentError: If it is no such file, damaged, or too large.
        """
        self._archive = Archive(data, max_expanded_bytes=max_expanded_bytes)
        names = [name for name in self._archive.names if files.fullmatch(name)]
        if not any(name.startswith(required) for name in self._archive.names):
            raise InvalidDocument(f"the file has no {required} in it")
        self._sources = {name: self._archive.read(name) for name in names}
        self._trees = {name: read_xml(source, name) for name, source in self._sources.items()}
        self._stretches: list[Stretch] = []
        for tree in self._trees.values():
            # Listed first: paragraphs stand in others (text boxes), and all are taken apart.
            for paragraph, vocabulary in list(_paragraphs(tree)):
                self._stretches += paragraph_stretches(paragraph, vocabulary)
        self._parts = [stretch.part() for stretch in self._stretches]

    @property
    def parts(self) -> Sequence[Part]:
        """What stands between the breaks of paragraphs."""
        return self._parts

    def render(self, translations: Sequence[str], languages: Languages | None = None) -> bytes:
        """The file with its words translated. Only once: it is written into what was read."""
        for stretch, translation in zip(self._stretches, translations, strict=True):
            stretch.write(translation)
        contents: dict[str, bytes] = {}
        for name, tree in self._trees.items():
            if languages is not None:
                _declare(tree, languages)
            contents[name] = write_xml(tree, self._sources[name])
        if languages is not None:
            for name in set(_LANGUAGE_FILES) & set(self._archive.names):
                source = self._archive.read(name)
                tree = read_xml(source, name)
                if _declare(tree, languages):
                    contents[name] = write_xml(tree, source)
        return self._archive.replaced(contents)


def open_word(data: bytes, *, max_expanded_bytes: int) -> OfficeDocument:
    """Opens a Word document: text, headers, footers, notes, comments, text boxes."""
    return OfficeDocument(data, max_expanded_bytes=max_expanded_bytes, files=_WORD_FILES, required="word/document")


def open_slides(data: bytes, *, max_expanded_bytes: int) -> OfficeDocument:
    """Opens a presentation: slides, notes, diagrams, titles in charts."""
    return OfficeDocument(data, max_expanded_bytes=max_expanded_bytes, files=_SLIDE_FILES, required="ppt/presentation")


def _paragraphs(tree: etree._ElementTree) -> list[tuple[etree._Element, Vocabulary]]:
    found = []
    for node in tree.getroot().iter(etree.Element):
        if local_name(node) == "p":
            namespace = etree.QName(node).namespace
            if namespace in _WORD_NAMESPACES:
                found.append((node, WORD))
            elif namespace in _DRAWING_NAMESPACES:
                found.append((node, SLIDES))
    return found


def _declare(tree: etree._ElementTree, languages: Languages) -> bool:
    """Changes what a file says of its language; returns whether it said something that had to be changed.

    Word: `<w:lang w:val="en-US"/>`. PowerPoint: `<a:rPr lang="en-US">`. Both: `<dc:language>en-US</dc:language>`.
    """
    changed = False
    for node in tree.getroot().iter(etree.Element):
        namespace, name = etree.QName(node).namespace, local_name(node)
        if name == "language" and node.text:
            declared = languages.declared(node.text)
            changed = changed or declared != node.text
            node.text = declared
            continue
        if namespace in _WORD_NAMESPACES and name in ("lang", "themeFontLang"):
            attribute = f"{{{namespace}}}val"
        elif namespace in _DRAWING_NAMESPACES and name in ("rPr", "defRPr", "endParaRPr"):
            attribute = "lang"
        else:
            continue
        code = node.get(attribute)
        if code and languages.declared(code) != code:
            node.set(attribute, languages.declared(code))
            changed = True
    return changed
