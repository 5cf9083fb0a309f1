"""Request to segments to engine to text.

    translator = Translator(engine, {"en-fr": tokenizer}, max_segment_tokens=128)
    model = translator.find_model(source="en", target="fr")
    translation = await translator.translate(Job(("Good morning.",), model))

Every segment of every text goes to the engine in one request, so they are decoded together; results are put back in
order. This file knows nothing of HTTP, and nothing of torch.
"""

from __future__ import annotations

import asyncio
import math
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

from model.decoding import DecodingOptions, Hypothesis
from model.tokenizer import DecodeStream, Encoding, TextTokenizer
from service.engine.errors import DeadlineExceeded, EngineError, EngineStopping, UnknownModel
from service.engine.interface import Engine, ModelInfo
from service.engine.request import (
    EngineRequest,
    RequestDoneEvent,
    RequestResult,
    SequenceRequest,
    SequenceResult,
    TokensEvent,
)
from service.text.segmenter import Document, Segment, segment_text

_LONG_TEXT_CHARACTERS = 2_000
"""Longer requests are segmented and tokenized in a thread, so that they do not hold up the event loop."""

_DEADLINE_GRACE_SECONDS = 1.0
"""How much longer than its deadline a request waits for an engine that does not answer."""


class UnknownLanguagePair(EngineError):
    """No model translates from one language to the other, or more than one does and none was chosen.

    Attributes:
        field: What to change: `source`, `target`, or `model`.
        given: What was asked for; None if nothing was.
        available: What `field` may be: the languages there are on this side, or the names of the models.
    """

    def __init__(self, field: str, given: str | None, reason: str, available: Sequence[str]) -> None:
        super().__init__(f"{reason}; allowed is {', '.join(available)}")
        self.field = field
        self.given = given
        self.available = tuple(available)


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be translated, and how.

    Attributes:
        texts: Any texts; empty ones too.
        model: One of the engine's models.
        options: How to search.
        deadline: As in `EngineRequest`.
        with_log_probs: Whether scores are wanted.
    """

    texts: tuple[str, ...]
    model: ModelInfo
    options: DecodingOptions = DecodingOptions()
    deadline: float | None = None
    with_log_probs: bool = False


@dataclass(frozen=True, slots=True)
class Candidate:
    """One translation of a segment.

    Attributes:
        text: Never empty: where the model wrote nothing, this is the source.
        hypothesis: What the model wrote.
    """

    text: str
    hypothesis: Hypothesis


@dataclass(frozen=True, slots=True)
class SegmentTranslation:
    """What became of a segment.

    Attributes:
        segment: Where it stands in the source.
        encoding: What the model was shown; None if nothing was, and the segment came back as it is.
        candidates: Best first; as many as the model found, none without an encoding.
        result: What the engine says of it; None without an encoding.
    """

    segment: Segment
    encoding: Encoding | None = None
    candidates: tuple[Candidate, ...] = ()
    result: SequenceResult | None = None

    @property
    def text(self) -> str:
        """The best translation."""
        return self.nth_text(0)

    @property
    def truncated(self) -> bool:
        """Whether the best translation stopped at the limit of tokens and not by itself."""
        return self.result is not None and self.result.finish_reason == "length"

    def nth_text(self, rank: int) -> str:
        """The translation of this rank, or the last there is."""
        return self.candidates[min(rank, len(self.candidates) - 1)].text if self.candidates else self.segment.text


@dataclass(frozen=True, slots=True)
class TextTranslation:
    """What became of one text.

    Attributes:
        document: The source.
        segments: One for each of the document's.
    """

    document: Document
    segments: tuple[SegmentTranslation, ...]

    @property
    def text(self) -> str:
        """The best translation, with the source's own gaps."""
        return self.nth_text(0)

    def nth_text(self, rank: int) -> str:
        """Every segment's translation of this rank, or the last it has."""
        return self.document.join([segment.nth_text(rank) for segment in self.segments])

    @property
    def num_candidates(self) -> int:
        """How many different ranks there are; at least 1."""
        return max([1, *(len(segment.candidates) for segment in self.segments)])

    @property
    def truncated(self) -> bool:
        """Whether a segment's translation stopped at the limit of tokens."""
        return any(segment.truncated for segment in self.segments)

    @property
    def score(self) -> float | None:
        """Mean log-probability of a target token, over all segments; None where nothing was decoded or scored."""
        best = [segment.candidates[0].hypothesis for segment in self.segments if segment.candidates]
        log_probs = [hypothesis.log_prob for hypothesis in best if hypothesis.log_prob is not None]
        if not best or len(log_probs) < len(best):
            return None
        return math.fsum(log_probs) / sum(len(hypothesis.tokens) for hypothesis in best)


