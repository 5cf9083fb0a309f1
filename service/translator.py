"""Request to segments to engine to text.

    translator = Translator(engine, {"en-fr": tokenizer}, max_segment_tokens=128)
    model = translator.find_model(source="en", target="fr")
    translation = await translator.translate(Job(("Good morning.",), model))

Every segment of every text goes to the engine in one request, so they are decoded together; what has to be tried again
(`service/pipeline.py`) goes there together too. Results are put back in order. This file knows nothing of HTTP, and
nothing of torch.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import functools
import itertools
import math
import time
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from model.decoding import DecodingOptions, Hypothesis
from model.lexicon import Lexicon
from model.marian_tokenizer import MarianTokenizer
from model.normalizer import NormalizedText
from model.tokenizer import DecodeStream, Encoding, TextTokenizer
from service.alignment import align, lost_elements, votes, with_emphasis
from service.aside import aside, breathe
from service.engine.errors import DeadlineExceeded, EngineError, EngineStopping, UnknownModel, WaitTooLong
from service.engine.inspection import Aligner
from service.engine.interface import SHARE_TOKENS, Engine, ModelInfo
from service.engine.request import (
    EngineEvent,
    EngineRequest,
    RequestDoneEvent,
    RequestResult,
    SequenceDoneEvent,
    SequenceRequest,
    SequenceResult,
    SequenceTimings,
    TokensEvent,
)
from service.engine.speed import wait_seconds, work_seconds
from service.engine.work import current_work
from service.pipeline import Asked, Outcome, Part, SegmentWork, Vocabulary, WarningCode
from service.routing import Route, UnknownLanguagePair, by_target, find_model, routes, speaking
from service.spans import span
from service.text import detection
from service.text.detection import Detection
from service.text.emphasis import Emphasis, find_emphasis
from service.text.forms import NEVER_WRITTEN
from service.text.segmenter import Document, Segment, segment_text
from service.text.terms import Terms

_T = TypeVar("_T")
_AddAll = Callable[[Callable[[], None]], None]
"""Adds segments to a `SegmentWork`, and calls what it is given after each."""

LONG_TEXT_CHARACTERS = 2_000
"""Longer requests are segmented and tokenized in a thread, so that they do not hold up the event loop."""

MANY_SEGMENTS = 100
"""Likewise what is answered about more."""

_MANY_TOKENS = 1_000
"""Likewise what the engine made of more, in all hypotheses."""

_MANY_SEQUENCES = 16
"""Of fewer the first do not end much before the last."""

_PART_GROWTH = 3
"""So many times as many sequences are in each part of a request that is submitted in parts: it has few of them."""

_EVENTS_AT_ONCE = 16
"""Of a stream, before others have their turn: to send them may not wait for anything."""

_BYTES_PER_TOKEN = 3.5
"""About, of UTF-8: English with the bundled model has 3.5 characters in a token, Chinese about one of three bytes."""

_DEADLINE_GRACE_SECONDS = 1.0
"""How much longer than its deadline a request waits for an engine that does not answer."""

AUTO = "auto"
"""As a source language: it is to be found out."""

_MAX_FOUND = 256
"""How many wishes for a model are remembered."""

_MAX_NAMED_TEXTS = 10
"""How many texts of an unknown language a message names."""


class UnknownSourceLanguage(EngineError):
    """The language of a text was to be found out, and is none that can be translated, or cannot be told.

    Attributes:
        indices: Which of the texts, in order.
        fields: The same as `text[3]`, or `text` where there is only one.
        texts: Those texts.
        looks_like: For each, the most probable language of all.
        available: Codes of the languages that can be translated.
    """

    def __init__(
        self, texts: Mapping[int, str], looks_like: Sequence[str | None], available: Sequence[str], num_texts: int
    ) -> None:
        self.indices = tuple(texts)
        self.fields = tuple(f"text[{index}]" if num_texts > 1 else "text" for index in texts)
        self.texts = tuple(texts.values())
        self.looks_like = tuple(looks_like)
        self.available = tuple(available)
        named = [f"{field} looks like {like}" for field, like in zip(self.fields, self.looks_like, strict=True)]
        if len(named) > _MAX_NAMED_TEXTS:
            named[_MAX_NAMED_TEXTS:] = [f"{len(named) - _MAX_NAMED_TEXTS} more"]
        super().__init__(
            f"not clearly in a language that can be translated ({', '.join(available)}): {', '.join(named)}; "
            "name the source if it is one of them"
        )


@dataclass(frozen=True, slots=True)
class Job:
    """What is to be translated, and how.

    Attributes:
        texts: Any texts; empty ones too.
        model: One of the engine's models.
        models: One for each text, where they are not the same; otherwise empty.
        detections: One for each text, where its language was found out; otherwise empty.
        options: How to search.
        deadline: As in `EngineRequest`.
        with_log_probs: Whether scores are wanted.
        terms: What must be translated so, and no other way; see `service/text/terms.py`.
        split_sentences: Whether lines of plain text are parted into sentences; otherwise each counts as one.
    """

    texts: tuple[str, ...]
    model: ModelInfo
    options: DecodingOptions = DecodingOptions()
    deadline: float | None = None
    with_log_probs: bool = False
    models: tuple[ModelInfo, ...] = ()
    detections: tuple[Detection, ...] = ()
    terms: Terms | None = None
    split_sentences: bool = True

    def model_of(self, text_index: int) -> ModelInfo:
        """The model for one of the texts."""
        return self.models[text_index] if self.models else self.model


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
        encoding: What the model was shown, with places in the segment's text; None if nothing was, and the segment came
            back as it is. Where the segment was translated in several parts, those of all of them, one after the other.
        candidates: Best first; as many as were wanted and found, none without an encoding. Their tokens are likewise
            those of all parts.
        parts: Stretches of the segment that were translated on their own; a whole segment is one part.
        warnings: What is wrong with the translation.
    """

    segment: Segment
    encoding: Encoding | None = None
    candidates: tuple[Candidate, ...] = ()
    parts: tuple[Part, ...] = ()
    warnings: tuple[WarningCode, ...] = ()

    @property
    def text(self) -> str:
        """The best translation."""
        return self.nth_text(0)

    @property
    def truncated(self) -> bool:
        """Whether the best translation stopped at the limit of tokens and not by itself."""
        return bool(self.candidates) and self.candidates[0].hypothesis.finish_reason == "length"

    def nth_text(self, rank: int) -> str:
        """The translation of this rank, or the last there is."""
        if self.candidates:
            return self.candidates[min(rank, len(self.candidates) - 1)].text
        # What was shown to no model is its own translation, or a glossary's.
        return "".join(part.nth_text(rank) for part in self.parts) if self.parts else self.segment.text


