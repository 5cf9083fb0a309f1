"""Paragraphs of runs, as in Word and PowerPoint: text and its formatting side by side, not one in the other.

    <w:p><w:r><w:t>The </w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>red</w:t></w:r><w:r><w:t> car.</w:t></w:r></w:p>

A paragraph is one text between its tabs and line breaks. Most have one formatting and are plain text. The others become
HTML in which each run that differs from the main one is an element, so that the translator finds its place:

    The <span data-g="1">red</span> car.      ->      La voiture <span data-g="1">rouge</span>.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from html.parser import HTMLParser

from lxml import etree

from service.text.documents.parts import Part
from service.text.documents.trees import local_name

_SPACE_ATTRIBUTE = "{http://www.w3.org/XML/1998/namespace}space"
_HYPHENS = {"noBreakHyphen": "\u2011", "softHyphen": "\u00ad"}
"""Elements of Word that are a character within a word, and that character."""

_NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Names of elements, without their namespaces.

    Attributes:
        breaks: In a run: part the paragraph.
        holders: Hold runs themselves: links, insertions.
        marks: Beside runs, and of no extent: where a comment begins.
        settings: At the beginning of a paragraph or a holder, or at its end.
        ignored_settings: Parts of a run's formatting that make no difference to the eye.
    """

    breaks: frozenset[str]
    holders: frozenset[str]
    marks: frozenset[str]
    settings: frozenset[str]
    ignored_settings: frozenset[str]


WORD = Vocabulary(
    breaks=frozenset({"tab", "br", "cr", "ptab"}),
    holders=frozenset({"hyperlink", "ins", "smartTag", "fldSimple", "moveTo", "sdt", "sdtContent", "customXml"}),
    marks=frozenset(
        {
            "proofErr",
            "bookmarkStart",
            "bookmarkEnd",
            "commentRangeStart",
            "commentRangeEnd",
            "permStart",
            "permEnd",
            "moveFromRangeStart",
            "moveFromRangeEnd",
            "moveToRangeStart",
            "moveToRangeEnd",
            "del",
            "moveFrom",
        }
    ),
    settings=frozenset({"pPr", "sdtPr", "sdtEndPr", "smartTagPr", "customXmlPr", "fldData"}),
    ignored_settings=frozenset({"lang", "noProof", "webHidden"}),
)

SLIDES = Vocabulary(
    breaks=frozenset({"br"}),
    holders=frozenset(),
    marks=frozenset(),
    settings=frozenset({"pPr", "endParaRPr"}),
    ignored_settings=frozenset(),
)
_IGNORED_ATTRIBUTES = frozenset({"lang", "altLang", "dirty", "err", "noProof", "smtClean", "smtId", "bmk"})


@dataclass(slots=True)
class _Text:
    """Text of one formatting."""

    text: str
    key: bytes
    run: etree._Element


@dataclass(slots=True)
class _Thing:
    """Something in the line that is no text: a picture, a footnote's number, a field of several runs."""

    nodes: list[etree._Element]


@dataclass(slots=True)
class _Holder:
    """An element with runs in it."""

    node: etree._Element
    content: etree._Element
    items: list[_Item]


_Item = _Text | _Thing | _Holder
_Nested = list["str | tuple[int, _Nested]"]


@dataclass(slots=True)
class Stretch:
    """What stands between two breaks of a paragraph, and is translated as one text.

    Attributes:
        parent: Whose children the items are.
        items: The text and what is in it.
        anchor: The child of `parent` behind which the items stand; None at its beginning.
    """

    parent: etree._Element
    items: list[_Item]
    anchor: etree._Element | None

    def part(self) -> Part:
        """The text."""
        if len(self.items) == 1 and isinstance(self.items[0], _Text):
            return Part(self.items[0].text)
        return Part(_to_html(self.items, _Numbers()), "html")

    def write(self, translation: str) -> None:
        """Puts the translation where the text was."""
        if len(self.items) == 1 and isinstance(self.items[0], _Text):
            nested: _Nested = [translation]
        else:
            nested = _from_html(translation, self.items)
        nodes = _nodes(nested, self.items, _numbered(self.items))
        _put(self.parent, self.anchor, nodes)


