"""Where the tags of a sentence belong in its translation, by the words they stood around.

Each word of the translation votes with the source words that it is aligned to. An element gets the run of words
with the most votes for it, inside its parent's run and beside its siblings', and at least one word where there is
one left. A point (an image, a comment) gets the place that the fewest alignments cross. Without an alignment, what is
known is how far into the sentence a tag stood.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from model.words import split_words
from service.text.kept import structured_spans

SPACE = -1
"""Among tokens: a space."""

FREE = -1
"""Owner of the words that belong to no element."""

_UNALIGNED_VOTE = -0.25
_KEPT_STRENGTH = 4.0
_SHORT, _SHORT_SURENESS = 2, 0.5


@dataclass(frozen=True, slots=True)
class Element:
    """An element that holds text.

    Attributes:
        start: Where its text begins, in code points of the sentence.
        end: One past its end.
        items: What is in it, in order.
        opening: Its start tag, as the caller's tokens; none if it began before the sentence.
        closing: Its end tag, likewise.
        is_open_left: Whether it began before the sentence.
        is_open_right: Whether it goes on after it.
    """

    start: int
    end: int
    items: tuple[Element | Point, ...]
    opening: tuple[int, ...]
    closing: tuple[int, ...]
    is_open_left: bool = False
    is_open_right: bool = False


@dataclass(frozen=True, slots=True)
class Point:
    """Something without text.

    Attributes:
        start: Where it stands, in code points of the sentence.
        tokens: What it is made of, as the caller's tokens.
        has_space_before: Whether there was white space before it. The sentence has one space where there was some on
            both sides.
        has_space_after: Whether there was some after it.
    """

    start: int
    tokens: tuple[int, ...]
    has_space_before: bool = False
    has_space_after: bool = False


@dataclass(frozen=True, slots=True)
class Vote:
    """A stretch of the translation that comes from a stretch of the source, in code points of both.

    Attributes:
        start: In the translation.
        end: One past its end.
        source_start: In the source.
        source_end: One past its end.
        weight: How sure that is, 0 to 1.
    """

    start: int
    end: int
    source_start: int
    source_end: int
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Kept:
    """Words of the translation in whose place something else stands.

    Attributes:
        start: Where they begin in the translation, in code points.
        end: One past their end.
        source_start: Where they began in the source.
        source_end: One past their end there.
        tokens: What stands in their place, as the caller's tokens.
    """

    start: int
    end: int
    source_start: int
    source_end: int
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Placement:
    """Where tokens go.

    Attributes:
        insertions: In order: the place in the translation, the tokens, and the place where the text goes on: further
            on for what stands in the place of words, else the same.
    """

    insertions: tuple[tuple[int, tuple[int, ...], int], ...]


@dataclass(slots=True)
class _Word:
    """A word of the translation, or all that is kept as one.

    Attributes:
        start: Where it begins.
        end: One past its end.
        is_mark: Whether it is punctuation.
        strength: How much it counts beside others.
        sureness: How sure it is where it comes from, 0 to 1; of one or two letters (*'s*) it is only half so sure.
        votes: The middles of the source stretches that it comes from, with weights.
    """

    start: int
    end: int
    is_mark: bool = False
    strength: float = 1.0
    sureness: float = 1.0
    votes: list[tuple[float, float]] = field(default_factory=list)

    def vote(self, start: int, end: int) -> float:
        """Below 0 if it comes from elsewhere, above if it comes from this stretch of the source."""
        total = sum(weight for _, weight in self.votes)
        if total <= 0:
            return _UNALIGNED_VOTE
        inside = sum(weight for middle, weight in self.votes if start <= middle < end)
        return self.strength * self.sureness * (2 * inside / total - 1)


@dataclass(frozen=True, slots=True)
class _Mark:
    """Tags at a place of the translation, and which elements are open after them."""

    place: int
    tokens: tuple[int, ...]
    path: tuple[int, ...]


def place_tags(
    source: str,
    text: str,
    items: Sequence[Element | Point],
    votes: Sequence[Vote],
    kept: Sequence[Kept] = (),
) -> Placement:
    """Finds the place of every tag.

    Args:
        source: The sentence.
        text: Its translation.
        items: Its elements and points, nested and in order.
        votes: What comes from where; empty if nothing is known.
        kept: What stands in the place of words of the translation; any order.

    Returns:
        An insertion for every token of the items and of what is kept; all are nested as in the source. What is kept
        leaves its place in the translation if it could not stay within its elements there.
    """
    kept = sorted(kept, key=lambda each: each.start)
    paths = {each: _source_path(items, each, ()) for each in kept}
    moved: list[Kept] = []
    while True:
        staying = [each for each in kept if each not in moved]
        words = _words(text, votes, kept, moved)
        if not votes:
            _vote_by_place(words, source, text)
        marks = [_Mark(0, (), ())]
        with_moved = _with_points(items, moved)
        _place(source, words, with_moved, (0, len(words)), (0, len(text)), marks, ())
        joined, wrong = _joined(marks, staying, {each: paths[each] for each in staying})
        if not wrong:
            break
        moved += wrong
    removed = [(each.start, (), each.end) for each in moved]
    return Placement(tuple(_merged(joined, removed)))


def _source_path(items: Sequence[Element | Point], kept: Kept, path: tuple[int, ...]) -> tuple[int, ...]:
    """The elements around something that is kept, outermost first."""
    for item in items:
        if isinstance(item, Element) and item.start <= kept.source_start and kept.source_end <= item.end:
            return _source_path(item.items, kept, (*path, _key(item)))
    return path


def _key(element: Element) -> int:
    """Tells elements of one sentence apart."""
    return (element.opening or element.closing)[0]


def _with_points(items: Sequence[Element | Point], moved: Sequence[Kept]) -> tuple[Element | Point, ...]:
    """The items, with points for what is kept and had to leave its place."""
    if not moved:
        return tuple(items)
    result: list[Element | Point] = []
    rest = list(moved)
    for item in items:
        if isinstance(item, Element):
            inside = [each for each in rest if item.start <= each.source_start and each.source_end <= item.end]
            rest = [each for each in rest if each not in inside]
            item = replace(item, items=_with_points(item.items, inside))
        result.append(item)
    result += [Point(each.source_start, each.tokens) for each in rest]
    return tuple(sorted(result, key=lambda item: item.start))


def _words(text: str, votes: Sequence[Vote], kept: Sequence[Kept], moved: Sequence[Kept]) -> list[_Word]:
    """The words of the translation; what is kept is one, however many it holds, and none where it moves."""
    words: list[_Word] = []
    done = 0
    for each in [*kept, None]:
        end = len(text) if each is None else each.start
        for left, right in _split(text[done:end]):
            is_mark = not any(map(str.isalnum, text[done + left : done + right]))
            words.append(_Word(done + left, done + right, is_mark))
        if each is not None:
            done = each.end
            if each not in moved:
                words.append(_Word(each.start, each.end, strength=_KEPT_STRENGTH))
                words[-1].votes.append(((each.source_start + each.source_end - 1) / 2, 1.0))
    first = 0
    for vote in sorted(votes, key=lambda vote: vote.start):
        while first < len(words) and words[first].end <= vote.start:
            first += 1
        for word in words[first:]:
            if word.start >= vote.end:
                break
            if word.strength == 1:
                is_short = vote.source_end - vote.source_start <= _SHORT
                sure = vote.weight * (_SHORT_SURENESS if is_short else 1.0)
                word.sureness = max(word.sureness if word.votes else 0.0, sure)
                word.votes.append(((vote.source_start + vote.source_end - 1) / 2, vote.weight))
    return words


def _split(text: str) -> Iterator[tuple[int, int]]:
    """Words and marks; a placeholder, an address or code is one word: no tag belongs into it."""
    done = 0
    for start, end in [*structured_spans(text), (len(text), len(text))]:
        if start < done:
            continue
        for left, right in split_words(text[done:start]):
            yield done + left, done + right
        if start < end:
            yield start, end
        done = end


def _vote_by_place(words: Sequence[_Word], source: str, text: str) -> None:
    for word in words:
        if not word.votes:
            word.votes.append(((word.start + word.end - 1) / 2 / max(len(text), 1) * len(source), 1.0))


def _place(
    source: str,
    words: Sequence[_Word],
    items: Sequence[Element | Point],
    region: tuple[int, int],
    bounds: tuple[int, int],
    marks: list[_Mark],
    path: tuple[int, ...],
) -> None:
    """Puts items into a region of words (`bounds` in code points), and notes their tags in the order of the text."""
    runs: dict[int, tuple[int, int]] = {}
    owners = [FREE] * len(words)

    def take(index: int, run: tuple[int, int]) -> None:
        runs[index] = run
        owners[run[0] : run[1]] = [index] * (run[1] - run[0])

    # What reaches over the sentence's ends has no choice, and nothing comes before it, or after it.
    low, high = region
    elements = [(index, item) for index, item in enumerate(items) if isinstance(item, Element)]
    for index, element in elements:
        votes = [word.vote(element.start, element.end) for word in words[low:high]]
        if element.is_open_left:
            take(index, (low, high if element.is_open_right else low + _best_prefix(votes)))
            low = runs[index][1]
        elif element.is_open_right:
            take(index, (high - _best_prefix(votes[::-1]), high))
            high = runs[index][0]
    # Then those with the most votes choose first.
    free = [(index, element) for index, element in elements if index not in runs]
    for index, element in sorted(free, key=lambda pair: -_best_run(pair[1], words, (low, high), owners)[0]):
        others = [other for number, other in elements if number != index]
        run = _run(element, words, (low, high), owners, source)
        take(index, _with_inner(element, run, words, (low, high), owners, others))
    placed: list[tuple[int, int, int]] = []
    for index, item in enumerate(items):
        if isinstance(item, Element):
            start, end = runs[index]
            placed.append((start, int(start < end), index))
        else:
            placed.append((_boundary(item, words, (low, high), owners), 0, index))
    done = bounds[0]
    for start, _, index in sorted(placed):
        item = items[index]
        if isinstance(item, Point):
            place, tokens = _point_place(item, words, start, region, bounds)
            done = max(done, place)
            marks.append(_Mark(done, tokens, path))
            continue
        left, right = _extent(words, *runs[index], region, bounds)
        left = max(done, bounds[0] if item.is_open_left else left)
        right = max(left, bounds[1] if item.is_open_right else right)
        inner = (*path, _key(item))
        marks.append(_Mark(left, item.opening, inner))
        _place(source, words, item.items, runs[index], (left, right), marks, inner)
        marks.append(_Mark(right, item.closing, path))
        done = right


def _run(
    element: Element, words: Sequence[_Word], region: tuple[int, int], owners: Sequence[int], source: str
) -> tuple[int, int]:
    """The words that are an element's; none if all are taken."""
    score, start, end = _best_run(element, words, region, owners)
    if score > 0:
        # Punctuation at an end belongs to the element only if it did in the source.
        inside = source[element.start : element.end].strip()
        while start + 1 < end and words[start].is_mark and inside[:1].isalnum():
            start += 1
        while start + 1 < end and words[end - 1].is_mark and inside[-1:].isalnum():
            end -= 1
        return start, end
    # No word is known to be its own: the nearest one that is free, for it must not be empty.
    middle = (element.start + element.end) / 2 / max(len(source), 1)
    goal = region[0] + middle * (region[1] - region[0]) - 0.5
    free = [index for index in range(*region) if owners[index] == FREE]
    if any(map(str.isalnum, source[element.start : element.end])):
        free = [index for index in free if not words[index].is_mark] or free
    if free:
        nearest = min(free, key=lambda index: abs(index - goal))
        return nearest, nearest + 1
    boundaries = [index for index in range(region[0], region[1] + 1) if _is_between(owners, index, region)]
    place = min(boundaries, key=lambda index: abs(index - 0.5 - goal))
    return place, place


def _with_inner(
    element: Element,
    run: tuple[int, int],
    words: Sequence[_Word],
    region: tuple[int, int],
    owners: Sequence[int],
    others: Sequence[Element],
) -> tuple[int, int]:
    """The run of an element, as far as the words of those in it that would have none: *big <i>red</i>* around a noun.

    No further than over free words that are none of the others'.
    """
    for inner in element.items:
        if not isinstance(inner, Element) or _best_run(inner, words, run, owners)[0] > 0:
            continue
        score, start, end = _best_run(inner, words, region, owners)
        left, right = min(run[0], start), max(run[1], end)
        between = [index for index in range(left, right) if not run[0] <= index < run[1]]
        if score > 0 and not any(
            owners[index] != FREE or any(words[index].vote(other.start, other.end) > 0 for other in others)
            for index in between
        ):
            run = left, right
    return run


def _best_prefix(votes: Sequence[float]) -> int:
    """How many words from the first on have the most votes together; at least one, if there are any."""
    best, length, total = float("-inf"), 0, 0.0
    for index, vote in enumerate(votes):
        total += vote
        if total > best:
            best, length = total, index + 1
    return length


def _best_run(
    element: Element, words: Sequence[_Word], region: tuple[int, int], owners: Sequence[int]
) -> tuple[float, int, int]:
    """The free words in a row that have the most votes together (Kadane's algorithm)."""
    best = (0.0, region[0], region[0])
    total, start = 0.0, region[0]
    for index in range(*region):
        if owners[index] != FREE:
            total, start = 0.0, index + 1
            continue
        if total <= 0:
            total, start = 0.0, index
        total += words[index].vote(element.start, element.end)
        if total > best[0]:
            best = (total, start, index + 1)
    return best


def _boundary(point: Point, words: Sequence[_Word], region: tuple[int, int], owners: Sequence[int]) -> int:
    """Before which word a point stands: where the fewest words are on the wrong side of it."""
    before = [sum(weight for middle, weight in word.votes if middle < point.start) for word in words]
    after = [sum(weight for middle, weight in word.votes if middle >= point.start) for word in words]
    wrong = sum(before[region[0] : region[1]])
    best: tuple[float, int] | None = None
    for index in range(region[0], region[1] + 1):
        if _is_between(owners, index, region) and (best is None or wrong < best[0]):
            best = (wrong, index)
        if index < region[1]:
            wrong += after[index] - before[index]
    return region[0] if best is None else best[1]


def _is_between(owners: Sequence[int], index: int, region: tuple[int, int]) -> bool:
    """Whether the place before a word is in no element's run."""
    return index in (region[0], region[1]) or owners[index - 1] == FREE or owners[index - 1] != owners[index]


def _extent(
    words: Sequence[_Word], first: int, last: int, region: tuple[int, int], bounds: tuple[int, int]
) -> tuple[int, int]:
    if first < last:
        return words[first].start, words[last - 1].end
    place = words[first].start if first < region[1] else words[first - 1].end if first > region[0] else bounds[0]
    return place, place


def _point_place(
    point: Point, words: Sequence[_Word], boundary: int, region: tuple[int, int], bounds: tuple[int, int]
) -> tuple[int, tuple[int, ...]]:
    """The place of a point, on the same side of a space as in the source; its tokens with the space that is missing."""
    has_before, has_after = boundary > region[0], boundary < region[1]
    if has_after and (point.has_space_before or not has_before):
        return words[boundary].start, (*point.tokens, SPACE) if point.has_space_after else point.tokens
    place = words[boundary - 1].end if has_before else bounds[0]
    return place, (SPACE, *point.tokens) if point.has_space_before and has_before else point.tokens


def _joined(
    marks: Sequence[_Mark], kept: Sequence[Kept], paths: Mapping[Kept, tuple[int, ...]]
) -> tuple[list[tuple[int, tuple[int, ...], int]], list[Kept]]:
    """Tags and what is kept, in the order of the text, and what is kept but not within its elements.

    A tag at the beginning of what is kept comes before it.
    """
    insertions: list[tuple[int, tuple[int, ...], int]] = []
    wrong: list[Kept] = []
    rest = deque(kept)
    path: tuple[int, ...] = ()
    for mark in [*marks, None]:
        while rest and (mark is None or rest[0].start < mark.place):
            each = rest.popleft()
            insertions.append((each.start, each.tokens, each.end))
            if path != paths[each]:
                wrong.append(each)
        if mark is not None:
            path = mark.path
            if mark.tokens:
                insertions.append((mark.place, mark.tokens, mark.place))
    return insertions, wrong


def _merged(
    insertions: Sequence[tuple[int, tuple[int, ...], int]], removed: Sequence[tuple[int, tuple[int, ...], int]]
) -> list[tuple[int, tuple[int, ...], int]]:
    """Insertions, and stretches of the text that are left out, in the order of the text."""
    merged: list[tuple[int, tuple[int, ...], int]] = []
    rest = deque(sorted(removed))
    for place, tokens, end in insertions:
        while rest and rest[0][0] < place:
            merged.append(rest.popleft())
        merged.append((place, tokens, end))
    return [*merged, *rest]