@dataclass(frozen=True, slots=True)
class TextTranslation:
    """What became of one text.

    Attributes:
        document: The source.
        segments: One for each of the document's.
        before: If two models translated it, one after the other, what the first one made of it: that is then the source
            of `document` and `segments`.
    """

    document: Document
    segments: tuple[SegmentTranslation, ...]
    before: TextTranslation | None = None

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
    def warnings(self) -> tuple[tuple[int, WarningCode], ...]:
        """What is wrong, each with the index of its segment; in the step before first, by that one's segments."""
        own: list[tuple[int, WarningCode]] = []
        for index, each in enumerate(self.segments):
            own += ((index, code) for code in each.warnings)
            own += [(index, "long")] if each.segment.windowed else []
        return tuple(own) if self.before is None else (*self.before.warnings, *own)

    @property
    def windowed(self) -> bool:
        """Whether a sentence was too long for a model, and was translated in parts."""
        return self.document.windowed or (self.before is not None and self.before.windowed)

    @property
    def truncated(self) -> bool:
        """Whether a segment's translation stopped at the limit of tokens."""
        return any(segment.truncated for segment in self.segments) or (
            self.before is not None and self.before.truncated
        )

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

    Where something had to be tried again, the rounds are added up.

    Attributes:
        queue_seconds: Until the last sequence was taken up.
        encode_seconds: In the encoder.
        decode_seconds: Writing.
    """

    queue_seconds: float = 0.0
    encode_seconds: float = 0.0
    decode_seconds: float = 0.0

    @classmethod
    def of(cls, timings: SequenceTimings) -> Timings:
        """Of one sequence."""
        return cls(timings.queue_seconds, timings.encode_seconds, timings.decode_seconds)

    def after(self, result: RequestResult) -> Timings:
        """With one more round."""
        rounds = (Timings.of(sequence.timings) for sequence in result.sequences)
        return self.before(functools.reduce(Timings.beside, rounds))

    def before(self, other: Timings) -> Timings:
        """Of two pieces of work that ran one after the other."""
        return Timings(
            self.queue_seconds + other.queue_seconds,
            self.encode_seconds + other.encode_seconds,
            self.decode_seconds + other.decode_seconds,
        )

    def beside(self, other: Timings) -> Timings:
        """Of two pieces of work that ran side by side."""
        return Timings(
            queue_seconds=max(self.queue_seconds, other.queue_seconds),
            encode_seconds=max(self.encode_seconds, other.encode_seconds),
            decode_seconds=max(self.decode_seconds, other.decode_seconds),
        )


@dataclass(frozen=True, slots=True)
class Translation:
    """The answer to a job.

    Attributes:
        texts: One for each of the job's, in order.
        source_tokens: Of what the translations were made from, ends of sentences included; not of what was given up.
        target_tokens: Of the best hypotheses, ends of sentences included.
        timings: Where the time went.
        num_retries: Sequences that had to be tried again.
    """

    texts: tuple[TextTranslation, ...]
    source_tokens: int = 0
    target_tokens: int = 0
    timings: Timings = Timings()
    num_retries: int = 0


@dataclass(frozen=True, slots=True)
class SegmentSource:
    """A segment that is to be translated, for callers that find segments themselves.

    Attributes:
        text: Without line breaks.
        kept: `[start, end)` of what must be kept besides what is found, in code points of the text; in order.
        apart: `[start, end)` of what is translated on its own, likewise.
    """

    text: str
    kept: tuple[tuple[int, int], ...] = ()
    apart: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More text of a segment that is still being written.

    Attributes:
        text_index: Which text of the job.
        segment_index: Which segment of the text.
        text: What is new; never a part of a character.
        text_so_far: All of the segment until now; its translation begins with it.
    """

    text_index: int
    segment_index: int
    text: str
    text_so_far: str


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


@dataclass(slots=True)
class _Plan:
    """A job, segmented.

    Attributes:
        documents: One for each text.
        work: What is to be translated.
        places: For each segment of `work` its text's and its own index.
        emphases: By segment of `work`, those that were given to it without their marks of emphasis.
    """

    work: SegmentWork
    documents: list[Document] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    emphases: dict[int, Emphasis] = field(default_factory=dict)

    def segment(self, index: int) -> Segment:
        """A segment of `work`, as it stands in its text."""
        text_index, segment_index = self.places[index]
        return self.documents[text_index].segments[segment_index]


