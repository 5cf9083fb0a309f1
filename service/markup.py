"""Documents with markup, translated: read, sentence by sentence through the engine, and written again.

    documents = MarkupTranslator(translator, aligner)
    markups = await read_markups("html", job.texts)
    translation = await documents.translate(job, markups)

A sentence is translated whole, through its inline tags. Only where a sentence has tags in it, it is aligned with its
translation (one replay for all of them together), which says where they belong. Without an aligner tags are put
as far into the translation as they were in the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from service.alignment import align, lost_elements, votes
from service.aside import aside, breathe
from service.engine.inspection import Aligner, SegmentAlignment
from service.pipeline import Part
from service.text.ends import ORDINAL
from service.text.forms import Piece
from service.text.languages import Languages
from service.text.markup import Markup, MarkupError, Rules, Unit, read_html, read_xml
from service.text.markup import Segment as MarkedSegment
from service.text.segmenter import Document, Segment, has_letter
from service.text.tags import Element, Kept, Placement, Point, Vote, place_tags
from service.translator import (
    LONG_TEXT_CHARACTERS,
    Job,
    SegmentSource,
    SegmentTranslation,
    TextTranslation,
    Timings,
    Translation,
    Translator,
    part_by_model,
    run_together,
)

Format = Literal["html", "xml"]


async def read_markups(format_: Format, documents: Sequence[str], rules: Rules | None = None) -> list[Markup]:
    """Reads documents.

    Args:
        format_: `html` takes anything, `xml` must be well-formed.
        documents: Fragments or whole documents.
        rules: Which elements are what.

    Raises:
        MarkupError: If XML is not well-formed; says which document.
    """
    return await aside(_read_all, sum(map(len, documents)) / LONG_TEXT_CHARACTERS, format_, documents, rules)


def _read_all(format_: Format, documents: Sequence[str], rules: Rules | None) -> list[Markup]:
    read = read_html if format_ == "html" else read_xml
    markups = []
    for index, document in enumerate(documents):
        try:
            markups.append(read(document, rules))
        except MarkupError as error:
            raise MarkupError(str(error), index) from error
    return markups


@dataclass(frozen=True, slots=True)
class MarkupTranslation(TextTranslation):
    """What became of a document: its segments are sentences, which have their places in the document.

    Attributes:
        outputs: The document in the other language, by rank; at least one.
    """

    outputs: tuple[str, ...] = ()

    def nth_text(self, rank: int) -> str:
        """The document with every sentence's translation of this rank, or the last it has."""
        return self.outputs[min(rank, len(self.outputs) - 1)]


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence that is translated.

    Attributes:
        document_index: Of which document.
        unit_index: In which of its units.
        segment: Where it stands in the document.
        marked: Where it stands in the unit, with its tags.
    """

    document_index: int
    unit_index: int
    segment: Segment
    marked: MarkedSegment

    @property
    def has_tags(self) -> bool:
        """Whether an alignment is of use."""
        return bool(self.marked.items)


class MarkupTranslator:
    """Translates documents with the models of one engine."""

    def __init__(self, translator: Translator, aligner: Aligner | None) -> None:
        """Joins the two.

        Args:
            translator: Translates sentences.
            aligner: Says which words of a translation come from which of its source.
        """
        self._translator = translator
        self._aligner = aligner

    async def translate(self, job: Job, markups: Sequence[Markup]) -> Translation:
        """Translates all documents of a job together.

        Args:
            job: Its texts are the documents.
            markups: Those documents, read.

        Raises:
            EngineError: As `Translator.translate`.
        """
        parts = part_by_model(job)
        results = await run_together(
            self._translate_part(part, [markups[index] for index in indices]) for part, indices in parts
        )
        texts: dict[int, MarkupTranslation] = {}
        timings = Timings()
        for (done, part_timings), (_, indices) in zip(results, parts, strict=True):
            texts |= zip(indices, done, strict=True)
            timings = timings.beside(part_timings)
        segments = [segment for text in texts.values() for segment in text.segments]
        return Translation(
            tuple(texts[index] for index in range(len(job.texts))),
            source_tokens=sum(len(segment.encoding.ids) for segment in segments if segment.encoding is not None),
            target_tokens=sum(len(each.candidates[0].hypothesis.tokens) for each in segments if each.candidates),
            timings=timings,
        )

    async def _translate_part(self, job: Job, markups: Sequence[Markup]) -> tuple[list[MarkupTranslation], Timings]:
        """Documents that have one model."""
        size = sum(map(len, job.texts)) / LONG_TEXT_CHARACTERS
        with self._translator.preparing(job.texts):
            sentences = await aside(self._plan, size, job, markups)
        sources = [SegmentSource(each.segment.text, each.marked.kept) for each in sentences]
        done, timings = await self._translator.translate_segments(sources, job)
        alignments = await self._align(job, sentences, done)
        # A word with a tag around it that nothing of the translation comes from would leave the tag another's word.
        lost = {
            index: apart
            for index, found in alignments.items()
            if (apart := _lost_elements(sentences[index], done[index], found))
        }
        if lost:
            apart_sources = [replace(sources[index], apart=apart) for index, apart in lost.items()]
            again, more = await self._translator.translate_segments(apart_sources, job)
            timings = timings.before(more)
            for index, translation in zip(lost, again, strict=True):
                done[index] = translation
            aligned = await self._align(job, [sentences[index] for index in lost], again)
            for number, index in enumerate(lost):
                alignments[index] = aligned.get(number, {})

        def write() -> list[MarkupTranslation]:
            languages = Languages(job.model.source_language, job.model.target_language)
            return [
                _written(markup, index, sentences, done, alignments, languages) for index, markup in enumerate(markups)
            ]

        return await aside(write, size), timings

    def _plan(self, job: Job, markups: Sequence[Markup]) -> list[_Sentence]:
        sentences: list[_Sentence] = []
        for document_index, markup in enumerate(markups):
            for unit_index, unit in enumerate(markup.units):
                if unit.is_translatable:
                    sentences += self._sentences(job, markup, unit, document_index, unit_index)
        return sentences

    def _sentences(
        self, job: Job, markup: Markup, unit: Unit, document_index: int, unit_index: int
    ) -> Iterable[_Sentence]:
        # What is kept looks like a name: no sentence ends in it, and one may begin with it.
        shown, done = [], 0
        for start, end in unit.kept:
            shown += [unit.text[done:start], "X" + "x" * (end - start - 1)]
            done = end
        document = self._translator.segment("".join([*shown, unit.text[done:]]), job.model, job.deadline)
        for found in document.segments:
            marked = markup.segment(unit, found.start, found.end)
            text = unit.text[found.start : found.end]
            if has_letter(_without(text, marked.kept)):
                place = unit.starts[found.start], unit.ends[found.end - 1]
                segment = Segment(*place, text, translatable=True, windowed=found.windowed)
                yield _Sentence(document_index, unit_index, segment, marked)

    async def _align(
        self, job: Job, sentences: Sequence[_Sentence], done: Sequence[SegmentTranslation]
    ) -> dict[int, dict[int, SegmentAlignment]]:
        """By sentence and part, where there are tags to be placed."""
        if self._aligner is None:
            return {}
        parts = {
            index: translation.parts
            for index, (sentence, translation) in enumerate(zip(sentences, done, strict=True))
            if sentence.has_tags
        }
        return await align(self._aligner, job.model.name, parts, job.deadline)


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    out, done = [], 0
    for start, end in spans:
        out.append(text[done:start])
        done = end
    return " ".join([*out, text[done:]])


def _written(
    markup: Markup,
    document_index: int,
    sentences: Sequence[_Sentence],
    done: Sequence[SegmentTranslation],
    alignments: Mapping[int, Mapping[int, SegmentAlignment]],
    languages: Languages,
) -> MarkupTranslation:
    own = [index for index, sentence in enumerate(sentences) if sentence.document_index == document_index]
    num_ranks = max([1, *(len(done[index].candidates) for index in own)])
    outputs = tuple(_output(markup, rank, own, sentences, done, alignments, languages) for rank in range(num_ranks))
    segments = [replace(done[index], segment=sentences[index].segment) for index in own]
    segments.sort(key=lambda each: each.segment.start)
    return MarkupTranslation(
        Document(markup.source, tuple(each.segment for each in segments)), tuple(segments), outputs=outputs
    )


def _output(
    markup: Markup,
    rank: int,
    own: Sequence[int],
    sentences: Sequence[_Sentence],
    done: Sequence[SegmentTranslation],
    alignments: Mapping[int, Mapping[int, SegmentAlignment]],
    languages: Languages,
) -> str:
    by_unit: dict[int, list[int]] = {}
    for index in own:
        by_unit.setdefault(sentences[index].unit_index, []).append(index)
    rendered: dict[int | str, str] = {code: languages.declared(code) for code in markup.declared}
    # Attributes first: they are part of the tags that other units hold.
    for unit_index in sorted(by_unit, key=lambda index: markup.units[index].place != "attribute"):
        texts: list[tuple[str, Placement | None]] = []
        for index in by_unit[unit_index]:
            breathe()
            texts.append(_placed(sentences[index].marked, done[index], alignments.get(index, {}), rank))
        unit = markup.units[unit_index]
        marked = [sentences[index].marked for index in by_unit[unit_index]]
        rendered[unit_index] = markup.render(unit, marked, texts, rendered)
    return markup.write(rendered)


def _placed(
    marked: MarkedSegment, done: SegmentTranslation, alignments: Mapping[int, SegmentAlignment], rank: int
) -> tuple[str, Placement]:
    """A sentence's translation, and where its tags belong in it."""
    text = done.nth_text(rank)
    if not marked.items and not marked.kept:
        return text, Placement(())
    source = done.segment.text
    places: dict[tuple[int, int], tuple[int, int]] = {}
    offset = 0
    for part in done.parts:
        written = part.nth_text(rank)
        pieces = part.pieces if written == part.nth_text(0) else ()  # of other ranks nothing more is known
        for span in marked.kept:
            place = _kept_place(span, part, offset, pieces)
            if place is not None:
                places.setdefault(span, place)
        offset += len(written)
    searched: dict[str, int] = {}
    kept = []
    for span, tokens in zip(marked.kept, marked.kept_tokens, strict=True):
        if span not in places:
            shown = source[slice(*span)]
            found = text.find(shown, searched.get(shown, 0))
            places[span] = (found, found + len(shown)) if found >= 0 else (len(text), len(text))
            searched[shown] = places[span][1]
        kept.append(Kept(*places[span], *span, tokens))
    comes_from = list(votes(done.parts, source, alignments, rank))
    return text, place_tags(source, text, _without_lost_ordinals(marked.items, source, comes_from), comes_from, kept)


