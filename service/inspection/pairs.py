"""What is looked at: segments of a text with their translations, token by token, each with its place.

A text is segmented and translated as `POST /v1/translate` does it. With a target of the caller's own, or the beginning
of one, text and target are one segment each, taken whole.

Places count in code points: of source tokens in the caller's text, of target tokens in the whole translation.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from model.decoding import DecodingOptions, Hypothesis
from model.tokenizer import Encoding, TextTokenizer
from model.words import Span, TokenText, Word, decode_with_spans, source_text
from service.aside import breathe
from service.engine.errors import InvalidOptions, SourceTooLong
from service.engine.inspection import Inspection, ModelFacts
from service.engine.interface import Engine, ModelInfo
from service.engine.request import EngineRequest, SequenceRequest
from service.inspection.errors import InvalidInspection, TooManyTokens
from service.pipeline import Part
from service.text.forms import Piece
from service.text.segmenter import Segment
from service.translator import Job, TextTranslation, Translator


@dataclass(frozen=True, slots=True)
class Ask:
    """Whose inside is looked at.

    Attributes:
        text: The source.
        model: One of the engine's models.
        options: How to search, where no target is given.
        deadline: As in `EngineRequest`.
        target_text: A target of the caller's own.
        target_ids: The same as ids, with the end of sentence if it has one.
        prefix: How the translation must begin.
        prefix_ids: The same as ids.
        hypothesis: Which of those that the search found; the last one where there are fewer.
    """

    text: str
    model: ModelInfo
    options: DecodingOptions = DecodingOptions()
    deadline: float | None = None
    target_text: str | None = None
    target_ids: tuple[int, ...] | None = None
    prefix: str | None = None
    prefix_ids: tuple[int, ...] | None = None
    hypothesis: int = 0

    @property
    def is_forced(self) -> bool:
        """Whether the target is the caller's."""
        return self.target_text is not None or self.target_ids is not None

    @property
    def is_whole(self) -> bool:
        """Whether the text is one segment, whatever is in it."""
        return self.is_forced or self.prefix is not None or self.prefix_ids is not None


@dataclass(frozen=True, slots=True)
class Token:
    """One piece: `start` and `end` are its place, `word` is the index of the word it belongs to."""

    index: int
    id: int
    piece: str
    start: int
    end: int
    is_special: bool
    word: int


@dataclass(frozen=True, slots=True)
class PlacedWord:
    """One word: `tokens` are the indices of its pieces."""

    index: int
    text: str
    start: int
    end: int
    tokens: tuple[int, ...]
    is_special: bool