@dataclass(slots=True)
class _Told:
    """What was told of a segment.

    Attributes:
        untold: Tokens of which nothing was told yet: a character is not whole, or never to be written.
        written: What the model wrote.
        text: All of it.
    """

    untold: tuple[int, ...] = ()
    written: str = ""
    text: str = ""

    def go_on(self, text: str) -> str:
        """Takes all that can be told by now; returns what is new in it."""
        delta = text[len(self.text) :]
        self.text += delta
        return delta


class Translator:
    """Translates texts with the models of one engine."""

    def __init__(
        self,
        engine: Engine,
        tokenizers: Mapping[str, TextTokenizer],
        *,
        max_segment_tokens: int,
        max_wait_seconds: float = math.inf,
        on_outcomes: Callable[[str, Sequence[Outcome]], None] | None = None,
        lexicons: Mapping[str, Lexicon] | None = None,
        aligner: Aligner | None = None,
    ) -> None:
        """Joins an engine with the tokenizers of its models.

        Args:
            engine: May be started later.
            tokenizers: By the name of the model.
            max_segment_tokens: The longest segment shown to a model whole, end of sentence included.
            max_wait_seconds: What would wait longer for the engine is refused, before anything is done for it.
            on_outcomes: Told of the segments of a translation, with the model's name.
            lexicons: By the name of the model, of those that have one.
            aligner: Says where marks of emphasis belong; without it they are signs that a model is shown.
        """
        self._engine = engine
        self._aligner = aligner
        self._tokenizers = dict(tokenizers)
        self._lexicons = dict(lexicons or {})
        self._max_segment_tokens = max_segment_tokens
        self._max_wait_seconds = max_wait_seconds
        self._on_outcomes = on_outcomes
        self._preparing_tokens = 0.0
        """About, of what was let in and is still being taken apart: the engine does not know of it yet."""
        self._by_target: dict[tuple[str, str], TextTokenizer] = {}
        self._vocabularies: dict[tuple[str, str], Vocabulary] = {}
        self._models_known: tuple[ModelInfo, ...] = ()
        self._found: dict[tuple[str | None, str | None, str | None, bool], ModelInfo] = {}
        """What `find_model` has found among these."""

    def find_model(
        self,
        *,
        model: str | None = None,
        source: str | None = None,
        target: str | None = None,
        with_routes: bool = False,
    ) -> ModelInfo:
        """The model that a request means, see `service.routing.find_model`.

        Raises:
            UnknownModel: If no model has the name.
            UnknownLanguagePair: If no model fits, or several do.
            EngineStopping: If no model is loaded yet.
        """
        models, wish = self._models(), (model, source, target, with_routes)
        if models is not self._models_known:
            self._models_known, self._found = models, {}
        if wish not in self._found:
            found = find_model(models, model=model, source=source, target=target, with_routes=with_routes)
            if len(self._found) >= _MAX_FOUND:  # clients spell their wishes as they like
                self._found.clear()
            self._found[wish] = found
        return self._found[wish]

    def must_detect(
        self, source: str | None, *, model: str | None = None, target: str | None = None, with_routes: bool = False
    ) -> bool:
        """Whether the language of texts is to be found out: it is `auto`, or not given and there are several.

        Args:
            source: Code of the language to read, `auto`, or None.
            model: Name of the only model to use.
            target: Code of the language to translate to.
            with_routes: As for `find_model`.

        Raises:
            UnknownModel, UnknownLanguagePair, EngineStopping: As `source_languages`, where `source` is None.
        """
        if source is not None:
            return source.lower() == AUTO
        try:
            self.find_model(model=model, target=target, with_routes=with_routes)
        except UnknownLanguagePair:
            return len(self.source_languages(model=model, target=target)) > 1
        return False

    def ways(self) -> tuple[ModelInfo, ...]:
        """Everything that can be translated: each model once for each of its targets, then ways through a language.

        Raises:
            EngineStopping: If no model is loaded yet.
        """
        models = self._models()
        return (*by_target(models), *routes(models))

    def source_languages(self, *, model: str | None = None, target: str | None = None) -> tuple[str, ...]:
        """The languages that can be translated, in alphabetical order, where a model or a target is given from there.

        Raises:
            UnknownModel: If no model has the name.
            UnknownLanguagePair: If no model writes the target.
            EngineStopping: If no model is loaded yet.
        """
        if model is None:
            ways = self.ways()
        else:
            ways = tuple(by_target(info for info in self._models() if info.name == model))
            if not ways:
                raise UnknownModel(model, [info.name for info in self._models()])
        if target is not None:
            codes = sorted({info.target_language for info in ways})
            ways = tuple(speaking(ways, "target", target))
            if not ways:
                who = f'the model "{model}" has not' if model else "no model has"
                raise UnknownLanguagePair("target", target, f'{who} the target language "{target}"', codes)
        return tuple(sorted({info.source_language for info in ways}))

    async def detect(
        self, texts: Sequence[str], *, model: str | None = None, target: str | None = None
    ) -> list[Detection]:
        """The language of each text, as far as it can be translated.

        Raises:
            UnknownModel, UnknownLanguagePair, EngineStopping: As `source_languages`.
        """
        languages = self.source_languages(model=model, target=target)

        def detect_all() -> list[Detection]:
            found = []
            for text in texts:
                breathe()
                found.append(detection.detect(text, languages))
            return found

        size = sum(map(len, texts)) / LONG_TEXT_CHARACTERS if detection.is_warm() else math.inf
        return await aside(detect_all, size)

    async def detect_models(
        self, texts: Sequence[str], *, model: str | None = None, target: str | None = None, with_routes: bool = True
    ) -> tuple[tuple[ModelInfo, ...], tuple[Detection, ...]]:
        """For each text the model that reads its language, and what was found out about that.

        A text without a letter has no language, which is no fault: it gets the model of the first one that has.

        Args:
            texts: At least one.
            model: Name of the only model to use.
            target: Code of the language to translate to.
            with_routes: As for `find_model`.

        Raises:
            UnknownSourceLanguage: Names every text whose language cannot be told, or not be translated.
            UnknownModel, UnknownLanguagePair, EngineStopping: As `find_model`.
        """
        with self.preparing(texts):
            detections = await self.detect(texts, model=model, target=target)
        languages = self.source_languages(model=model, target=target)
        unknown = {index: found for index, found in enumerate(detections) if not found.is_known and found.looks_like}
        if unknown:
            looks_like = [found.looks_like for found in unknown.values()]
            raise UnknownSourceLanguage({index: texts[index] for index in unknown}, looks_like, languages, len(texts))
        known = [found.language for found in detections if found.is_known]
        fallback = known[0] if known else languages[0]
        models = {
            language: self.find_model(model=model, source=language, target=target, with_routes=with_routes)
            for language in {fallback, *known}
        }
        return tuple(models.get(found.language, models[fallback]) for found in detections), tuple(detections)

    def tokenizer(self, model: ModelInfo) -> TextTokenizer:
        """The tokenizer of a model for the target that is meant, or of the last step of a way."""
        if isinstance(model, Route):
            return self.tokenizer(model.steps[-1])
        place = model.name, model.target_language
        if place not in self._by_target:
            found = self._tokenizers[model.name]
            if isinstance(found, MarianTokenizer) and model.target_language in found.target_languages[1:]:
                found = found.for_target(model.target_language)
            self._by_target[place] = found
        return self._by_target[place]

    async def translate(self, job: Job) -> Translation:
        """Translates all texts of a job; if the caller is cancelled, the engine lets go of it.

        Raises:
            EngineError: As `Engine.submit`, or `SequenceFailed` if the model failed for a segment.
        """
        parts = part_by_model(job)
        if len(parts) == 1:
            return await self._translate_part(job)
        done = await run_together(self._translate_part(part) for part, _ in parts)
        return _joined(job, [(translation, indices) for translation, (_, indices) in zip(done, parts, strict=True)])

    async def _translate_part(self, job: Job) -> Translation:
        """Translates texts that have one model, or one way through two."""
        if isinstance(job.model, Route):
            first = await self._translate_part(_first_step(job, job.model))
            return _chained_translation(first, await self._translate_part(_last_step(job, job.model, first)))
        plan = _Plan(self._work(job))
        timings = await self._run(plan.work, job, job.texts, functools.partial(self._plan_now, plan, job))
        done, more = await self._emphasised(plan, range(len(plan.places)), job)
        return await self._conclude(plan, done, timings.before(more), job)

    def segment(self, text: str, model: ModelInfo, deadline: float | None = None) -> Document:
        """The segments of a text, as `translate` finds them; takes time linear in its length.

        Raises:
            DeadlineExceeded: If that passes meanwhile.
        """
        job = Job((), model, deadline=deadline)
        return self._segment(text, job, self._work(job))

    async def translate_segments(
        self, sources: Sequence[SegmentSource], job: Job
    ) -> tuple[list[SegmentTranslation], Timings]:
        """Translates segments that somebody else has found, with kept spans and guards as `translate` does it.

        Args:
            sources: All go to the engine at once.
            job: Its texts do not count.

        Returns:
            One translation for each source, whose `segment` is the source itself, and where the time went.

        Raises:
            EngineError: As `translate`.
        """
        if isinstance(job.model, Route):
            language, target = job.model.source_language, job.model.target_language
            reason = f'no model alone translates "{language}" to "{target}"; only plain text goes via another language'
            readable = speaking(by_target(self._models()), "source", language)
            raise UnknownLanguagePair("target", target, reason, sorted({info.target_language for info in readable}))
        work = self._work(job)

        def add_all(has_more: Callable[[], None]) -> None:
            for source in sources:
                work.add(source.text, source.kept, source.apart)
                has_more()

        timings = await self._run(work, job, [source.text for source in sources], add_all)

        def conclude() -> list[SegmentTranslation]:
            self._tell(work, job)
            segments = [Segment(0, len(source.text), source.text, translatable=True) for source in sources]
            return [_segment_done(*pair) for pair in zip(segments, work.outcomes(), strict=True)]

        return await aside(conclude, sum(len(source.text) for source in sources) / LONG_TEXT_CHARACTERS), timings

    async def stream(self, job: Job) -> AsyncGenerator[TranslationEvent, None]:
        """As `translate`, event by event; the last one is the whole translation.

        Segments are written side by side, so their events are mixed. Greedy and sampled ones come in parts, but all at
        once if there is a kept span in them; a beam is heard of when its segment is done. What has been told stands:
        where something is tried again, that is the rest of it. A caller that stops early closes the iterator
        (`aclosing`).

        Raises:
            EngineError: As `translate`; refusals come before the first event.
        """
        parts = part_by_model(job)
        if len(parts) == 1:
            events = self._stream_part(job)
        else:
            events = _merged(job, [(self._stream_part(part), indices) for part, indices in parts])
        async with aclosing(events):
            async for event in events:
                yield event

    async def _stream_part(self, job: Job) -> AsyncGenerator[TranslationEvent, None]:
        if isinstance(job.model, Route):
            first = await self._translate_part(_first_step(job, job.model))
            async with aclosing(self._stream_part(_last_step(job, job.model, first))) as last:
                async for told in last:
                    yield _chained_translation(first, told) if isinstance(told, Translation) else told
            return
        plan = _Plan(self._work(job))
        work = plan.work
        await self._prepare(job.texts, functools.partial(self._plan_now, plan, job))
        tokenizer = self.tokenizer(job.model)
        done: dict[int, SegmentTranslation] = {}
        told_of = collections.defaultdict[int, _Told](_Told)
        timings = Timings()
        num_events = 0
        while sequences := work.sequences():
            owners = work.owners()
            plain = [owner not in plan.emphases and work.shows_plainly(place) for place, owner in enumerate(owners)]
            streams: dict[int, DecodeStream] = {}
            request = self._request(sequences, job)
            events = self._engine.stream(request)
            async with aclosing(events):
                async for event in _patiently(events, request, job):
                    if isinstance(event, RequestDoneEvent):
                        event.result.raise_if_failed()
                        await _take(work, event.result)
                        timings = timings.after(event.result)
                        break
                    if isinstance(event, TokensEvent) and plain[event.sequence_index]:
                        decoder = streams.setdefault(event.sequence_index, tokenizer.decode_stream())
                        text = "".join(decoder.push(token_id) for token_id in event.token_ids)
                        owner = owners[event.sequence_index]
                        here = told_of[owner]
                        here.untold += event.token_ids
                        if NEVER_WRITTEN.search(text):
                            plain[event.sequence_index] = False  # what comes from here on will be tried again
                        if not text or not plain[event.sequence_index]:
                            continue
                        work.show(event.sequence_index, here.untold)
                        here.untold = ()
                        here.written += text
                        delta = here.go_on(work.preview(event.sequence_index, here.written))
                        if delta:
                            yield TextDelta(*plan.places[owner], delta, here.text)
            shared = itertools.chain.from_iterable(work.sharing(owner) for owner in dict.fromkeys(owners))
            finished = [index for index in shared if work.is_done(index)]
            emphasised, more = await self._emphasised(plan, finished, job)
            timings = timings.before(more)
            for index in finished:
                text_index, segment_index = plan.places[index]
                done[index] = emphasised.get(index) or _segment_done(plan.segment(index), work.outcome(index))
                text = done[index].text
                rest = text.removeprefix(told_of[index].text)
                if rest and job.options.beam_size == 1:
                    yield TextDelta(text_index, segment_index, rest, text)
                yield SegmentDone(text_index, segment_index, done[index])
                num_events += 1
                if num_events % _EVENTS_AT_ONCE == 0:
                    await asyncio.sleep(0)
        yield await self._conclude(plan, done, timings, job)

    def _models(self) -> tuple[ModelInfo, ...]:
        models = self._engine.models()
        if not models:
            raise EngineStopping(self._engine.not_ready_reason or "no model is loaded")
        return models

    def check_wait(self, num_bytes: int) -> None:
        """Refuses what would wait too long, by the length of its text: to take that apart first would cost more.

        Args:
            num_bytes: Of its text, as UTF-8.

        Raises:
            WaitTooLong: With a guess of when to try again. Never for what goes on with work that has begun.
        """
        work = current_work.get()
        if self._max_wait_seconds == math.inf or (work is not None and work.has_begun):
            return
        stats = self._engine.stats()
        ahead = stats.promised_tokens + self._preparing_tokens
        wait = wait_seconds(ahead, num_bytes / _BYTES_PER_TOKEN, stats.source_tokens_per_second)
        if wait > self._max_wait_seconds:
            raise WaitTooLong(wait, self._max_wait_seconds, stats.waiting_tokens, stats.max_waiting_tokens)

    @contextmanager
    def preparing(self, texts: Iterable[str]) -> Iterator[None]:
        """While texts are taken apart: refuses as `check_wait`; those that come meanwhile wait for these, too."""
        num_bytes = sum(len(text.encode()) for text in texts)
        self.check_wait(num_bytes)
        num_tokens = min(num_bytes / _BYTES_PER_TOKEN, SHARE_TOKENS)
        self._preparing_tokens += num_tokens
        try:
            yield
        finally:
            self._preparing_tokens -= num_tokens

    async def _prepare(
        self, texts: Sequence[str], add_all: _AddAll, has_more: Callable[[], None] = lambda: None
    ) -> None:
        """Takes texts apart.

        Args:
            texts: To be taken apart.
            add_all: Does it; in a thread, if they are long.
            has_more: Called, there, when a sequence may be ready.
        """
        with self.preparing(texts), span("tokenize"):
            await aside(add_all, sum(map(len, texts)) / LONG_TEXT_CHARACTERS, has_more)

    def _plan_now(self, plan: _Plan, job: Job, has_more: Callable[[], None]) -> None:
        for text in job.texts:
            document = self._segment(text, job, plan.work)
            for segment_index, segment in enumerate(document.segments):
                if segment.translatable:
                    emphasis = None if self._aligner is None else find_emphasis(segment.text)
                    if emphasis is not None:
                        plan.emphases[len(plan.places)] = emphasis
                    plan.places.append((len(plan.documents), segment_index))
                    plan.work.add(segment.text if emphasis is None else emphasis.text)
                    has_more()
            plan.documents.append(document)

    def _segment(self, text: str, job: Job, work: SegmentWork) -> Document:
        def count_tokens(part: str) -> int:
            _check_deadline(job)
            return len(work.encode(part).ids)

        return segment_text(
            text,
            job.model.source_language,
            max_tokens=min(self._max_segment_tokens, job.model.max_source_tokens),
            count_tokens=count_tokens,
            kept=lambda sentence: [(span.start, span.end) for span in work.spans(sentence)],
            split_sentences=job.split_sentences,
        )

    def _vocabulary(self, model: ModelInfo) -> Vocabulary:
        place = model.name, model.target_language
        if place not in self._vocabularies:
            self._vocabularies[place] = Vocabulary(
                self.tokenizer(model), model.source_language, model.target_language, self._lexicons.get(model.name)
            )
        return self._vocabularies[place]

    def _work(self, job: Job) -> SegmentWork:
        max_rows = self._engine.stats().max_rows
        return SegmentWork(
            self._vocabulary(job.model),
            job.options,
            max_tokens=job.model.max_source_tokens,
            max_beam_size=max(1, max_rows),
            terms=job.terms,
            check=functools.partial(_check_deadline, job),
        )

    def _request(self, sequences: Sequence[SequenceRequest], job: Job, *, tells_tokens: bool = True) -> EngineRequest:
        return EngineRequest(
            request_id=uuid.uuid4().hex,
            model=job.model.name,
            sequences=tuple(sequences),
            deadline=job.deadline,
            with_log_probs=job.with_log_probs,
            tells_tokens=tells_tokens,
        )

    async def _emphasised(
        self, plan: _Plan, indices: Iterable[int], job: Job
    ) -> tuple[dict[int, SegmentTranslation], Timings]:
        """Of segments that are done, those that have marks of emphasis, with them; and where the time went."""
        aligner, wanted = self._aligner, [index for index in indices if index in plan.emphases]
        if aligner is None or not wanted:
            return {}, Timings()
        timings, size = Timings(), len(wanted) / MANY_SEGMENTS
        done = {index: plan.work.outcome(index) for index in wanted}
        parts = {index: outcome.parts for index, outcome in done.items()}
        aligned = await align(aligner, job.model.name, parts, job.deadline)

        def find_lost() -> dict[int, tuple[tuple[int, int], ...]]:
            lost: dict[int, tuple[tuple[int, int], ...]] = {}
            for index, alignments in aligned.items():
                breathe()
                emphasis, source = plan.emphases[index], plan.emphases[index].text
                text = "".join(part.text for part in parts[index])
                found = lost_elements(emphasis.items, source, text, votes(parts[index], source, alignments))
                lost |= {index: found} if found else {}
            return lost

        # A word that nothing of the translation comes from would leave its marks to another word.
        if lost := await aside(find_lost, size):
            sources = [SegmentSource(plan.emphases[index].text, apart=spans) for index, spans in lost.items()]
            again, timings = await self.translate_segments(sources, job)
            done |= {index: Outcome(each.parts, each.warnings) for index, each in zip(lost, again, strict=True)}
            parts |= {index: done[index].parts for index in lost}
            again_parts = {index: parts[index] for index in lost}
            aligned |= await align(aligner, job.model.name, again_parts, job.deadline)

        def place() -> dict[int, SegmentTranslation]:
            result = {}
            for index, outcome in done.items():
                breathe()
                marked = with_emphasis(outcome.parts, plan.emphases[index], aligned.get(index, {}))
                result[index] = _segment_done(plan.segment(index), Outcome(marked, outcome.warnings))
            return result

        return await aside(place, size), timings

    async def _conclude(
        self, plan: _Plan, done: Mapping[int, SegmentTranslation], timings: Timings, job: Job
    ) -> Translation:
        """The whole translation; tells of it."""

        def conclude() -> Translation:
            self._tell(plan.work, job)
            return _finish(plan, done, timings)

        return await aside(conclude, sum(map(len, job.texts)) / LONG_TEXT_CHARACTERS)

    def _tell(self, work: SegmentWork, job: Job) -> None:
        if self._on_outcomes is None:
            return
        found = []
        for outcome in work.outcomes():
            breathe()
            if any(part.encoding is not None for part in outcome.parts) or outcome.warnings:
                found.append(outcome)
        if found:
            self._on_outcomes(job.model.name, found)

    async def _run(self, work: SegmentWork, job: Job, texts: Sequence[str], add_all: _AddAll) -> Timings:
        """Takes texts apart and translates what comes of that, until nothing is left."""
        if sum(map(len, texts)) > LONG_TEXT_CHARACTERS:
            return await self._run_many(work, job, texts, add_all)
        await self._prepare(texts, add_all)
        if work.num_open >= _MANY_SEQUENCES:
            return await self._run_many(work, job)
        timings = Timings()
        while sequences := work.sequences():
            request = self._request(sequences, job)
            try:
                async with asyncio.timeout(_patience(job)):
                    result = await self._engine.submit(request)
            except TimeoutError as error:  # the engine keeps deadlines itself, unless it hangs
                raise DeadlineExceeded(request.request_id) from error
            result.raise_if_failed()
            await _take(work, result)
            timings = timings.after(result)
        return timings

    async def _run_many(
        self, work: SegmentWork, job: Job, texts: Sequence[str] = (), add_all: _AddAll | None = None
    ) -> Timings:
        """As `_run`, as much as can be side by side.

        The first are translated while others are taken apart, each is judged when it has ended, and what has to be
        tried again joins the rest at once.
        """
        found: asyncio.Queue[tuple[Asked, SequenceResult] | Exception | None] = asyncio.Queue()
        following: list[asyncio.Future[None]] = []
        rounds: dict[int, Timings] = {}
        num_running, size_told, part_size = 0, 0, _MANY_SEQUENCES
        loop = asyncio.get_running_loop()

        def has_more() -> None:
            nonlocal size_told
            if work.num_open >= part_size > size_told:
                size_told = part_size
                with contextlib.suppress(RuntimeError):  # nobody waits for it any more
                    loop.call_soon_threadsafe(found.put_nowait, None)

        async def follow(asked: Sequence[Asked]) -> None:
            request = self._request([each.sequence for each in asked], job, tells_tokens=False)
            try:
                async with aclosing(self._engine.stream(request)) as events:
                    async for event in _patiently(events, request, job):
                        if isinstance(event, RequestDoneEvent):
                            event.result.raise_if_failed()
                        elif isinstance(event, SequenceDoneEvent) and event.result.failure is None:
                            found.put_nowait((asked[event.sequence_index], event.result))
            except Exception as error:
                found.put_nowait(error)

        def judge(ended: Sequence[tuple[Asked, SequenceResult]]) -> None:
            for asked, result in ended:
                work.judge(asked, result)
                if work.is_done(asked.owner):
                    work.outcome(asked.owner)  # it is remembered

        preparing: asyncio.Future[None] = loop.create_future()
        if add_all is None:
            preparing.set_result(None)
        else:
            preparing = asyncio.ensure_future(self._prepare(texts, add_all, has_more))
        preparing.add_done_callback(lambda _: found.put_nowait(None))
        try:
            while True:
                ended = []
                for each in [await found.get(), *(found.get_nowait() for _ in range(found.qsize()))]:
                    if isinstance(each, Exception):
                        raise each
                    if each is not None:
                        ended.append(each)
                        timings = Timings.of(each[1].timings)
                        rounds[each[0].round] = rounds.get(each[0].round, timings).beside(timings)
                num_running -= len(ended)
                if ended:
                    with span("detokenize"):
                        await aside(judge, _num_tokens(result for _, result in ended) / _MANY_TOKENS, ended)
                is_prepared = preparing.done()
                if is_prepared:
                    preparing.result()
                is_due = work.num_open >= part_size and (bool(following) or self._may_begin(job, texts))
                if (is_prepared or is_due) and (asked := work.ask()):
                    # The longest first: so all end at about the same time.
                    asked.sort(key=lambda each: len(each.sequence.source_ids), reverse=True)
                    part_size *= _PART_GROWTH
                    num_running += len(asked)
                    following.append(asyncio.ensure_future(follow(asked)))
                if is_prepared and not num_running:
                    break
            await asyncio.gather(*following)
        finally:
            await _cancel_all([*following, preparing])
        return functools.reduce(Timings.before, rounds.values(), Timings())

    def _may_begin(self, job: Job, texts: Sequence[str]) -> bool:
        """Whether some of these texts may be submitted before all are taken apart: nothing that comes will be refused.

        What is submitted later is part of a piece of work that has begun, which is taken in any case.
        """
        work, stats = current_work.get(), self._engine.stats()
        if work is None or not work.is_open or work.must_be_whole or stats.waiting_tokens or stats.promised_tokens:
            return False
        # In each segment a token at most for each byte, for the space before it and for its end; one more byte parts
        # it from the next. Normal forms are up to three times as long as other letters.
        most_tokens = sum((2 if text.isascii() else 6) * len(text.encode()) + 2 for text in texts)
        model, rows = job.model, job.options.beam_size
        most_bytes = rows * (model.max_source_tokens + model.max_target_tokens) * model.cache_bytes_per_token
        seconds = work_seconds(most_tokens * rows, stats.row_tokens_per_second)
        return (
            most_tokens <= stats.max_waiting_tokens
            and 2 * most_bytes <= stats.kv_cache_total_bytes
            and (job.deadline is None or time.monotonic() + seconds < job.deadline)
        )


