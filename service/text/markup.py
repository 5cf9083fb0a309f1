"""HTML and XML to texts that can be translated, and back.

    markup = read_html('<p>The <b>red</b> car.</p>')
    [unit.text for unit in markup.units]             # ["The red car."]
    markup.write([[Rendered("La voiture rouge.", ...)]])

A *unit* is what a reader takes for one text: what stands between two block elements or line breaks, with its inline
elements, or an attribute. Its text has no markup; where its tags stood is kept beside it. Whatever is not text
comes back byte for byte: tags, attributes, comments, scripts, white space between sentences. Only the language that a
translated element says it is in may be another one.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from service.text.markup_tokens import Kind, MarkupError, Token, html_tokens, shown_raw, xml_tokens
from service.text.scripts import Scripts, find_scripts
from service.text.segmenter import has_letter
from service.text.tags import SPACE, Element, Placement, Point

__all__ = ["Markup", "MarkupError", "Rules", "Unit", "read_html", "read_xml"]

TRANSLATED_ATTRIBUTES = ("alt", "title", "placeholder", "aria-label")

_LANGUAGE_ATTRIBUTES = ("lang", "xml:lang")

_LABELLED_BY_VALUE = ("submit", "reset", "button")
"""Types of `input` whose value is what stands on the button, not what somebody has entered."""

_BLOCKS = frozenset(
    "address article aside base blockquote body br caption center col colgroup datalist dd details dialog dir div dl "
    "dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html iframe "
    "legend li link listing main menu meta nav noframes noscript ol optgroup option p plaintext pre search section "
    "select summary table tbody td textarea tfoot th thead title tr ul xmp".split()
)
"""Where a text ends. Everything else, and what nobody knows, is inline, as in HTML."""

_UNTOUCHED = frozenset(
    "script style pre textarea iframe noembed noframes xmp plaintext svg math object canvas audio video "
    "template rt rp".split()
)
"""Come back as they are, with all that is in them."""

_CONTROLS = frozenset("a button label".split())
"""Texts of their own where several of them stand side by side without a sentence around: menus, rows of buttons."""

_KEPT = frozenset("code kbd samp var".split())
"""Come back as they are too, but are words of the sentence."""

_WHITE_SPACE = " \t\n\f\r"
_SPACES = frozenset(_WHITE_SPACE)
_REFERENCE = re.compile(r"&(?:#[0-9]{1,8}|#[xX][0-9A-Fa-f]{1,8}|[A-Za-z][A-Za-z0-9]{1,31});")
_TAG_ATTRIBUTE = re.compile(r"""([^\s"'>/=]+)\s*=\s*("[^"]*"|'[^']*'|[^\s"'=<>`]+)""")


@dataclass(frozen=True, slots=True)
class Rules:
    """Which elements are what.

    Attributes:
        is_xml: Whether names keep their case, and nothing is known about elements.
        untranslated: Names of elements that are kept as they are, besides those that HTML knows.
        splitting: Names of elements at which a text ends.
        non_splitting: Names of elements at which none does.
        attributes: Names of the attributes whose values are texts.
        finds_structure: In XML: whether elements beside text are taken for inline ones, and the others for blocks;
            otherwise all are inline.
    """

    is_xml: bool = False
    untranslated: frozenset[str] = frozenset()
    splitting: frozenset[str] = frozenset()
    non_splitting: frozenset[str] = frozenset()
    attributes: tuple[str, ...] = ()
    finds_structure: bool = True


@dataclass(slots=True)
class Unit:
    """A text of the document.

    Attributes:
        text: What a reader sees; in HTML runs of white space are one space.
        kept: `[start, end)` of the elements in it that come back as they are, in code points of the text.
        starts: For each character of the text, where it begins in the document.
        ends: Likewise, where it ends.
        tokens: The tokens it is made of; one for an attribute's value.
        first: Place of the first of them among the document's tokens.
        references: How characters were written in it that could not stand for themselves.
        spellings: For each place of the text that was written as a reference, that one.
        place: What it is.
        kept_tokens: `[first, last)` of the document's tokens that each kept span is.
        opaque: For the first token of each element that is no text at all (a script, an icon), one past its last.
        quote: Of an attribute.
    """

    text: str
    kept: tuple[tuple[int, int], ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    tokens: tuple[Token, ...]
    first: int
    references: Mapping[str, str]
    place: Literal["text", "attribute", "cdata"] = "text"
    kept_tokens: tuple[tuple[int, int], ...] = ()
    opaque: Mapping[int, int] = field(default_factory=dict)
    quote: str = ""
    spellings: Mapping[int, str] = field(default_factory=dict)

    @property
    def is_translatable(self) -> bool:
        """Whether there is a letter in it outside what is kept."""
        done, rest = 0, []
        for start, end in self.kept:
            rest.append(self.text[done:start])
            done = end
        return has_letter("".join([*rest, self.text[done:]]))


@dataclass(slots=True)
class Segment:
    """A sentence of a unit, with the tags in it.

    Attributes:
        start: Where it begins in the unit's text.
        end: One past its end.
        items: Its inline elements and points, in order, with places in code points of the sentence; empty if no tag has
            to be put into its translation.
        kept: The unit's kept spans in it, likewise.
        kept_tokens: The tokens of each.
        first: Its first token, the tags at its beginning that are its own included.
        last: One past its last token.
    """

    start: int
    end: int
    items: tuple[Element | Point, ...]
    kept: tuple[tuple[int, int], ...]
    kept_tokens: tuple[tuple[int, ...], ...]
    first: int
    last: int


Rendered = Mapping[int | str, str]


@dataclass(slots=True)
class Markup:
    """A document that was read.

    Attributes:
        source: The document.
        units: Its texts, in order.
        declared: Codes of the languages that translated elements say they are in.
    """

    source: str
    units: list[Unit]
    _tokens: list[Token]
    _partners: dict[int, int]
    _attributes: dict[int, list[tuple[int | str, int, int]]] = field(default_factory=dict)
    _rules: Rules = Rules()
    declared: set[str] = field(default_factory=set)

    @property
    def text(self) -> str:
        """All that a reader sees, a unit in a line: what its language can be told by."""
        return "\n".join(unit.text for unit in self.units if unit.is_translatable)

    def segment(self, unit: Unit, start: int, end: int) -> Segment:
        """A sentence of a unit with the tags that belong into it.

        Args:
            unit: One of the units.
            start: Where the sentence begins in the unit's text.
            end: One past its end; after `start`.
        """
        if unit.place != "text":
            return Segment(start, end, (), (), (), 0, 0)
        inside = [index for index, (left, right) in enumerate(unit.kept) if start <= left and right <= end]
        kept = tuple((unit.kept[index][0] - start, unit.kept[index][1] - start) for index in inside)
        kept_tokens = tuple(tuple(range(*unit.kept_tokens[index])) for index in inside)
        first, last = self._token_at(unit, start), self._token_at(unit, end - 1) + 1
        for (left, right), (first_kept, last_kept) in zip(unit.kept, unit.kept_tokens, strict=True):
            if left <= start < right:
                first = first_kept
            if left < end <= right:
                last = last_kept
        inner_first, inner_last = first, last
        # An element that begins where the sentence does, and ends in it, moves with its words; one that is around the
        # whole sentence stays where it is.
        if start == 0 or unit.ends[start - 1] <= self._tokens[first].start:
            while first > unit.first and self._partners.get(first - 1, -1) in range(inner_first, inner_last):
                first -= 1
        if unit.ends[end - 1] == self._tokens[last - 1].end:
            stop = unit.first + len(unit.tokens)
            while last < stop and self._partners.get(last, -1) in range(first, inner_last):
                last += 1
        items = self._items(unit, first, last, start, end)
        return Segment(start, end, items, kept, kept_tokens, first, last)

    def write(self, rendered: Rendered) -> str:
        """The document with other units.

        Args:
            rendered: By their index, what stands in their place; the others come back as they are. By the code of a
                declared language, the one that is declared instead.
        """
        out: list[str] = []
        skip_to = 0
        units = {unit.first: index for index, unit in enumerate(self.units) if unit.place != "attribute"}
        for index in range(len(self._tokens)):
            if index < skip_to:
                continue
            unit = units.get(index)
            if unit is not None and unit in rendered:
                out.append(rendered[unit])
                skip_to = index + len(self.units[unit].tokens)
            else:
                out.append(self.written(index, rendered))
        return "".join(out)

    def written(self, index: int, rendered: Rendered) -> str:
        """A token with its attributes translated."""
        token = self._tokens[index]
        places = self._attributes.get(index)
        if not places:
            return shown_raw(token)
        out: list[str] = []
        done = 0
        for key, start, end in places:
            if key in rendered:
                out += [token.raw[done:start], rendered[key]]
                done = end
        return "".join([*out, token.raw[done:]])

    def render(
        self,
        unit: Unit,
        segments: Sequence[Segment],
        texts: Sequence[tuple[str, Placement | None]],
        rendered: Rendered,
    ) -> str:
        """What stands in a unit's place.

        Args:
            unit: The unit.
            segments: Its sentences, in order, without overlap.
            texts: For each its translation, and where its tags belong in that; None where the sentence comes back as it
                is.
            rendered: The attributes that are translated, and the languages that are declared, as for `write`.
        """
        escape = _escape(unit, self._rules)
        if unit.place != "text":
            out, done = [], 0
            for segment, (text, placement) in zip(segments, texts, strict=True):
                out.append(unit.text[done : segment.start])
                out.append(unit.text[segment.start : segment.end] if placement is None else text)
                done = segment.end
            whole = "".join([*out, unit.text[done:]])
            if unit.place == "cdata":
                return "<![CDATA[" + whole.replace("]]>", "]]]]><![CDATA[>") + "]]>"
            everything = Segment(0, len(unit.text), (), (), (), 0, 0)
            return unit.quote + "".join(_written(unit, everything, [whole], escape)) + unit.quote
        out = []
        token, place = unit.first, unit.starts[0] if unit.starts else 0
        place = unit.tokens[0].start
        for segment, (text, placement) in zip(segments, texts, strict=True):
            if placement is None:
                continue
            out.append(self._raw(token, segment.first, place, unit.starts[segment.start], rendered))
            out.append(self._with_tags(unit, segment, text, placement, escape, rendered))
            token, place = segment.last, unit.ends[segment.end - 1]
            if token > 0 and self._tokens[token - 1].is_text and place < self._tokens[token - 1].end:
                token -= 1
        stop = unit.first + len(unit.tokens)
        out.append(self._raw(token, stop, place, self._tokens[stop - 1].end, rendered))
        return "".join(out)

    def _raw(self, first: int, last: int, start: int, end: int, rendered: Rendered) -> str:
        """Tokens as they are, texts only between two places of the document."""
        out = []
        for index in range(first, last + 1):
            if index >= len(self._tokens):
                break
            token = self._tokens[index]
            if token.is_text:
                left, right = max(start - token.start, 0), min(end, token.end) - token.start
                if left < right:
                    out.append(token.raw[left:right].replace("<", "&lt;"))
            elif index < last:
                out.append(self.written(index, rendered))
        return "".join(out)

    def _with_tags(
        self,
        unit: Unit,
        segment: Segment,
        text: str,
        placement: Placement,
        escape: Callable[[str], str],
        rendered: Rendered,
    ) -> str:
        tags = [
            "".join(" " if index == SPACE else self.written(index, rendered) for index in tokens)
            for _, tokens, _ in placement.insertions
        ]
        starts = [0, *(end for _, _, end in placement.insertions)]
        ends = [*(place for place, _, _ in placement.insertions), len(text)]
        between = [text[start:end] for start, end in zip(starts, ends, strict=True)]
        first, *others = _written(unit, segment, between, escape)
        return first + "".join(tag + part for tag, part in zip(tags, others, strict=True))

    def _token_at(self, unit: Unit, place: int) -> int:
        """Which token a character of a unit's text comes from."""
        start = unit.starts[place]
        low, high = unit.first, unit.first + len(unit.tokens) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._tokens[middle].start <= start:
                low = middle
            else:
                high = middle - 1
        # Tags that were added have no width: the text is the last token that begins there.
        return low

    def _items(self, unit: Unit, first: int, last: int, start: int, end: int) -> tuple[Element | Point, ...]:
        place = 0
        size = end - start
        stack: list[tuple[int, int, list[Element | Point]]] = []
        items: list[Element | Point] = []
        kept = {tokens[0]: tokens[1] for tokens in unit.kept_tokens}
        index = first
        while index < last:
            token = self._tokens[index]
            if index in kept:
                place = min(max(place, bisect_right(unit.ends, self._tokens[kept[index] - 1].end) - start), size)
                index = kept[index]
                continue
            if index in unit.opaque:
                whole = unit.opaque[index]
                items.append(self._point(unit, start + place, place, index, whole))
                index = whole
                continue
            if token.is_text:
                place = min(max(place, bisect_right(unit.ends, token.end) - start), size)
            elif token.kind is Kind.OPEN and index in self._partners:
                stack.append((index, place, items))
                items = []
            elif token.kind is Kind.CLOSE and stack:
                opened, began, outer = stack.pop()
                if unit.text[start + began : start + place].strip():
                    outer.append(Element(began, place, tuple(items), (opened,), (index,)))
                else:  # nothing to read in it
                    outer.append(self._point(unit, start + began, began, opened, index + 1))
                items = outer
            elif token.kind is Kind.CLOSE:  # begun before this sentence
                items = [Element(0, place, tuple(items), (), (index,), is_open_left=True)]
            else:
                items.append(self._point(unit, start + place, place, index, index + 1))
            index += 1
        while stack:  # goes on after this sentence
            opened, began, outer = stack.pop()
            outer.append(Element(began, size, tuple(items), (opened,), (), is_open_right=True))
            items = outer
        return tuple(items)

    def _point(self, unit: Unit, place_in_unit: int, place: int, first: int, last: int) -> Point:
        stop = unit.first + len(unit.tokens)
        after = next((token.text for token in self._tokens[last:stop] if token.text), "")
        return Point(
            place,
            tuple(range(first, last)),
            has_space_before=place_in_unit > 0 and unit.text[place_in_unit - 1] == " ",
            has_space_after=after[:1] in _SPACES and after != "",
        )


def read_html(document: str, rules: Rules | None = None) -> Markup:
    """Reads HTML: a fragment or a whole document. What is wrong in it is put right, see `markup_tokens`."""
    rules = replace(rules or Rules(), attributes=TRANSLATED_ATTRIBUTES)
    return _read(document, html_tokens(document), rules)


def read_xml(document: str, rules: Rules | None = None) -> Markup:
    """Reads XML: a document, or a fragment without a root of its own.

    Raises:
        MarkupError: If it is not well-formed.
    """
    return _read(document, xml_tokens(document), rules or Rules(is_xml=True))


def _read(document: str, tokens: list[Token], rules: Rules) -> Markup:
    partners = _partners(tokens)
    scripts = Scripts(tokens, {}, {}) if rules.is_xml else find_scripts(tokens, partners)
    if scripts.tokens is not tokens:
        tokens = scripts.tokens
        partners = _partners(tokens)
    inline = _inline_in_xml(tokens) if rules.is_xml and rules.finds_structure else None
    apart = set() if rules.is_xml else _apart_in_html(tokens, partners)
    is_xhtml = next((token.name for token in tokens if token.kind in (Kind.OPEN, Kind.VOID)), "") == "html"
    markup = Markup(document, [], tokens, partners, _rules=rules)
    translated = [True]
    run: list[int] = []
    kept: dict[int, int] = {}
    opaque: dict[int, int] = {}

    def flush() -> None:
        nonlocal run, kept, opaque
        if run:
            unit = _run_unit(tokens, run[0], run[-1] + 1, kept, opaque)
            if unit is not None:
                markup.units.append(unit)
        run, kept, opaque = [], {}, {}

    index = 0
    while index < len(tokens):
        token = tokens[index]
        ends = index + 1
        formula, note = scripts.formulas.get(index), scripts.notes.get(index)
        if translated[-1] and (formula or note):
            whole = formula or note or ends
            (kept if formula else opaque)[index] = whole
            run += range(index, whole)
            index = whole
            continue
        if token.kind in (Kind.OPEN, Kind.VOID):
            is_translated = _is_translated(token, translated[-1], rules)
            whole = partners.get(index, index) + 1
            splits = _splits(token, index, rules, inline, apart)
            if splits:
                flush()
            if not is_translated and (not splits or not _has_translated(tokens, index, whole)):
                if not splits:
                    has_text = any(inner.is_text and inner.text.strip() for inner in tokens[index:whole])
                    (kept if has_text else opaque)[index] = whole
                    run += range(index, whole)
                index = whole
                continue
            if not rules.is_xml and token.name in _UNTOUCHED:
                if is_translated:
                    _add_attributes(markup, index)
                if not splits:
                    run += range(index, whole)
                    opaque[index] = whole
                index = whole
                continue
            if is_translated:
                _add_attributes(markup, index)
                _add_languages(markup, index, is_xhtml)
            if token.kind is Kind.OPEN:
                translated.append(is_translated)
            if not splits:
                run.append(index)
        elif token.kind is Kind.CLOSE:
            if len(translated) > 1:
                translated.pop()
            if _splits(token, partners.get(index, index), rules, inline, apart):
                flush()
            else:
                run.append(index)
        elif token.kind is Kind.CDATA:
            flush()
            if translated[-1]:
                markup.units.append(_plain_unit(token, index, token.text, token.start + 9, "cdata"))
        elif token.kind is Kind.OTHER or not translated[-1]:
            flush()
        else:
            run.append(index)
        index = ends
    flush()
    return markup


def _partners(tokens: Sequence[Token]) -> dict[int, int]:
    """Start tags to end tags, and back."""
    partners: dict[int, int] = {}
    stack: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind is Kind.OPEN:
            stack.append(index)
        elif token.kind is Kind.CLOSE and stack:
            partners[index] = stack.pop()
            partners[partners[index]] = index
    return partners


def _inline_in_xml(tokens: Sequence[Token]) -> set[int]:
    """Start tags of the elements that stand beside text."""
    mixed: set[int] = set()
    stack = [-1]
    children: dict[int, list[int]] = {-1: []}
    for index, token in enumerate(tokens):
        if token.kind in (Kind.OPEN, Kind.VOID):
            children[stack[-1]].append(index)
            if token.kind is Kind.OPEN:
                stack.append(index)
                children[index] = []
        elif token.kind is Kind.CLOSE and len(stack) > 1:
            stack.pop()
        elif (token.is_text and token.text.strip()) or token.kind is Kind.CDATA:
            mixed.add(stack[-1])
    # What is inside an inline element is inline too: <b><i>so</i></b>.
    inline: set[int] = set()
    for parent, inner in children.items():
        if parent in mixed or parent in inline:
            inline.update(inner)
    return inline


def _apart_in_html(tokens: Sequence[Token], partners: Mapping[int, int]) -> set[int]:
    """Where controls begin that stand side by side, with no word between, before or behind them in their block."""
    apart: set[int] = set()
    controls: list[int] = []
    has_words, end = False, -1
    for index, token in enumerate((*tokens, None)):
        if token is None or (token.kind in (Kind.OPEN, Kind.CLOSE, Kind.VOID) and token.name in _BLOCKS):
            if len(controls) > 1 and not has_words:
                apart.update(controls)
            controls, has_words, end = [], False, -1
        elif index <= end:
            continue
        elif token.kind is Kind.OPEN and token.name in _CONTROLS and index in partners:
            controls.append(index)
            end = partners[index]
        elif token.kind in (Kind.TEXT, Kind.REFERENCE):
            has_words = has_words or any(map(str.isalnum, token.text))
    return apart


def _splits(token: Token, opened: int, rules: Rules, inline: set[int] | None, apart: set[int]) -> bool:
    if token.name in rules.splitting:
        return True
    if token.name in rules.non_splitting:
        return False
    if rules.is_xml:
        return inline is not None and opened not in inline
    return token.name in _BLOCKS or opened in apart


def _is_translated(token: Token, inherited: bool, rules: Rules) -> bool:
    """Whether what stands in an element is translated."""
    if token.name in rules.untranslated or (not rules.is_xml and token.name in _KEPT):
        return False
    value = token.attributes.get("translate")
    if value is not None and value.lower() in ("no", "false"):
        return False
    if not rules.is_xml and "notranslate" in token.attributes.get("class", "").split():
        return False
    return True if value is not None and value.lower() in ("", "yes") else inherited


def _has_translated(tokens: Sequence[Token], first: int, last: int) -> bool:
    return any(tokens[index].attributes.get("translate", "no").lower() in ("", "yes") for index in range(first, last))


def _run_unit(
    tokens: Sequence[Token], first: int, last: int, kept: Mapping[int, int], opaque: Mapping[int, int]
) -> Unit | None:
    chars: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    spans: list[tuple[int, int]] = []
    kept_tokens: list[tuple[int, int]] = []
    references: dict[str, str] = {}
    spellings: dict[int, str] = {}
    raw_chars: set[str] = set()

    def add(text: str, start: int, end: int, each: bool) -> None:
        for offset, char in enumerate(text):
            if char in _WHITE_SPACE:
                if not chars or chars[-1] == " ":
                    continue
                char = " "
            chars.append(char)
            starts.append(start + offset if each else start)
            ends.append(start + offset + 1 if each else end)

    index = first
    while index < last:
        token = tokens[index]
        if index in kept:
            whole = kept[index]
            shown = " ".join("".join(inner.text for inner in tokens[index:whole] if inner.is_text).split())
            spans.append((len(chars), len(chars) + len(shown)))
            kept_tokens.append((index, whole))
            chars += shown
            starts += [token.start] * len(shown)
            ends += [tokens[whole - 1].end] * len(shown)
            index = whole
            continue
        if index in opaque:
            index = opaque[index]
            continue
        if token.kind is Kind.TEXT:
            add(token.text, token.start, token.end, each=True)
            raw_chars.update(token.text)
        elif token.kind is Kind.REFERENCE:
            if len(token.text) == 1:
                spellings[len(chars)] = token.raw
            if token.text[:1] in _WHITE_SPACE:  # written on purpose
                chars.append(" ")
                starts.append(token.start)
                ends.append(token.end)
            else:
                add(token.text, token.start, token.end, each=False)
                references.setdefault(token.text, token.raw)
        index += 1
    if not chars:
        return None
    return Unit(
        "".join(chars),
        tuple(spans),
        tuple(starts),
        tuple(ends),
        tuple(tokens[first:last]),
        first,
        _ways_to_write(references, raw_chars),
        kept_tokens=tuple(kept_tokens),
        opaque=opaque,
        spellings=spellings,
    )


def _ways_to_write(references: Mapping[str, str], raw_chars: set[str]) -> dict[str, str]:
    """How to write characters again: as references if they never stood for themselves; `>` only if it never did."""
    ways = {char: raw for char, raw in references.items() if char not in raw_chars or char == ">"}
    return {">": ">"} | ways if ">" in raw_chars else ways


def _plain_unit(token: Token, index: int, text: str, start: int, place: Literal["attribute", "cdata"]) -> Unit:
    places = range(start, start + len(text))
    return Unit(text, (), tuple(places), tuple(place + 1 for place in places), (token,), index, {}, place)


def _add_attributes(markup: Markup, index: int) -> None:
    """Units for the attributes of a tag that are read by people."""
    token = markup._tokens[index]
    wanted = markup._rules.attributes
    if (
        not markup._rules.is_xml
        and token.name == "input"
        and (token.attributes.get("type") or "").strip().lower() in _LABELLED_BY_VALUE
    ):
        wanted += ("value",)
    for match in _attribute_values(markup, token, wanted):
        value = match[2]
        quote = value[0] if value[0] in "\"'" else '"'
        text = html.unescape(value[1:-1] if value[0] in "\"'" else value)
        unit = _plain_unit(token, index, text, token.start + match.start(2), "attribute")
        if unit.is_translatable:
            unit.quote = quote
            unit.references = _attribute_references(value)
            unit.spellings = _attribute_spellings(value[1:-1] if value[0] in "\"'" else value, text)
            markup._attributes.setdefault(index, []).append((len(markup.units), *match.span(2)))
            markup.units.append(unit)


def _add_languages(markup: Markup, index: int, is_xhtml: bool) -> None:
    """The languages that a translated tag declares: its own, or a page's in `<meta http-equiv="Content-Language">`."""
    token = markup._tokens[index]
    wanted: tuple[str, ...] = _LANGUAGE_ATTRIBUTES
    if markup._rules.is_xml:
        # Other vocabularies may call anything `lang`, and take it from a list.
        wanted = _LANGUAGE_ATTRIBUTES if is_xhtml else ("xml:lang",)
    elif token.name == "meta" and token.attributes.get("http-equiv", "").strip().lower() == "content-language":
        wanted = ("content",)
    found = list(_attribute_values(markup, token, wanted))
    if not found:
        return
    places = markup._attributes.setdefault(index, [])
    for match in found:
        start, end = match.span(2)
        if match[2][0] in "\"'":
            start, end = start + 1, end - 1
        code = token.raw[start:end]
        places.append((code, start, end))
        markup.declared.add(code)
    places.sort(key=lambda place: place[1])


def _attribute_values(markup: Markup, token: Token, wanted: Sequence[str]) -> Iterator[re.Match[str]]:
    """For each wanted attribute of a tag where it is written, its value as group 2; of one that repeats, the first."""
    if not any(name in token.attributes for name in wanted):
        return
    seen: set[str] = set()
    for match in _TAG_ATTRIBUTE.finditer(token.raw, 1 + len(token.name)):
        name = match[1] if markup._rules.is_xml else match[1].lower()
        if name in wanted and name not in seen:
            seen.add(name)
            yield match


def _attribute_references(value: str) -> dict[str, str]:
    """How characters are written in an attribute's value that never stand for themselves there."""
    rest = _REFERENCE.sub("", value)
    found = ((html.unescape(match[0]), match[0]) for match in _REFERENCE.finditer(value))
    return {char: raw for char, raw in reversed([*found]) if len(char) == 1 and char not in rest}


def _attribute_spellings(value: str, text: str) -> dict[int, str]:
    """The references of an attribute's value, by their places in its text."""
    spellings: dict[int, str] = {}
    shown, done = "", 0
    for match in _REFERENCE.finditer(value):
        shown += html.unescape(value[done : match.start()])
        char = html.unescape(match[0])
        if len(char) == 1:
            spellings[len(shown)] = match[0]
        shown += char
        done = match.end()
    return spellings if shown + html.unescape(value[done:]) == text else {}


def _written(unit: Unit, segment: Segment, texts: Sequence[str], escape: Callable[[str], str]) -> list[str]:
    """Stretches of a translation as they stand in the document.

    A character that is in it as often as in its source is written each time as it was there.
    """
    kept = {place for start, end in segment.kept for place in range(segment.start + start, segment.start + end)}
    free = [place for place in range(segment.start, segment.end) if place not in kept]
    ways: dict[str, deque[str]] = {}
    for char in {unit.text[place] for place in free if place in unit.spellings}:
        # A bare & begins what is no reference, and stays so.
        found = deque(
            unit.spellings.get(place, "" if char in "&<" else char) for place in free if unit.text[place] == char
        )
        if all(found) and len(found) == sum(text.count(char) for text in texts):
            ways[char] = found
    if not ways:
        return [escape(text) for text in texts]
    parts = re.compile("([" + re.escape("".join(ways)) + "])")
    return [
        "".join(ways[part].popleft() if part in ways else escape(part) for part in parts.split(text)) for text in texts
    ]


def _escape(unit: Unit, rules: Rules) -> Callable[[str], str]:
    known = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
    if unit.place == "attribute":
        known = {"&": "&amp;", unit.quote: "&quot;" if unit.quote == '"' else "&#39;"}
    known |= {char: raw for char, raw in unit.references.items() if len(char) == 1}
    known |= {"<": "&lt;"} if unit.place == "text" or rules.is_xml else {}
    table = str.maketrans(known)
    # What looks like a reference and is none that HTML knows was no escaped one before.
    raw = "".join(token.raw for token in unit.tokens if token.kind is Kind.TEXT)
    unknown = {match[0] for match in _REFERENCE.finditer(raw)} if "&" in raw else set()
    if not unknown:
        return lambda text: text.translate(table)

    def escaped(text: str) -> str:
        text = text.translate(table)
        for reference in unknown:
            text = text.replace("&amp;" + reference[1:], reference)
        return text

    return escaped
