"""Marks of emphasis in plain text: a sentence without them, and its translation with them.

    emphasis = find_emphasis("The **big** dog barks.")
    emphasis.text                                          # "The big dog barks."
    emphasis.insertions("Le gros chien aboie.", votes)     # [(3, "**"), (7, "**")]

Pairs of `*`, `**`, `***`, `_`, `__`, `___` and `~~` count, about as CommonMark pairs them: marks hug words, or the
marks of a sentence (`this**?**`), and what stands in a name, a number or code is none. Within a word (`**b**ig`) only
two stars or tildes are, and its translation is emphasised whole. A model is shown the sentence whole, without them;
they go where the tags of HTML would (`service/text/tags.py`). A mark without a partner stays what it was, a sign; but
at an end of the sentence it stays at that end, for its partner may be in another one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import regex

from service.text.kept import mark_places
from service.text.tags import Element, Point, Vote, place_tags

_SIGNS = frozenset("*_~")
_RUN = regex.compile(r"(?<!\\)([*_~])\1*+")
_OPENING_BRACKETS, _CLOSING_MARKS = "([{«“‘", ")]}»”’.,:;!?…"
_FINAL = regex.compile(r"[.!?…:]")
_ONLY_MARKS = regex.compile(r"[.!?…:;,]++")
_ELISION = regex.compile(r"(?<=['’])[\p{L}\p{M}\p{N}]++")
_MAX_DEPTH = 8
"""Nobody nests deeper, and tags are placed level by level."""

_Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Emphasis:
    """A sentence whose marks of emphasis were taken off.

    Attributes:
        text: The sentence without them.
        places: Where each of its characters stands in the sentence as it was, and the end of that.
        items: What is emphasised, nested, in code points of `text`; their tokens are places in `marks`.
        marks: As they are written.
        before: Those that stay at the beginning: around the whole sentence, or without a partner.
        after: Likewise at its end.
    """

    text: str
    places: Sequence[int]
    items: tuple[Element, ...]
    marks: tuple[str, ...]
    before: str = ""
    after: str = ""

    def source_span(self, start: int, end: int) -> tuple[int, int]:
        """A span of `text` as one of the sentence as it was."""
        return self.places[start], self.places[end - 1] + 1 if start < end else self.places[start]

    def insertions(self, translation: str, votes: Sequence[Vote]) -> list[tuple[int, str]]:
        """Where the marks go in a translation of `text`.

        Args:
            translation: Of `text`.
            votes: What comes from where; empty if nothing is known.

        Returns:
            In order, places in code points of the translation and what is put there: all marks, paired and nested, none
            of them around nothing.
        """
        items, before, after = self.items, self.before, self.after
        if translation == self.text:  # nothing has moved
            inner = sorted((place, token) for item in _all(items) for place, token in _tokens(item))
            items = ()
        else:
            inner = []
        while items:
            placed = place_tags(self.text, translation, items, votes).insertions
            inner = [(place, token) for place, tokens, _ in placed for token in tokens]
            places = {token: place for place, token in inner}
            empty = [item for item in _all(items) if self._is_empty(item, places, translation)]
            if not empty:
                break
            inner = []
            # There are fewer words than pairs of marks: these go around all of them.
            items = _without(items, {item.opening for item in empty})
            before += "".join(self.marks[item.opening[0]] for item in empty)
            after = "".join(self.marks[item.closing[0]] for item in reversed(empty)) + after
        closing = {token for item in _all(items) for token in item.closing}
        behind_marks = {token for item in _all(items) if not self._has_words(item) for token in item.closing}
        found = [(0, before)] if before else []
        for index, (place, token) in enumerate(inner):
            # Nothing closes between an article and its word: *l'*eau would be no emphasis.
            elided = _ELISION.match(translation, place) if token in closing else None
            # All marks of `?!` stand together.
            elided = _ONLY_MARKS.match(translation, place) if token in behind_marks else elided
            following = next((other for other, _ in inner[index + 1 :] if other > place), len(translation))
            if elided and elided.end() <= following:
                place = elided.end()
            found.append((max(place, found[-1][0] if found else 0), self.marks[token]))
        return [*found, *([(len(translation), after)] if after else [])]

    def _is_empty(self, item: Element, places: dict[int, int], translation: str) -> bool:
        """Whether there is no word of the translation in an element; marks are enough where it had nothing else."""
        inside = translation[places[item.opening[0]] : places[item.closing[0]]]
        return not (any(map(str.isalnum, inside)) if self._has_words(item) else inside.strip())

    def _has_words(self, item: Element) -> bool:
        return any(map(str.isalnum, self.text[item.start : item.end]))


def find_emphasis(text: str) -> Emphasis | None:
    """Takes the marks of emphasis off a sentence.

    Args:
        text: A segment; takes time linear in its length.

    Returns:
        The sentence without them; None where there are none, or no word but them.
    """
    if _SIGNS.isdisjoint(text):  # nearly always
        return None
    runs = list(_runs(text))
    pairs = _pairs(text, runs)
    used = {place for pair in pairs for span in pair for place in range(*span)}
    first, last = _lone_ends(text, runs, used)
    used.update(range(first), range(last, len(text)))
    places = [place for place in range(len(text)) if place not in used]
    shown = "".join(text[place] for place in places)
    if not used or not any(map(str.isalpha, shown)):
        return None
    position, count = [0] * (len(text) + 1), 0
    for place in range(len(text)):
        position[place] = count
        count += place not in used
    position[len(text)] = count
    tokens = {span: number for number, span in enumerate(sorted(span for pair in pairs for span in pair))}
    items = _nested([(position[o[1]], position[c[0]], tokens[o], tokens[c]) for o, c in sorted(pairs)])
    if items is None:
        return None
    before, after = text[:first], text[last:]
    marks = tuple(text[slice(*span)] for span in tokens)
    while len(items) == 1 and (items[0].start, items[0].end) == (0, len(shown)):
        before, after = before + marks[items[0].opening[0]], marks[items[0].closing[0]] + after
        items = tuple(item for item in items[0].items if isinstance(item, Element))
    return Emphasis(shown, [*places, len(text)], items, marks, before, after)


@dataclass(slots=True)
class _Run:
    """A run of one sign that may be a mark, or several.

    Attributes:
        start: Its first character.
        end: One past its last.
        may_open: Whether something may begin behind it.
        may_close: Whether something may end before it.
        free: What has no partner yet.
    """

    start: int
    end: int
    may_open: bool
    may_close: bool
    free: int


def _runs(text: str) -> Iterator[_Run]:
    free = mark_places(text)
    for match in _RUN.finditer(text):
        start, end = match.span()
        if not (end - start == 2 if match[1] == "~" else end - start <= 3) or not free.issuperset(range(start, end)):
            continue
        left, right = text[start - 1 : start], text[end : end + 1]
        # Within a word, or before the marks behind it.
        is_inside = left.isalpha() and match[1] != "_" and end - start == 2
        opens = bool(right) and not right.isspace() and (not left.isalnum() or is_inside)
        opens = opens and (
            right.isalnum()
            or right in _SIGNS
            or not left
            or left.isspace()
            or left in _OPENING_BRACKETS
            or (is_inside and _ONLY_MARKS.match(right) is not None)
        )
        is_inside = right.isalpha() and match[1] != "_" and end - start == 2
        closes = bool(left) and not left.isspace() and (not right.isalnum() or is_inside)
        closes = closes and (
            left.isalnum() or left in _SIGNS or not right or right.isspace() or right in _CLOSING_MARKS
        )
        if opens or closes:
            yield _Run(start, end, opens, closes, end - start)


def _pairs(text: str, runs: Sequence[_Run]) -> list[tuple[_Span, _Span]]:
    """Marks that belong together; none of a run of which a part has no partner."""
    found: list[tuple[_Run, _Run, int, int]] = []
    stack: list[_Run] = []
    num_open = dict.fromkeys(_SIGNS, 0)

    def pop() -> None:
        num_open[text[stack.pop().start]] -= 1

    for run in runs:
        sign = text[run.start]
        while run.may_close and run.free and num_open[sign]:
            while text[stack[-1].start] != sign:
                pop()  # nothing reaches over the end of another
            opening = stack[-1]
            inside = text[opening.end : run.start]
            is_mark = run.end - run.start == 2 and _ONLY_MARKS.fullmatch(inside) is not None
            if not (any(map(str.isalnum, inside)) or is_mark):
                break
            size = min(opening.free, run.free)
            found.append((opening, run, opening.free, run.free))
            opening.free -= size
            run.free -= size
            if not opening.free:
                pop()
        if run.may_open and run.free == run.end - run.start:
            stack.append(run)
            num_open[sign] += 1
    pairs: list[tuple[_Span, _Span]] = []
    for opening, closing, open_free, close_free in found:
        if opening.free or closing.free:
            continue
        size = min(open_free, close_free)
        left, right = opening.start + open_free, closing.end - close_free
        pairs.append(((left - size, left), (right, right + size)))
    return pairs


def _lone_ends(text: str, runs: Sequence[_Run], used: set[int]) -> _Span:
    """How far marks without a partner reach from the beginning, and from where they reach to the end.

    A single sign behind a word is a reference to a note, or a part of a name.
    """
    first, last = 0, len(text)
    for run in runs:
        if run.start == first and run.may_open and run.start not in used:
            first = run.end
    for run in reversed(runs):
        is_mark = run.end - run.start > 1 or _FINAL.match(text, max(run.start - 1, 0)) is not None
        if run.end == last and run.start >= first and run.may_close and is_mark and run.start not in used:
            last = run.start
    return first, last


def _nested(spans: Sequence[tuple[int, int, int, int]]) -> tuple[Element, ...] | None:
    """Elements of `(start, end, opening, closing)` in order; None if they are nested too deeply."""
    levels: list[tuple[tuple[int, int, int, int] | None, list[Element]]] = [(None, [])]

    def close() -> None:
        span, inner = levels.pop()
        assert span is not None
        start, end, opening, closing = span
        levels[-1][1].append(Element(start, end, tuple(inner), (opening,), (closing,)))

    for span in spans:
        while levels[-1][0] is not None and levels[-1][0][3] < span[2]:
            close()
        levels.append((span, []))
        if len(levels) > _MAX_DEPTH + 1:
            return None
    while len(levels) > 1:
        close()
    return tuple(levels[0][1])


def _tokens(item: Element) -> Iterator[tuple[int, int]]:
    """Where the marks of an element stand that has not moved: the place, and which of the marks, in order of both."""
    yield item.start, item.opening[0]
    yield item.end, item.closing[0]


def _all(items: Sequence[Element | Point]) -> Iterator[Element]:
    for item in items:
        if isinstance(item, Element):
            yield item
            yield from _all(item.items)


def _without(items: Sequence[Element | Point], openings: Collection[tuple[int, ...]]) -> tuple[Element, ...]:
    """The elements but for those with these openings; what is in them stays."""
    result: list[Element] = []
    for item in items:
        if isinstance(item, Element):
            inner = _without(item.items, openings)
            is_empty = item.opening in openings
            result += inner if is_empty else [Element(item.start, item.end, inner, item.opening, item.closing)]
    return tuple(result)