async def _take(work: SegmentWork, result: RequestResult) -> None:
    with span("detokenize"):
        await aside(work.take, _num_tokens(result.sequences) / _MANY_TOKENS, result.sequences)


def _num_tokens(results: Iterable[SequenceResult]) -> int:
    """How much there is to judge."""
    return sum(each.num_source_tokens * len(each.hypotheses) for each in results)


async def _patiently(
    events: AsyncIterator[EngineEvent], request: EngineRequest, job: Job
) -> AsyncIterator[EngineEvent]:
    """The events, as long as the engine answers in time."""
    while True:
        try:
            async with asyncio.timeout(_patience(job)):
                event = await anext(events)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            raise DeadlineExceeded(request.request_id) from error
        yield event


def _check_deadline(job: Job) -> None:
    """Between two steps of what is done before and after the engine's turns: it ends with the deadline too."""
    breathe()
    if job.deadline is not None and time.monotonic() > job.deadline:
        raise DeadlineExceeded("")


def _patience(job: Job) -> float | None:
    """Seconds after which the engine must have answered."""
    return None if job.deadline is None else max(0.0, job.deadline - time.monotonic()) + _DEADLINE_GRACE_SECONDS


def _segment_done(segment: Segment, outcome: Outcome) -> SegmentTranslation:
    shown = [part for part in outcome.parts if part.encoding is not None]
    candidates = tuple(
        Candidate(outcome.nth_text(rank), _joined_hypothesis(shown, rank)) for rank in range(outcome.num_ranks) if shown
    )
    return SegmentTranslation(segment, _joined_encoding(shown), candidates, outcome.parts, outcome.warnings)