@dataclass(frozen=True, slots=True)
class Side:
    """One side of a pair.

    Attributes:
        ids: What the model read or wrote.
        text: The ids as text; its spans count in that text.
        words: Of that text.
        tokens: The ids with their places.
        placed_words: The words with their places.
    """

    ids: tuple[int, ...]
    text: TokenText
    words: tuple[Word, ...]
    tokens: tuple[Token, ...]
    placed_words: tuple[PlacedWord, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """A segment and its translation.

    Attributes:
        index: Which one of the text.
        segment_index: Which segment of the translation it is, or is a part of: what the model does not translate well
            as a whole is translated in parts.
        start: Its first character in the caller's text.
        end: One past its last.
        source_text: Its characters.
        target_text: What it became.
        target_start: Where that stands in the whole translation.
        windowed: Whether it is a part of a sentence that was too long.
        source: What the model read; None where nothing was shown to it.
        target: What it wrote, or was made to read; None likewise.
        inputs: What the decoder read: the start token, and the target shifted by one.
        hypothesis: What the search found; None where the target was the caller's.
        rank: Of the hypothesis.
    """

    index: int
    segment_index: int
    start: int
    end: int
    source_text: str
    target_text: str
    target_start: int
    windowed: bool
    source: Side | None = None
    target: Side | None = None
    inputs: Side | None = None
    hypothesis: Hypothesis | None = None
    rank: int = 0

    @property
    def sides(self) -> tuple[Side, Side, Side]:
        """Source, target and inputs of a segment that was shown to the model."""
        assert self.source is not None and self.target is not None and self.inputs is not None
        return self.source, self.target, self.inputs

    @property
    def target_end(self) -> int:
        """One past the last character in the whole translation."""
        return self.target_start + len(self.target_text)


@dataclass(frozen=True, slots=True)
class Found:
    """A text with its translation, ready to be looked into.

    Attributes:
        ask: What was asked.
        facts: Of its model.
        translation: Of the whole text.
        pairs: Its segments, in order.
    """

    ask: Ask
    facts: ModelFacts
    translation: str
    pairs: tuple[Pair, ...]

    @property
    def is_forced(self) -> bool:
        """Whether the target is the caller's."""
        return self.ask.is_forced

    def pair(self, index: int) -> Pair:
        """One segment that was shown to the model.

        Raises:
            InvalidInspection: There is no such segment, or nothing to translate in it.
        """
        shown = [pair.index for pair in self.pairs if pair.source is not None]
        if not shown:
            raise InvalidInspection("text", self.ask.text, "a text with at least one letter in it")
        if index not in shown:
            names = ", ".join(map(str, shown))
            raise InvalidInspection("segment", index, f"a segment that was translated: one of {names}")
        return self.pairs[index]


class PairFinder:
    """Finds out what a model makes of a text."""

    def __init__(self, engine: Engine, translator: Translator, inspection: Inspection) -> None:
        self._engine = engine
        self._translator = translator
        self._inspection = inspection

    async def find(self, ask: Ask) -> Found:
        """Segments and translates; or takes the caller's own target.

        Raises:
            EngineError: As `Translator.translate`.
            InvalidInspection: A field that the model cannot follow.
            TooManyTokens: The caller's own target is longer than the model's.
        """
        facts = self._inspection.facts(ask.model.name)
        if not ask.is_whole:
            job = Job((ask.text,), ask.model, ask.options, ask.deadline, with_log_probs=True)
            translation = await self._translator.translate(job)
            return self.of_translation(ask, translation.texts[0])
        tokenizer = self._translator.tokenizer(ask.model)
        encoding = self.encode(ask)
        if ask.is_forced:
            target, shown = self._forced(ask, tokenizer)
            return Found(ask, facts, shown, (self._whole(ask, facts, encoding, target, shown),))
        hypothesis, rank = await self._continued(ask, encoding)
        found = self.whole(ask, encoding, hypothesis.tokens)
        pair = dataclasses.replace(found.pairs[0], hypothesis=hypothesis, rank=rank)
        return dataclasses.replace(found, pairs=(pair,))

    def of_translation(self, ask: Ask, text: TextTranslation) -> Found:
        """What was translated already, ready to be looked into."""
        facts = self._inspection.facts(ask.model.name)
        _check_rank(ask.hypothesis, text.num_candidates)
        pairs = tuple(self._pairs(ask, facts, text))
        return Found(ask, facts, text.nth_text(ask.hypothesis), pairs)

    def encode(self, ask: Ask) -> Encoding:
        """The whole text, as one segment.

        Raises:
            SourceTooLong: Longer than the model reads.
        """
        encoding = self._translator.tokenizer(ask.model).encode(ask.text, ask.model.source_language, add_eos=True)
        if len(encoding.ids) > ask.model.max_source_tokens:
            raise SourceTooLong(0, len(encoding.ids), ask.model.max_source_tokens)
        return encoding

    def prefix_ids(self, ask: Ask) -> tuple[int, ...]:
        """What the translation must begin with.

        Raises:
            InvalidInspection: An id that is not in the vocabulary, or ends the sentence.
        """
        if ask.prefix is not None:
            return self._translator.tokenizer(ask.model).encode(ask.prefix, ask.model.target_language).ids
        ids = ask.prefix_ids or ()
        _check_ids("prefix_ids", ids, ask.model)
        if ask.model.eos_id in ids:
            raise InvalidInspection(
                "prefix_ids", list(ids), "ids without the end of sentence, after which nothing comes"
            )
        return ids

    def whole(self, ask: Ask, encoding: Encoding, target_ids: tuple[int, ...]) -> Found:
        """A whole text and ids of a target, as one segment."""
        facts = self._inspection.facts(ask.model.name)
        text = decode_with_spans(self._translator.tokenizer(ask.model), target_ids)
        pair = self._whole(ask, facts, encoding, _Target(target_ids, text, text.spans), text.text)
        return Found(ask, facts, text.text, (pair,))

    def guess(self, ask: Ask) -> Found:
        """The segments of a text, each with as many target tokens as it has source tokens; nothing is translated.

        Raises:
            SourceTooLong: A text that is one segment is longer than the model reads.
        """
        facts = self._inspection.facts(ask.model.name)
        eos_id = ask.model.eos_id
        if ask.is_whole:
            encoding = self.encode(ask)
            return self.whole(ask, encoding, (eos_id,) * len(encoding.ids))
        pairs = []
        for index, segment in enumerate(self._translator.segment(ask.text, ask.model, ask.deadline).segments):
            breathe()
            if segment.translatable:
                part = dataclasses.replace(ask, text=segment.text)
                encoding = self.encode(part)
                (pair,) = self.whole(part, encoding, (eos_id,) * len(encoding.ids)).pairs
                pairs.append(dataclasses.replace(pair, index=index, segment_index=index))
            else:
                pairs.append(Pair(index, index, segment.start, segment.end, segment.text, segment.text, 0, False))
        return Found(ask, facts, ask.text, tuple(pairs))

    def _forced(self, ask: Ask, tokenizer: TextTokenizer) -> tuple[_Target, str]:
        if ask.target_ids is not None:
            if not ask.target_ids:
                raise InvalidInspection("target_ids", [], "at least one id")
            _check_ids("target_ids", ask.target_ids, ask.model)
            text = decode_with_spans(tokenizer, ask.target_ids)
            target, shown = _Target(ask.target_ids, text, text.spans), text.text
        else:
            assert ask.target_text is not None
            encoding = tokenizer.encode(ask.target_text, ask.model.target_language, add_eos=True)
            target, shown = _Target(encoding.ids, source_text(encoding), encoding.source_spans), ask.target_text
        if len(target.ids) > ask.model.max_target_tokens:
            raise TooManyTokens("the target has", len(target.ids), ask.model.max_target_tokens, None)
        return target, shown

    async def _continued(self, ask: Ask, encoding: Encoding) -> tuple[Hypothesis, int]:
        """The translation that begins with the caller's prefix."""
        request = EngineRequest(
            request_id=uuid.uuid4().hex,
            model=ask.model.name,
            sequences=(SequenceRequest(encoding.ids, ask.options, self.prefix_ids(ask)),),
            deadline=ask.deadline,
            with_log_probs=True,
        )
        try:
            result = await self._engine.submit(request)
        except InvalidOptions as error:
            if error.field != "forced_prefix":
                raise
            name, given = ("prefix_ids", ask.prefix_ids) if ask.prefix is None else ("prefix", ask.prefix)
            raise InvalidInspection(name, given, error.allowed) from error
        result.raise_if_failed()
        hypotheses = result.sequences[0].hypotheses
        _check_rank(ask.hypothesis, len(hypotheses))
        return hypotheses[ask.hypothesis], ask.hypothesis

    def _whole(self, ask: Ask, facts: ModelFacts, encoding: Encoding, target: _Target, shown: str) -> Pair:
        source = _source_side(encoding, ask.text, 0)
        return Pair(
            index=0,
            segment_index=0,
            start=0,
            end=len(ask.text),
            source_text=ask.text,
            target_text=shown,
            target_start=0,
            windowed=False,
            source=source,
            target=_side(target.ids, target.text, target.spans, shown, 0),
            inputs=self._inputs(ask, facts, target, shown, 0),
        )

    def _pairs(self, ask: Ask, facts: ModelFacts, text: TextTranslation) -> Iterator[Pair]:
        index = place = 0
        for segment_index, (gap, done) in enumerate(zip(text.document.gaps(), text.segments, strict=False)):
            place += len(gap)
            for part in done.parts or (Part(0, len(done.segment.text), (done.nth_text(ask.hypothesis),)),):
                shown = part.nth_text(ask.hypothesis)
                pair = Pair(
                    index=index,
                    segment_index=segment_index,
                    start=done.segment.start + part.start,
                    end=done.segment.start + part.end,
                    source_text=done.segment.text[part.start : part.end],
                    target_text=shown,
                    target_start=place,
                    windowed=done.segment.windowed,
                )
                yield self._looked_into(ask, facts, pair, done.segment, part)
                index += 1
                place += len(shown)

    def _looked_into(self, ask: Ask, facts: ModelFacts, pair: Pair, segment: Segment, part: Part) -> Pair:
        """The pair with what the model read and wrote, if it was shown anything."""
        if part.encoding is None or not part.hypotheses:
            return pair
        rank = min(ask.hypothesis, len(part.hypotheses) - 1)
        hypothesis = part.hypotheses[rank]
        text = decode_with_spans(self._translator.tokenizer(ask.model), hypothesis.tokens)
        spans = _spans_in(pair.target_text, text, part.pieces)
        target = _Target(hypothesis.tokens, text, spans)
        place = pair.target_start
        return dataclasses.replace(
            pair,
            source=_source_side(part.encoding, segment.text, segment.start),
            target=_side(target.ids, target.text, target.spans, pair.target_text, place),
            inputs=self._inputs(ask, facts, target, pair.target_text, place),
            hypothesis=hypothesis,
            rank=rank,
        )

    def _inputs(self, ask: Ask, facts: ModelFacts, target: _Target, shown: str, place: int) -> Side:
        """The decoder's inputs: the start token, which stands for no text, and all but the last of the target."""
        start_id = facts.config.decoder_start_id
        piece = self._translator.tokenizer(ask.model).piece(start_id)
        text = TokenText(
            target.text.text,
            (piece, *target.text.pieces[:-1]),
            ((0, 0), *target.text.spans[:-1]),
            (True, *target.text.is_special[:-1]),
        )
        return _side((start_id, *target.ids[:-1]), text, ((0, 0), *target.spans[:-1]), shown, place)


@dataclass(frozen=True, slots=True)
class _Target:
    """Target ids, their text, and the place of each in the text that is shown."""

    ids: tuple[int, ...]
    text: TokenText
    spans: Sequence[Span]


def _source_side(encoding: Encoding, shown: str, place: int) -> Side:
    return _side(encoding.ids, source_text(encoding), encoding.source_spans, shown, place)


def _side(ids: tuple[int, ...], text: TokenText, spans: Sequence[Span], shown: str, place: int) -> Side:
    """Put words and tokens in their places.

    Args:
        ids: Of the tokens.
        text: Their text.
        spans: The place of each token in `shown`.
        shown: The text that the caller sees.
        place: Where `shown` begins in all of it.
    """
    words = text.words()
    word_of = {piece: index for index, word in enumerate(words) for piece in word.pieces}
    tokens = tuple(
        Token(index, token_id, piece, place + start, place + end, special, word_of[index])
        for index, (token_id, piece, (start, end), special) in enumerate(
            zip(ids, text.pieces, spans, text.is_special, strict=True)
        )
    )
    placed = []
    for index, word in enumerate(words):
        start, end = _word_span(word, spans, shown)
        placed.append(PlacedWord(index, shown[start:end], place + start, place + end, word.pieces, word.is_special))
    return Side(ids, text, words, tokens, tuple(placed))


def _word_span(word: Word, spans: Sequence[Span], shown: str) -> Span:
    """From the first visible character of its pieces to the last."""
    start, end = min(spans[piece][0] for piece in word.pieces), max(spans[piece][1] for piece in word.pieces)
    visible = shown[start:end].strip()
    if visible:
        start += len(shown[start:end]) - len(shown[start:end].lstrip())
        end = start + len(visible)
    return start, end


def _spans_in(shown: str, text: TokenText, pieces: Sequence[Piece]) -> Sequence[Span]:
    """Places of tokens in the text that is shown: the decoded one with its kept spans put back.

    Args:
        shown: The text.
        text: What the tokens decode to.
        pieces: How the best translation follows from that. Of another one only the outer space is missing; where it is
            not even that, its tokens have no places.
    """
    if "".join(piece.text for piece in pieces) != shown:
        lead = len(text.text) - len(text.text.lstrip())
        pieces = [Piece(shown, lead, lead + len(shown))] if text.text.strip() == shown else []
    places: list[Span | None] = [None] * len(text.text)
    offset = 0
    for piece in pieces:
        is_same_length = piece.span is None and len(piece.text) == piece.end - piece.start
        for index in range(piece.start, min(piece.end, len(places))):
            first = offset + index - piece.start
            places[index] = (first, first + 1) if is_same_length else (offset, offset + len(piece.text))
        offset += len(piece.text)
    return list(_joined(places, text.spans))


def _joined(places: Sequence[Span | None], spans: Sequence[Span]) -> Iterator[Span]:
    """Spans of characters as the spans of their places; what has none is empty, behind what came before it."""
    last = 0
    for start, end in spans:
        found = [place for place in places[start:end] if place is not None]
        if found:
            last = max(place[1] for place in found)
            yield min(place[0] for place in found), last
        else:
            yield last, last


def _check_ids(field: str, ids: Sequence[int], model: ModelInfo) -> None:
    for index, token_id in enumerate(ids):
        if not 0 <= token_id < model.target_vocab_size:
            raise InvalidInspection(f"{field}[{index}]", token_id, f"an id from 0 to {model.target_vocab_size - 1}")


def _check_rank(wanted: int, num_found: int) -> None:
    if wanted >= num_found:
        raise InvalidInspection("hypothesis", wanted, f"an integer below {num_found}: so many translations were found")