def _lost_elements(
    sentence: _Sentence, done: SegmentTranslation, alignments: Mapping[int, SegmentAlignment]
) -> tuple[tuple[int, int], ...]:
    source = done.segment.text
    return lost_elements(sentence.marked.items, source, done.text, votes(done.parts, source, alignments))


def _without_lost_ordinals(
    items: Sequence[Element | Point], source: str, votes: Sequence[Vote]
) -> tuple[Element | Point, ...]:
    """The items; of an element around the ending of an ordinal that became none, *4th of July*, nothing is left."""
    found = {(vote.source_start, vote.source_end) for vote in votes}
    result: list[Element | Point] = []
    for item in items:
        if isinstance(item, Element):
            is_ordinal = source[max(item.start - 1, 0) : item.start].isdigit() and ORDINAL.match(source, item.start)
            if is_ordinal and is_ordinal.end() == item.end and is_ordinal.span() not in found:
                item = Point(item.start, _tokens(item))
            else:
                item = replace(item, items=_without_lost_ordinals(item.items, source, votes))
        result.append(item)
    return tuple(result)


def _tokens(item: Element | Point) -> tuple[int, ...]:
    if isinstance(item, Point):
        return item.tokens
    return (*item.opening, *(token for inner in item.items for token in _tokens(inner)), *item.closing)


def _kept_place(span: tuple[int, int], part: Part, offset: int, pieces: Sequence[Piece]) -> tuple[int, int] | None:
    """Where something kept stands in a part's translation, in code points of the sentence's."""
    start, end = span[0] - part.start, span[1] - part.start
    if start < 0 or span[1] > part.end:
        return None
    if part.encoding is None and not part.pieces:
        return offset + start, offset + end
    place = offset
    for piece in pieces:
        if piece.span is not None and piece.span.start <= start and end <= piece.span.end:
            left = place + start - piece.span.start
            return left, left + end - start
        place += len(piece.text)
    return None