def _joined_encoding(parts: Sequence[Part]) -> Encoding | None:
    encodings = [part.encoding for part in parts if part.encoding is not None]
    if len(encodings) < 2:
        return encodings[0] if encodings else None
    texts = [encoding.normalized for encoding in encodings]
    offsets = itertools.accumulate((len(text.text) for text in texts[:-1]), initial=0)
    return Encoding(
        ids=_chained(encoding.ids for encoding in encodings),
        pieces=_chained(encoding.pieces for encoding in encodings),
        spans=tuple(
            (start + offset, end + offset)
            for encoding, offset in zip(encodings, offsets, strict=True)
            for start, end in encoding.spans
        ),
        source_spans=_chained(encoding.source_spans for encoding in encodings),
        normalized=NormalizedText(
            "".join(text.text for text in texts),
            _chained(text.starts for text in texts),
            _chained(text.ends for text in texts),
        ),
    )


def _chained(values: Iterable[Iterable[_T]]) -> tuple[_T, ...]:
    return tuple(itertools.chain.from_iterable(values))


def _joined_hypothesis(parts: Sequence[Part], rank: int) -> Hypothesis:
    hypotheses = [part.hypotheses[min(rank, len(part.hypotheses) - 1)] for part in parts]
    if len(hypotheses) == 1:
        return hypotheses[0]
    tokens = _chained(hypothesis.tokens for hypothesis in hypotheses)
    cut = any(hypothesis.finish_reason == "length" for hypothesis in hypotheses)
    scores = [hypothesis.token_log_probs for hypothesis in hypotheses]
    joined = Hypothesis(tokens, "length" if cut else "stop")
    if any(score is None for score in scores):
        return joined
    log_probs = _chained(score for score in scores if score is not None)
    total = math.fsum(log_probs)
    return replace(joined, token_log_probs=log_probs, log_prob=total, score=total / len(tokens))


