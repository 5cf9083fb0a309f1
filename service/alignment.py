"""What of a translation comes from what of its source, for what has to be put where its words went: tags, emphasis.

aligned = await align(aligner, "en-fr", {0: outcome.parts}, deadline)
votes(outcome.parts, source, aligned.get(0, {}))        # what `service.text.tags.place_tags` wants to know
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from model.words import source_text, split_words
from service.aside import aside, breathe
from service.engine.inspection import Aligner, AlignmentPair, SegmentAlignment
from service.pipeline import Part, in_source
from service.text.emphasis import Emphasis
from service.text.ends import ORDINAL
from service.text.forms import Piece
from service.text.kept import KeptSpan
from service.text.tags import Element, Point, Vote

_MANY_PAIRS = 100
"""More are taken apart beside the event loop."""

_LONG_WORD = re.compile(r"[^\W\d_]{5,}")
"""What may be lost without a loss is shorter in most cases: *do*, *will*, *have*."""


async def align(
    aligner: Aligner, model: str, translations: Mapping[int, Sequence[Part]], deadline: float | None = None
) -> dict[int, dict[int, SegmentAlignment]]:
    """Aligns the best translations of segments with their sources, all in one replay.

    Args:
        aligner: Says which words of a translation come from which of its source.
        model: Name of the model that translated.
        translations: The parts of each segment.
        deadline: As in `EngineRequest`.

    Returns:
        By segment and number of its part; those without words of a model have none.

    Raises:
        EngineError: The engine is not there, or time was up.
    """
    places: list[tuple[int, int]] = []
    pairs: list[AlignmentPair] = []

    def find_pairs() -> None:
        for index, parts in translations.items():
            breathe()
            for number, part in enumerate(parts):
                if part.encoding is not None and part.hypotheses:
                    places.append((index, number))
                    pairs.append(
                        AlignmentPair(part.encoding.ids, source_text(part.encoding), part.hypotheses[0].tokens)
                    )

    await aside(find_pairs, len(translations) / _MANY_PAIRS)
    if not pairs:
        return {}
    found: dict[int, dict[int, SegmentAlignment]] = {}
    aligned = await aligner.align(model, pairs, deadline)
    for (index, number), alignment in zip(places, aligned, strict=True):
        found.setdefault(index, {})[number] = alignment
    return found


def votes(
    parts: Sequence[Part], source: str, alignments: Mapping[int, SegmentAlignment], rank: int = 0
) -> Iterator[Vote]:
    """What of a segment's translation comes from what of the segment.

    Args:
        parts: Of the segment.
        source: The segment.
        alignments: Of its parts, as `align` found them.
        rank: Of the translation; of others than the best only that is known which was not translated.
    """
    offset = 0
    for number, part in enumerate(parts):
        written = part.nth_text(rank)
        pieces = part.pieces if written == part.nth_text(0) else ()
        yield from _votes(part, offset, written, pieces, alignments.get(number), source)
        offset += len(written)


def lost_elements(
    items: Sequence[Element | Point], source: str, text: str, found: Iterable[Vote]
) -> tuple[tuple[int, int], ...]:
    """The elements with a word that no word of the translation comes from, though of others some do.

    Put around another word they would say something else.

    Args:
        items: Of the segment, the outer ones.
        source: The segment.
        text: Its best translation.
        found: As `votes` found them.

    Returns:
        `[start, end)` of each in the segment.
    """
    elements = [item for item in items if isinstance(item, Element)]
    elements = [item for item in elements if _LONG_WORD.search(source, item.start, item.end)]
    if not elements:
        return ()
    words = [vote for vote in found if any(map(str.isalnum, text[vote.start : vote.end]))]
    lost = [
        (item.start, item.end)
        for item in elements
        if not any(vote.source_start < item.end and item.start < vote.source_end for vote in words)
    ]
    return tuple(lost) if words else ()


def with_emphasis(
    parts: Sequence[Part], emphasis: Emphasis, alignments: Mapping[int, SegmentAlignment]
) -> tuple[Part, ...]:
    """The parts of a sentence that was translated without its marks of emphasis, with them.

    Args:
        parts: Of the sentence without them.
        emphasis: The sentence.
        alignments: Of its parts, as `align` found them.

    Returns:
        The parts, with places in the sentence as it was; each has as many texts as there are ranks.
    """
    num_ranks = max(len(part.texts) for part in parts)
    texts: list[list[str]] = [[] for _ in parts]
    pieces: list[tuple[Piece, ...]] = []
    for rank in range(num_ranks):
        written = [part.nth_text(rank) for part in parts]
        found = list(votes(parts, emphasis.text, alignments, rank))
        marks = _by_part(emphasis.insertions("".join(written), found), written)
        for number, (part, text) in enumerate(zip(parts, written, strict=True)):
            whole = KeptSpan(0, part.end - part.start, text, "symbol")
            own = part.pieces if part.encoding is not None or part.pieces else (Piece(text, 0, len(text), whole),)
            marked = tuple(_with_marks(own if rank == 0 else [Piece(text, 0, len(text))], marks[number]))
            texts[number].append("".join(piece.text for piece in marked))
            pieces += [marked] if rank == 0 else []
    starts = [0, *(emphasis.places[part.start] for part in parts[1:]), emphasis.places[-1]]
    return tuple(
        replace(
            in_source(replace(part, pieces=pieces[number]), emphasis.source_span, starts[number], starts[number + 1]),
            texts=tuple(texts[number]),
            hypotheses=(*part.hypotheses, *part.hypotheses[-1:] * (num_ranks - len(part.hypotheses))),
        )
        for number, part in enumerate(parts)
    )


def _by_part(marks: Iterable[tuple[int, str]], written: Sequence[str]) -> list[list[tuple[int, str]]]:
    """Marks by the parts they hug, with places there."""
    result: list[list[tuple[int, str]]] = [[] for _ in written]
    number = offset = 0
    for place, mark in marks:
        while number < len(written) - 1:
            end = offset + len(written[number])
            if place < end or (place == end and not written[number][-1:].isspace()):
                break
            offset, number = end, number + 1
        result[number].append((place - offset, mark))
    return result


def _with_marks(pieces: Sequence[Piece], marks: Sequence[tuple[int, str]]) -> Iterator[Piece]:
    """Pieces with more text at places within theirs."""
    rest = deque(marks)
    offset = 0
    for piece in pieces:
        while rest and rest[0][0] < offset + len(piece.text):
            place, mark = rest.popleft()
            first, piece = _cut(piece, place - offset)
            if first.text:
                yield first
            yield Piece(mark, piece.start, piece.start)
            offset = place
        yield piece
        offset += len(piece.text)
    end = pieces[-1].end if pieces else 0
    yield from (Piece(mark, end, end) for _, mark in rest)


def _cut(piece: Piece, size: int) -> tuple[Piece, Piece]:
    """A piece in two, the first one of so many characters."""
    span, length = piece.span, len(piece.text)
    middle = piece.start + size if piece.end - piece.start == length else piece.end if size else piece.start
    before = after = span
    if span is not None and span.end - span.start == length:
        cut = span.start + size
        before = replace(span, end=cut, text=span.text[:size])
        after = replace(span, start=cut, text=span.text[size:])
    return Piece(piece.text[:size], piece.start, middle, before), Piece(piece.text[size:], middle, piece.end, after)


def _votes(
    part: Part,
    offset: int,
    written: str,
    pieces: Sequence[Piece],
    alignment: SegmentAlignment | None,
    source: str,
) -> Iterator[Vote]:
    if part.encoding is None and not part.pieces:  # it is the source itself
        for start, end in split_words(written):
            yield Vote(offset + start, offset + end, part.start + start, part.start + end)
        return
    place = offset
    number: KeptSpan | None = None
    for piece in pieces:
        end = place + len(piece.text)
        ordinal = _ordinal(piece, source, part.start + number.end) if number else None
        if ordinal is not None:
            yield Vote(place, place + ordinal[0], *ordinal[1])
        number = piece.span if piece.span and piece.span.is_soft else None
        if piece.span is not None and piece.span.kind == "term":
            yield from _term_votes(
                place, piece.text, part.start + piece.span.start, part.start + piece.span.end, source
            )
        elif piece.span is not None:
            yield Vote(place, end, part.start + piece.span.start, part.start + piece.span.end)
        elif alignment is not None and part.encoding is not None:
            for link in alignment.token_links:
                start_written, end_written = alignment.target.spans[link.target]
                left = max(start_written - piece.start, ordinal[0] if ordinal else 0)
                right = min(end_written, piece.end) - piece.start
                if left < right:
                    shown = part.encoding.source_spans[link.source]
                    yield Vote(place + left, min(place + right, end), *shown, link.score)
        place = end


def _ordinal(piece: Piece, source: str, place: int) -> tuple[int, tuple[int, int]] | None:
    """What makes a number an ordinal, in the source and behind it in the translation: how long it is there."""
    written, theirs = ORDINAL.match(piece.text), ORDINAL.match(source, place)
    return None if piece.span or not written or not theirs else (written.end(), theirs.span())


def _term_votes(place: int, translation: str, start: int, end: int, source: str) -> Iterator[Vote]:
    """A glossary says nothing about single words, so those of a term and of its translation are taken in order."""
    ours = split_words(translation)
    theirs = split_words(source[start:end])
    for index, (left, right) in enumerate(ours):
        first = index * len(theirs) // len(ours)
        last = max(first, (index + 1) * len(theirs) // len(ours) - 1)
        for their_start, their_end in theirs[first : last + 1]:
            yield Vote(place + left, place + right, start + their_start, start + their_end)
