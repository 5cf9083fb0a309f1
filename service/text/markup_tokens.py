"""HTML and XML to tokens that put together are the document, byte for byte, and nested as they should be.

HTML is read by turbohtml's tokenizer (the algorithm of the WHATWG, with the place of every token), XML by expat. What
is wrong in HTML is put right with as little change as possible: end tags that are missing are added where a browser
takes them for granted, end tags that end nothing are left out, a bare `<` is escaped. XML must be well-formed.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from xml.parsers import expat

import turbohtml


class MarkupError(ValueError):
    """A document cannot be read; the message says what is wrong, and where.

    Attributes:
        index: Which one, where there are several.
    """

    def __init__(self, message: str, index: int = 0) -> None:
        super().__init__(message)
        self.index = index


class Kind(Enum):
    """What a token is."""

    TEXT = "text"
    REFERENCE = "reference"
    OPEN = "open"
    CLOSE = "close"
    VOID = "void"
    COMMENT = "comment"
    CDATA = "cdata"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Token:
    """A stretch of the document.

    Attributes:
        kind: `VOID` is an element without an end tag (`<br>`, `<x/>`), `OTHER` a doctype, a processing instruction and
            the like, `CDATA` a whole section.
        start: Where it begins in the document, in code points.
        end: One past its end there; the same as `start` for what a repair added.
        raw: Its characters.
        name: Of an element, in HTML in small letters.
        text: What a `TEXT`, a `REFERENCE` or a `CDATA` stands for.
        attributes: Of an element, references resolved; in HTML their names in small letters.
    """

    kind: Kind
    start: int
    end: int
    raw: str
    name: str = ""
    text: str = ""
    attributes: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_text(self) -> bool:
        """Whether it stands for characters that a reader sees, outside CDATA."""
        return self.kind in (Kind.TEXT, Kind.REFERENCE)


VOID_ELEMENTS = frozenset("area base br col embed hr img input link meta param source track wbr".split())

_RAW_TEXT = frozenset("script style iframe noembed noframes xmp plaintext".split())
"""What stands in them is no markup, and nothing in it is escaped."""

_RAW_CHARACTERS = frozenset({"title", "textarea"})
"""What stands in them is text with references, and no tag."""

_NO_MARKUP = _RAW_TEXT | _RAW_CHARACTERS | {"noscript"}

_LINE_BREAK = re.compile("\r\n|\r|\n")
_BARE_LESS_THAN = re.compile("<")
_CUT_END_TAG = re.compile(r"</([A-Za-z][^\s/>\0]*)[\s/]*")

# https://html.spec.whatwg.org/multipage/syntax.html#optional-tags: which start tags end which open elements ...
_ENDS_P = frozenset(
    "address article aside blockquote center details dialog dir div dl fieldset figcaption figure footer form h1 h2 h3 "
    "h4 h5 h6 header hgroup hr listing main menu nav ol p plaintext pre search section table ul xmp".split()
)
_ENDED_BY: Mapping[str, frozenset[str]] = {
    **{name: frozenset({"p"}) for name in _ENDS_P},
    "li": frozenset({"li", "p"}),
    "dt": frozenset({"dt", "dd", "p"}),
    "dd": frozenset({"dt", "dd", "p"}),
    "option": frozenset({"option"}),
    "optgroup": frozenset({"option", "optgroup"}),
    "tr": frozenset({"tr", "td", "th", "caption", "colgroup"}),
    "td": frozenset({"td", "th"}),
    "th": frozenset({"td", "th"}),
    "thead": frozenset({"caption", "colgroup"}),
    "tbody": frozenset({"tr", "td", "th", "thead", "tbody", "caption", "colgroup"}),
    "tfoot": frozenset({"tr", "td", "th", "thead", "tbody", "caption", "colgroup"}),
    "rt": frozenset({"rt", "rp"}),
    "rp": frozenset({"rt", "rp"}),
    "body": frozenset({"head"}),
}
# ... and past which elements neither a start tag nor an end tag reaches.
_SCOPES: Mapping[str, frozenset[str]] = {
    "li": frozenset("ul ol menu".split()),
    "dt": frozenset({"dl"}),
    "dd": frozenset({"dl"}),
    "option": frozenset("select datalist optgroup".split()),
    "optgroup": frozenset({"select"}),
    **{name: frozenset({"table"}) for name in "tr thead tbody tfoot".split()},
    "td": frozenset("tr table".split()),
    "th": frozenset("tr table".split()),
}
_SCOPE = frozenset("td th caption table button object template svg math".split())
_TABLE_PARTS = frozenset("table caption colgroup thead tbody tfoot tr td th".split())


def html_tokens(document: str) -> list[Token]:
    """The tokens of HTML: a fragment or a whole document, whatever is wrong with it.

    Returns:
        Tokens whose `raw` put together are the document, apart from repairs; start and end tags are nested. Takes time
        linear in its length.
    """
    return list(_nested(_tokenized(document)))


def _tokenized(document: str) -> Iterator[Token]:
    lines = [0, *(match.end() for match in _LINE_BREAK.finditer(document))]
    found = list(turbohtml.tokenize(document, resolve_references=False, capture_source=True))
    places = [lines[token.line - 1] + token.col for token in found]
    done, last_name = 0, ""
    for token, start, limit in zip(found, places, [*places[1:], len(document)][: len(places)], strict=True):
        normal = token.source if token.source is not None else token.data or ""
        end, raw = _raw(document, start, limit, len(normal), drops=last_name not in _NO_MARKUP)
        done = end
        kind = _KINDS.get(token.type.name, Kind.OTHER)
        if kind is Kind.TEXT and last_name == "noscript":
            # Raw text for browsers with scripts, markup for those without; people read the latter.
            for inner in _tokenized(raw):
                yield replace(inner, start=inner.start + start, end=inner.end + start)
        elif kind is Kind.TEXT and last_name in _RAW_TEXT:
            yield Token(Kind.OTHER, start, end, raw)
        elif kind is Kind.TEXT:
            yield Token(kind, start, end, raw, text=raw.replace("\0", "\ufffd"))
        elif kind is Kind.REFERENCE:
            yield Token(kind, start, end, raw, text=token.data or "")
        elif kind in (Kind.OPEN, Kind.CLOSE):
            name = token.tag or ""
            last_name = name if kind is Kind.OPEN else ""
            if kind is Kind.OPEN and (name in VOID_ELEMENTS or token.self_closing):
                kind = Kind.VOID
            yield Token(kind, start, end, raw, name, attributes=dict(token.attrs or ()))
        else:
            # A comment, or a declaration, that the document's end cuts off.
            yield Token(kind, start, end, raw if raw.endswith(">") else _closed(raw))
    if done < len(document):  # a tag that the document's end cuts off: nobody sees it, but it is the caller's
        rest = document[done:]
        closing = _CUT_END_TAG.fullmatch(rest)
        if closing is not None:
            yield Token(Kind.CLOSE, done, len(document), rest.rstrip("/") + ">", closing[1].lower())
        else:
            yield Token(Kind.OTHER, done, len(document), rest.replace("<", "&lt;"))


def _raw(document: str, start: int, limit: int, num_normal: int, *, drops: bool) -> tuple[int, str]:
    """Where a token ends, and how it is written, whose line breaks were made single characters.

    Within a text `</>` is left out, if the tokenizer `drops` it there.
    """
    raw, end = [], start
    for _ in range(num_normal):
        while drops and document.startswith("</>", end):
            end += 3
        if end >= limit:
            break
        width = 2 if document.startswith("\r\n", end) else 1
        raw.append(document[end : end + width])
        end += width
    return min(end, limit), "".join(raw)


def _closed(raw: str) -> str:
    if raw.startswith("<!--"):
        return raw.removesuffix("-").removesuffix("-") + "-->" if len(raw) > 4 else "<!---->"
    return raw + ">"


_KINDS = {
    "TEXT": Kind.TEXT,
    "CHARACTER_REFERENCE": Kind.REFERENCE,
    "START_TAG": Kind.OPEN,
    "END_TAG": Kind.CLOSE,
    "COMMENT": Kind.COMMENT,
}


class _Open:
    """The elements that are open, so that none is looked at twice: documents may be thousands deep."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self._places: defaultdict[str, list[int]] = defaultdict(list)

    def push(self, name: str) -> None:
        self._places[name].append(len(self.names))
        self.names.append(name)

    def pop(self) -> str:
        name = self.names.pop()
        self._places[name].pop()
        return name

    def ended_depth(self, name: str) -> int | None:
        """How many elements stay open at a start tag; None if all do."""
        ended = _ENDED_BY.get(name)
        if ended is None:
            return None
        scope = self._innermost(_SCOPES.get(name, _SCOPE))
        depths = []
        for each in ended:
            places = self._places[each]
            first = bisect_right(places, scope)
            depths += places[first : first + 1]
        return min(depths, default=None)

    def opened_depth(self, name: str) -> int | None:
        """The place of the open element that an end tag ends, or None."""
        place = self._innermost((name,))
        is_reached = name in _TABLE_PARTS or self._innermost(_SCOPE) <= place
        return place if place >= 0 and is_reached else None

    def _innermost(self, names: Iterable[str]) -> int:
        return max((self._places[name][-1] for name in names if self._places[name]), default=-1)