def _finish(plan: _Plan, done: Mapping[int, SegmentTranslation], timings: Timings) -> Translation:
    translated: dict[tuple[int, int], SegmentTranslation] = {}
    for index, place in enumerate(plan.places):
        breathe()
        translated[place] = done.get(index) or _segment_done(plan.segment(index), plan.work.outcome(index))
    texts = tuple(
        TextTranslation(
            document,
            tuple(
                translated.get((text_index, segment_index)) or SegmentTranslation(segment)
                for segment_index, segment in enumerate(document.segments)
            ),
        )
        for text_index, document in enumerate(plan.documents)
    )
    segments = list(translated.values())
    return Translation(
        texts,
        source_tokens=sum(len(segment.encoding.ids) for segment in segments if segment.encoding is not None),
        target_tokens=sum(len(segment.candidates[0].hypothesis.tokens) for segment in segments if segment.candidates),
        timings=timings,
        num_retries=plan.work.num_retries,
    )


def _first_step(job: Job, route: Route) -> Job:
    """To the language between: one translation of each text, for that is what the next step reads."""
    return replace(job, model=route.steps[0], options=replace(job.options, num_hypotheses=1))


def _last_step(job: Job, route: Route, first: Translation) -> Job:
    return replace(job, model=route.steps[-1], texts=tuple(text.text for text in first.texts))