def paragraph_stretches(paragraph: etree._Element, vocabulary: Vocabulary) -> list[Stretch]:
    """Takes a paragraph apart; runs that hold several things become several runs, which look the same.

    Returns:
        Only stretches that have text.
    """
    _part_runs(paragraph)
    found: list[Stretch] = []
    children: list[etree._Element] = []
    for child in [*paragraph, None]:
        if child is None or local_name(child) in vocabulary.settings or _is_break(child, vocabulary):
            found += _stretch(paragraph, _items(children, vocabulary))
            children = []
        else:
            children.append(child)
    return found


def _stretch(parent: etree._Element, items: list[_Item]) -> Iterator[Stretch]:
    """Cuts off what is no text at both ends; goes into a holder that is all there is."""
    while items and not _has_text(items[0]):
        items = items[1:]
    while items and not _has_text(items[-1]):
        items = items[:-1]
    if len(items) == 1 and isinstance(items[0], _Holder):
        yield from _stretch(items[0].content, items[0].items)
    elif items:
        yield Stretch(parent, items, _nodes_of(items[0])[0].getprevious())


def _part_runs(parent: etree._Element) -> None:
    """Leaves no run with more than one thing in it besides its formatting."""
    for run in list(parent):
        if local_name(run) != "r":
            continue
        settings = next((child for child in run if local_name(child) == "rPr"), None)
        contents = [_as_text(child) for child in run if child is not settings]
        place = parent.index(run)
        for offset, content in enumerate(contents[1:], start=1):
            other = etree.Element(run.tag, dict(run.attrib), nsmap=run.nsmap)
            if settings is not None:
                other.append(deepcopy(settings))
            other.append(content)
            parent.insert(place + offset, other)


def _as_text(content: etree._Element) -> etree._Element:
    """Where the content of a run stands for a character, that character as text, in its place."""
    character = _HYPHENS.get(local_name(content))
    if character is not None:
        name = etree.QName(etree.QName(content).namespace, "t")
        for child in list(content):
            content.remove(child)
        content.attrib.clear()
        content.tag, content.text = name.text, character
    return content


def _is_break(node: etree._Element, vocabulary: Vocabulary) -> bool:
    if local_name(node) in vocabulary.breaks:
        return True
    return local_name(node) == "r" and any(local_name(child) in vocabulary.breaks for child in node)


def _items(children: Sequence[etree._Element], vocabulary: Vocabulary) -> list[_Item]:
    items: list[_Item] = []
    place = 0
    while place < len(children):
        end = _field_end(children, place)
        if end > place + 1:
            items.append(_Thing(list(children[place:end])))
        else:
            item = _item(children[place], vocabulary)
            if item is not None:
                items.append(item)
        place = end
    return _merged(items)


def _field_end(children: Sequence[etree._Element], place: int) -> int:
    """One past the last run of the field that begins here (a page number, a date); no field is one child."""
    depth = 0
    for end in range(place, len(children)):
        for node in children[end]:
            if local_name(node) == "fldChar":
                kind = next((value for name, value in node.attrib.items() if name.endswith("fldCharType")), "")
                depth += {"begin": 1, "end": -1}.get(kind, 0)
        if depth <= 0:
            return end + 1
    return place + 1


def _item(node: etree._Element, vocabulary: Vocabulary) -> _Item | None:
    """None for what has no extent: it stays behind whatever stood before it."""
    name = local_name(node)
    if name in vocabulary.marks or not name:
        return None
    if name == "r":
        text = next((child for child in node if local_name(child) == "t"), None)
        if text is not None and not len(text):
            return _Text(text.text or "", _key(node, vocabulary), node)
        return _Thing([node])
    if name in vocabulary.holders:
        content = next((child for child in node if local_name(child) == "sdtContent"), node)
        _part_runs(content)
        items = _items([child for child in content if local_name(child) not in vocabulary.settings], vocabulary)
        if any(map(_has_text, items)):
            return _Holder(node, content, items)
    return _Thing([node])