def _nested(tokens: Iterator[Token]) -> Iterator[Token]:
    """Adds the end tags that are missing, leaves out those that end nothing."""
    elements = _Open()
    end = 0

    def close(depth: int, place: int) -> Iterator[Token]:
        while len(elements.names) > depth:
            name = elements.pop()
            yield Token(Kind.CLOSE, place, place, f"</{name}>", name)

    for token in tokens:
        end = token.end
        if token.kind in (Kind.OPEN, Kind.VOID):
            depth = elements.ended_depth(token.name)
            if depth is not None:
                yield from close(depth, token.start)
            if token.kind is Kind.OPEN:
                elements.push(token.name)
        elif token.kind is Kind.CLOSE:
            depth = elements.opened_depth(token.name)
            if depth is None:
                continue
            yield from close(depth + 1, token.start)
            elements.pop()
        yield token
    yield from close(0, end)


_XML_ROOT = "gossamer"


def xml_tokens(document: str) -> list[Token]:
    """The tokens of XML: a document, or a fragment without a root of its own.

    Entities other than the five of XML are not known here; they come as references whose text HTML knows, or U+FFFC.

    Raises:
        MarkupError: If it is not well-formed.
    """
    is_whole = document.lstrip("\ufeff \t\r\n").startswith(("<?xml", "<!DOCTYPE"))
    before = "" if is_whole else f"<{_XML_ROOT}>"
    data = (before + document + ("" if is_whole else f"</{_XML_ROOT}>")).encode()
    # (place in bytes, kind, name, attributes); each event reaches to the next one.
    events: list[tuple[int, Kind, str, Mapping[str, str]]] = []
    parser = expat.ParserCreate("utf-8")

    def event(kind: Kind, name: str = "", attributes: Mapping[str, str] | None = None) -> None:
        events.append((parser.CurrentByteIndex, kind, name, attributes or {}))

    def outside(names: str | None, *_: str | None) -> int:
        if names:  # none for the DTD
            event(Kind.REFERENCE, names)
        return 1

    parser.StartElementHandler = lambda name, attributes: event(Kind.OPEN, name, attributes)
    parser.EndElementHandler = lambda name: event(Kind.CLOSE, name)
    parser.CharacterDataHandler = lambda _: event(Kind.TEXT)
    parser.SkippedEntityHandler = lambda name, _: event(Kind.REFERENCE, name)
    parser.CommentHandler = lambda _: event(Kind.COMMENT)
    parser.ProcessingInstructionHandler = lambda *_: event(Kind.OTHER)
    parser.XmlDeclHandler = lambda *_: event(Kind.OTHER)
    parser.StartDoctypeDeclHandler = lambda *_: event(Kind.OTHER)
    parser.EndDoctypeDeclHandler = lambda: event(Kind.OTHER)
    parser.StartCdataSectionHandler = lambda: event(Kind.CDATA, "start")
    parser.EndCdataSectionHandler = lambda: event(Kind.CDATA, "end")
    parser.DefaultHandler = lambda _: event(Kind.OTHER)
    # Nothing is read from elsewhere, and no entity is replaced: what the document does not declare is no error.
    parser.UseForeignDTD(True)
    parser.ExternalEntityRefHandler = outside
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        column = error.offset - (len(before) if error.lineno == 1 else 0)
        reason = expat.ErrorString(error.code) or "not well-formed"
        raise MarkupError(f"{reason}, in line {error.lineno}, column {max(column, 0) + 1}") from error
    tokens = _between(data, events)
    inside = tokens if is_whole else tokens[1:-1]
    return [replace(token, start=token.start - len(before), end=token.end - len(before)) for token in inside]