def _chained_translation(first: Translation, second: Translation) -> Translation:
    """Both steps as one translation: what it cost is the sum."""
    return Translation(
        tuple(replace(text, before=before) for before, text in zip(first.texts, second.texts, strict=True)),
        source_tokens=first.source_tokens + second.source_tokens,
        target_tokens=first.target_tokens + second.target_tokens,
        timings=Timings(
            first.timings.queue_seconds + second.timings.queue_seconds,
            first.timings.encode_seconds + second.timings.encode_seconds,
            first.timings.decode_seconds + second.timings.decode_seconds,
        ),
        num_retries=first.num_retries + second.num_retries,
    )


def part_by_model(job: Job) -> list[tuple[Job, tuple[int, ...]]]:
    """The job, parted so that each part has one model; with the places its texts have in the whole."""
    if not job.models:
        return [(job, tuple(range(len(job.texts))))]
    by_model: dict[ModelInfo, list[int]] = {}
    for index, model in enumerate(job.models):
        by_model.setdefault(model, []).append(index)
    return [
        (replace(job, texts=tuple(job.texts[index] for index in indices), model=model, models=()), tuple(indices))
        for model, indices in by_model.items()
    ]


def _joined(job: Job, parts: Sequence[tuple[Translation, Sequence[int]]]) -> Translation:
    """The parts' translations, in the order of the whole job."""
    texts: list[TextTranslation | None] = [None] * len(job.texts)
    for translation, indices in parts:
        for index, text in zip(indices, translation.texts, strict=True):
            texts[index] = text
    translations = [translation for translation, _ in parts]
    return Translation(
        tuple(text for text in texts if text is not None),
        source_tokens=sum(translation.source_tokens for translation in translations),
        target_tokens=sum(translation.target_tokens for translation in translations),
        timings=functools.reduce(Timings.beside, (translation.timings for translation in translations)),
        num_retries=sum(translation.num_retries for translation in translations),
    )