def _key(run: etree._Element, vocabulary: Vocabulary) -> bytes:
    """Equal for runs that look the same."""
    settings = next((child for child in run if local_name(child) == "rPr"), None)
    if settings is None:
        return b""
    shown = deepcopy(settings)
    for child in list(shown):
        if local_name(child) in vocabulary.ignored_settings:
            shown.remove(child)
    for name in list(shown.attrib):
        if name in _IGNORED_ATTRIBUTES:
            del shown.attrib[name]
    shown.tail = None
    return etree.tostring(shown, method="c14n") if len(shown) or shown.attrib else b""


def _merged(items: Sequence[_Item]) -> list[_Item]:
    """Neighbours of one formatting are one text: editors part runs wherever something was typed later."""
    merged: list[_Item] = []
    for item in items:
        last = merged[-1] if merged else None
        if isinstance(item, _Text) and isinstance(last, _Text) and item.key == last.key:
            last.text += item.text
            _set_text(last.run, last.text)
            _remove(item.run)
        else:
            merged.append(item)
    return merged


def _has_text(item: _Item) -> bool:
    if isinstance(item, _Text):
        return bool(item.text.strip())
    return isinstance(item, _Holder) and any(map(_has_text, item.items))


def _nodes_of(item: _Item) -> list[etree._Element]:
    if isinstance(item, _Thing):
        return item.nodes
    return [item.run if isinstance(item, _Text) else item.node]


def _remove(node: etree._Element) -> None:
    parent = node.getparent()
    if parent is not None:
        parent.remove(node)


def _set_text(run: etree._Element, text: str) -> None:
    node = next(child for child in run if local_name(child) == "t")
    node.text = _NOT_IN_XML.sub("", text)
    if node.text != node.text.strip() and "wordprocessingml" in etree.QName(node).namespace:
        node.set(_SPACE_ATTRIBUTE, "preserve")


# To HTML and back.


class _Numbers:
    """Counts elements, in the order in which they begin."""

    def __init__(self) -> None:
        self._last = 0

    def next(self) -> int:
        self._last += 1
        return self._last


def _main_key(items: Sequence[_Item]) -> bytes | None:
    """The formatting around the others, without an element of its own: the most frequent, of two that of more text."""
    times: Counter[bytes] = Counter()
    lengths: Counter[bytes] = Counter()
    for item in items:
        if isinstance(item, _Text):
            times[item.key] += 1
            lengths[item.key] += len(item.text)
    return max(times, key=lambda key: (times[key], lengths[key])) if times else None


def _to_html(items: Sequence[_Item], numbers: _Numbers) -> str:
    main = _main_key(items)
    pieces = []
    for item in items:
        if isinstance(item, _Text) and item.key == main:
            pieces.append(html.escape(item.text, quote=False))
            continue
        number = numbers.next()
        if isinstance(item, _Text):
            pieces.append(f'<span data-g="{number}">{html.escape(item.text, quote=False)}</span>')
        elif isinstance(item, _Thing):
            pieces.append(f'<img data-g="{number}">')
        else:
            pieces.append(f'<span data-g="{number}">{_to_html(item.items, numbers)}</span>')
    return "".join(pieces)


def _numbered(items: Sequence[_Item]) -> dict[int, _Item]:
    """The items that have elements, by their numbers in `_to_html`."""
    found: dict[int, _Item] = {}

    def count(items: Sequence[_Item]) -> None:
        main = _main_key(items)
        for item in items:
            if isinstance(item, _Text) and item.key == main:
                continue
            found[len(found) + 1] = item
            if isinstance(item, _Holder):
                count(item.items)

    count(items)
    return found