def _between(data: bytes, events: Sequence[tuple[int, Kind, str, Mapping[str, str]]]) -> list[Token]:
    """A token for each event, which reaches to the next one; a section of CDATA is one."""
    tokens: list[Token] = []
    section: str | None = None
    position = 0
    starts = [0, *(place for place, *_ in events[1:])] if events else []
    for (_, kind, name, attributes), start, end in zip(events, starts, [*starts[1:], len(data)], strict=True):
        raw = data[start:end].decode()
        position += len(raw)
        if section is not None:
            section += raw
            if kind is Kind.CDATA:
                tokens.append(_xml_token(Kind.CDATA, position - len(section), section, "", {}))
                section = None
        elif kind is Kind.CDATA:
            section = raw
        elif raw:
            tokens.append(_xml_token(kind, position - len(raw), raw, name, attributes))
        elif kind is Kind.CLOSE:  # of an empty element: its start tag was all of it
            tokens[-1] = replace(tokens[-1], kind=Kind.VOID)
    return tokens


def _xml_token(kind: Kind, start: int, raw: str, name: str, attributes: Mapping[str, str]) -> Token:
    text = ""
    if kind is Kind.TEXT and raw.startswith("&"):
        kind, text = Kind.REFERENCE, html.unescape(raw)
    elif kind is Kind.TEXT:
        text = raw
    elif kind is Kind.REFERENCE:
        name, text = "", html.unescape(raw)
        text = text if text != raw else "\ufffc"
    elif kind is Kind.CDATA:
        text = raw.removeprefix("<![CDATA[").removesuffix("]]>")
    return Token(kind, start, start + len(raw), raw, name, text, attributes)


def shown_raw(token: Token) -> str:
    """The token as it is written where it is not translated: a bare `<` in a text is escaped."""
    return _BARE_LESS_THAN.sub("&lt;", token.raw) if token.kind is Kind.TEXT else token.raw