async def _merged(
    job: Job, parts: Sequence[tuple[AsyncGenerator[TranslationEvent, None], Sequence[int]]]
) -> AsyncGenerator[TranslationEvent, None]:
    """The events of several streams as they come, as those of one job; the first failure ends all."""
    events: asyncio.Queue[TranslationEvent | BaseException] = asyncio.Queue(maxsize=1)
    done: list[tuple[Translation, Sequence[int]]] = []

    async def follow(stream: AsyncGenerator[TranslationEvent, None], indices: Sequence[int]) -> None:
        try:
            async with aclosing(stream):
                async for event in stream:
                    if isinstance(event, Translation):
                        done.append((event, indices))
                        if len(done) == len(parts):
                            await events.put(_joined(job, done))
                    else:
                        await events.put(replace(event, text_index=indices[event.text_index]))
        except Exception as error:
            await events.put(error)

    tasks = [asyncio.ensure_future(follow(stream, indices)) for stream, indices in parts]
    try:
        while True:
            event = await events.get()
            if isinstance(event, BaseException):
                raise event
            yield event
            if isinstance(event, Translation):
                return
    finally:
        await _cancel_all(tasks)


async def run_together(work: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """The results of all, in order; the first failure ends the others, and is raised."""
    tasks = [asyncio.ensure_future(each) for each in work]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await _cancel_all(tasks)


async def _cancel_all(tasks: Iterable[asyncio.Future[Any]]) -> None:
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