class _Reader(HTMLParser):
    """Reads back what `_to_html` wrote and a translator changed."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root: _Nested = []
        self._open: list[_Nested] = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        number = dict(attrs).get("data-g") or ""
        inner: _Nested = []
        self._open[-1].append((int(number) if number.isdecimal() else 0, inner))
        if tag != "img":
            self._open.append(inner)

    def handle_endtag(self, tag: str) -> None:
        if tag != "img" and len(self._open) > 1:
            self._open.pop()

    def handle_data(self, data: str) -> None:
        self._open[-1].append(data)


def _from_html(translation: str, items: Sequence[_Item]) -> _Nested:
    """The translation as nested numbers and text; as one text before everything else if an element was lost."""
    reader = _Reader()
    reader.feed(translation)
    reader.close()
    numbers: list[int] = []
    fits = True
    known = _numbered(items)

    def visit(nested: _Nested, holder: _Item | None) -> None:
        nonlocal fits
        for piece in nested:
            if isinstance(piece, str):
                fits = fits and not isinstance(holder, _Thing)
                continue
            numbers.append(piece[0])
            item = known.get(piece[0])
            # Links stay in no other element than they were in; text of one formatting holds nothing else.
            parent_is_right = item is not None and _holder_of(items, item) is holder
            fits = fits and parent_is_right
            visit(piece[1], item)

    visit(reader.root, None)
    if fits and sorted(numbers) == sorted(known):
        return reader.root
    text = "".join(_texts(reader.root))
    numbers_of = {id(item): number for number, item in known.items()}

    def emptied(items: Sequence[_Item]) -> _Nested:
        return [
            (numbers_of[id(item)], emptied(item.items) if isinstance(item, _Holder) else [])
            for item in items
            if id(item) in numbers_of
        ]

    return [text, *emptied(items)]


def _texts(nested: _Nested) -> Iterator[str]:
    for piece in nested:
        if isinstance(piece, str):
            yield piece
        else:
            yield from _texts(piece[1])


def _holder_of(items: Sequence[_Item], wanted: _Item) -> _Item | None:
    """The holder that an item is directly in."""
    for item in items:
        if isinstance(item, _Holder):
            if any(inner is wanted for inner in item.items):
                return item
            found = _holder_of(item.items, wanted)
            if found is not None:
                return found
    return None


def _nodes(nested: _Nested, items: Sequence[_Item], known: dict[int, _Item]) -> list[etree._Element]:
    """The nodes of a translation, in its order; they take the place of the items', which leave their parents."""
    main = _main_key(items)
    model = next((item.run for item in items if isinstance(item, _Text) and item.key == main), None)
    nodes: list[etree._Element] = []
    for piece in nested:
        if isinstance(piece, str):
            nodes.append(_run_like(model if model is not None else _any_run(items), piece))
            continue
        item = known[piece[0]]
        if isinstance(item, _Text):
            text = "".join(_texts(piece[1]))
            nodes += [_run_like(item.run, text)] if text else []
        elif isinstance(item, _Thing):
            nodes += item.nodes
        else:
            anchor = _nodes_of(item.items[0])[0].getprevious()
            _put(item.content, anchor, _nodes(piece[1], item.items, known))
            nodes.append(item.node)
    for item in items:
        for node in _nodes_of(item):
            _remove(node)
    return nodes


def _put(parent: etree._Element, anchor: etree._Element | None, nodes: Sequence[etree._Element]) -> None:
    place = 0 if anchor is None else parent.index(anchor) + 1
    for offset, node in enumerate(nodes):
        parent.insert(place + offset, node)


def _any_run(items: Sequence[_Item]) -> etree._Element:
    for item in items:
        if isinstance(item, _Text):
            return item.run
        if isinstance(item, _Holder):
            return _any_run(item.items)
    raise AssertionError("a stretch without text")


def _run_like(run: etree._Element, text: str) -> etree._Element:
    """A run of the same formatting with other text."""
    copy = deepcopy(run)
    copy.tail = None
    _set_text(copy, text)
    return copy