@dataclass(frozen=True, slots=True)
class Timings:
    """Where the time went, in seconds; sequences run side by side, so each is the longest of all.

    Attributes:
        queue_seconds: Until the last sequence was taken up.
        encode_seconds: In the encoder.
        decode_seconds: Writing.
    """

    queue_seconds: float = 0.0
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Translation:
    """The answer to a job.

    Attributes:
        texts: One for each of the job's, in order.
        source_tokens: Shown to the model, ends of sentences included.
        target_tokens: Of the best hypotheses, ends of sentences included.
        timings: Where the time went.
    """

    texts: tuple[TextTranslation, ...]
    source_tokens: int = 0
    target_tokens: int = 0
    timings: Timings = Timings()


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of a segment that is still being written.

    Attributes:
        text_index: Which text of the job.
        segment_index: Which segment of the text.
        text: What is new; never a part of a character.
    """

    text_index: int
    segment_index: int
    text: str


@dataclass(frozen=True, slots=True)
class SegmentDone:
    """A segment has its translation.

    Attributes:
        text_index: Which text of the job.
        segment_index: Which segment of the text.
        translation: What became of it.
    """

    text_index: int
    segment_index: int
    translation: SegmentTranslation


TranslationEvent = TextDelta | SegmentDone | Translation


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a sequence of the engine's request belongs."""

    text_index: int
    segment_index: int
    encoding: Encoding


@dataclass(slots=True)
class _Plan:
    """A job, segmented and tokenized."""

    documents: list[Document] = field(default_factory=list)
    places: list[_Place] = field(default_factory=list)


class Translator:
    """Translates texts with the models of one engine."""

    def __init__(self, engine: Engine, tokenizers: Mapping[str, TextTokenizer], *, max_segment_tokens: int) -> None:
        """Joins an engine with the tokenizers of its models.

        Args:
            engine: May be started later.
            tokenizers: By the name of the model.
            max_segment_tokens: The longest segment shown to a model whole, end of sentence included.
        """
        self._engine = engine
        self._tokenizers = dict(tokenizers)
        self._max_segment_tokens = max_segment_tokens

    def find_model(
        self, *, model: str | None = None, source: str | None = None, target: str | None = None
    ) -> ModelInfo:
        """The model that a request means.

        A language code also finds the model of its main language (`en-GB` finds `en`), whatever the case of its
        letters. Without anything given, the only model there is.

        Raises:
            UnknownModel: If no model has the name.
            UnknownLanguagePair: If no model fits, or several do.
            EngineStopping: If no model is loaded yet.
        """
        models = self._models()
        if model is not None and all(info.name != model for info in models):
            raise UnknownModel(model, [info.name for info in models])
        candidates = [info for info in models if model in (None, info.name)]
        for side, given in (("source", source), ("target", target)):
            if given is None:
                continue
            codes = sorted({getattr(info, f"{side}_language") for info in candidates})
            candidates = _speaking(candidates, side, given)
            if not candidates:
                who = f'the model "{model}" has not' if model else "no model has"
                reason = f'{who} the {side} language "{given}"'
                if side == "target" and source is not None:
                    reason += f' for the source language "{source}"'
                raise UnknownLanguagePair(side, given, reason, codes)
        if len(candidates) > 1:
            names = [info.name for info in candidates]
            raise UnknownLanguagePair("model", None, "more than one model fits, so one must be named", names)
        return candidates[0]

    def pairs(self) -> tuple[str, ...]:
        """The language pairs that can be translated, as `en-fr`.

        Raises:
            EngineStopping: If no model is loaded yet.
        """
        return tuple(sorted({f"{info.source_language}-{info.target_language}" for info in self._models()}))

    def tokenizer(self, model: ModelInfo) -> TextTokenizer:
        """The tokenizer of a model."""
        return self._tokenizers[model.name]

    async def translate(self, job: Job) -> Translation:
        """Translates all texts of a job; if the caller is cancelled, the engine lets go of it.

        Raises:
            EngineError: As `Engine.submit`, or `SequenceFailed` if the model failed for a segment.
        """
        plan = await self._plan(job)
        if not plan.places:
            return _finish(plan, {}, None)
        request = _engine_request(plan, job)
        try:
            async with asyncio.timeout(_patience(job)):
                result = await self._engine.submit(request)
        except TimeoutError as error:  # the engine keeps deadlines itself, unless it hangs
            raise DeadlineExceeded(request.request_id) from error
        result.raise_if_failed()
        tokenizer = self._tokenizers[job.model.name]
        done = {
            (place.text_index, place.segment_index): _segment_done(plan, place, sequence, tokenizer)
            for place, sequence in zip(plan.places, result.sequences, strict=True)
        }
        return _finish(plan, done, result)

    async def stream(self, job: Job) -> AsyncIterator[TranslationEvent]:
        """As `translate`, event by event; the last one is the whole translation.

        Segments are written side by side, so their events are mixed. Only greedy and sampled ones come in parts; a
        beam is heard of when its segment is done. A caller that stops early closes the iterator (`aclosing`).

        Raises:
            EngineError: As `translate`; refusals come before the first event.
        """
        plan = await self._plan(job)
        if not plan.places:
            yield _finish(plan, {}, None)
            return
        tokenizer = self._tokenizers[job.model.name]
        streams: dict[int, DecodeStream] = {}
        done: dict[tuple[int, int], SegmentTranslation] = {}
        request = _engine_request(plan, job)
        events = self._engine.stream(request)
        async with aclosing(events):
            while True:
                try:
                    async with asyncio.timeout(_patience(job)):
                        event = await anext(events)
                except TimeoutError as error:
                    raise DeadlineExceeded(request.request_id) from error
                if isinstance(event, RequestDoneEvent):
                    event.result.raise_if_failed()
                    yield _finish(plan, done, event.result)
                    return
                place = plan.places[event.sequence_index]
                where = place.text_index, place.segment_index
                if isinstance(event, TokensEvent):
                    decoder = streams.setdefault(event.sequence_index, tokenizer.decode_stream())
                    text = "".join(decoder.push(token_id) for token_id in event.token_ids)
                    if text:
                        yield TextDelta(*where, text)
                elif event.result.failure is None:
                    done[where] = _segment_done(plan, place, event.result, tokenizer)
                    yield SegmentDone(*where, done[where])

    def _models(self) -> tuple[ModelInfo, ...]:
        models = self._engine.models()
        if not models:
            raise EngineStopping(self._engine.not_ready_reason or "no model is loaded")
        return models

    async def _plan(self, job: Job) -> _Plan:
        if sum(map(len, job.texts)) > _LONG_TEXT_CHARACTERS:
            return await asyncio.to_thread(self._plan_now, job)
        return self._plan_now(job)

    def _plan_now(self, job: Job) -> _Plan:
        tokenizer, language = self._tokenizers[job.model.name], job.model.source_language
        encodings: dict[str, Encoding] = {}

        def encode(text: str) -> Encoding:
            if text not in encodings:
                encodings[text] = tokenizer.encode(text, language, add_eos=True)
            return encodings[text]

        plan = _Plan()
        max_tokens = min(self._max_segment_tokens, job.model.max_source_tokens)
        for text in job.texts:
            document = segment_text(
                text, language, max_tokens=max_tokens, count_tokens=lambda part: len(encode(part).ids)
            )
            for segment_index, segment in enumerate(document.segments):
                # The end of sentence alone is nothing to translate.
                if segment.translatable and len(encode(segment.text).ids) > 1:
                    plan.places.append(_Place(len(plan.documents), segment_index, encode(segment.text)))
            plan.documents.append(document)
        return plan


def _patience(job: Job) -> float | None:
    """Seconds after which the engine must have answered."""
    return None if job.deadline is None else max(0.0, job.deadline - time.monotonic()) + _DEADLINE_GRACE_SECONDS


def _speaking(models: list[ModelInfo], side: str, language: str) -> list[ModelInfo]:
    """Models that have the language on this side; the exact code wins over its main language."""
    for wanted in (_folded(language), _folded(language).partition("-")[0]):
        found = [info for info in models if _folded(getattr(info, f"{side}_language")) == wanted]
        if found:
            return found
    return []


def _folded(language: str) -> str:
    return language.lower().replace("_", "-")


def _engine_request(plan: _Plan, job: Job) -> EngineRequest:
    return EngineRequest(
        request_id=uuid.uuid4().hex,
        model=job.model.name,
        sequences=tuple(SequenceRequest(place.encoding.ids, job.options) for place in plan.places),
        deadline=job.deadline,
        with_log_probs=job.with_log_probs,
    )


def _segment_done(plan: _Plan, place: _Place, sequence: SequenceResult, tokenizer: TextTokenizer) -> SegmentTranslation:
    segment = plan.documents[place.text_index].segments[place.segment_index]
    candidates = tuple(
        # What a model leaves out whole is better shown in the source language than lost.
        Candidate(tokenizer.decode(hypothesis.tokens_without_eos).strip() or segment.text, hypothesis)
        for hypothesis in sequence.hypotheses
    )
    return SegmentTranslation(segment, place.encoding, candidates, sequence)


def _finish(
    plan: _Plan, done: Mapping[tuple[int, int], SegmentTranslation], result: RequestResult | None
) -> Translation:
    texts = tuple(
        TextTranslation(
            document,
            tuple(
                done.get((text_index, segment_index)) or SegmentTranslation(segment)
                for segment_index, segment in enumerate(document.segments)
            ),
        )
        for text_index, document in enumerate(plan.documents)
    )
    if result is None:
        return Translation(texts)
    timings = [sequence.timings for sequence in result.sequences]
    return Translation(
        texts,
        source_tokens=result.num_source_tokens,
        target_tokens=result.num_target_tokens,
        timings=Timings(
            queue_seconds=max(timing.queue_seconds for timing in timings),
            encode_seconds=max(timing.encode_seconds for timing in timings),
            decode_seconds=max(timing.decode_seconds for timing in timings),
        ),
    )
