"""`POST /v1/translate` and `POST /v1/detect`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Body, Request
from starlette.responses import Response

from model.decoding import Hypothesis as ModelHypothesis
from model.tokenizer import TextTokenizer
from service.api import schemas
from service.api.deps import Services, ServicesDep
from service.api.docs import problems
from service.api.errors import InvalidField, TextTooLarge, TooManyTexts, problem_of
from service.api.inspect_translate import check_inside, inside, wants_inside
from service.api.middleware import outcome_of
from service.api.requests import JsonRoute, while_connected
from service.api.responses import EventStream, JsonResponse, encode_event
from service.api.timeouts import timeout_seconds
from service.aside import aside, breathe
from service.engine.interface import ModelInfo
from service.markup import MarkupTranslation, read_markups
from service.routing import Route
from service.search_options import search_options
from service.text.markup import Markup, MarkupError
from service.translator import (
    MANY_SEGMENTS,
    Job,
    SegmentDone,
    SegmentTranslation,
    TextDelta,
    TextTranslation,
    Translation,
    TranslationEvent,
    Translator,
)

router = APIRouter(route_class=JsonRoute, tags=["translation"])

_EXAMPLES = {
    "sentence": {
        "summary": "One text",
        "value": {"text": "Good morning.", "source": "en", "target": "fr"},
    },
    "list": {
        "summary": "Several texts",
        "value": {"text": ["Good morning.", "See you tomorrow."], "source": "en", "target": "fr"},
    },
    "auto": {
        "summary": "The language is found out",
        "value": {"text": "I would like to know where the station is.", "source": "auto", "target": "fr"},
    },
    "paragraphs": {
        "summary": "Paragraphs keep their line breaks",
        "value": {"text": "First paragraph. It has two sentences.\n\nSecond paragraph.\n", "target": "fr"},
    },
    "html": {
        "summary": "HTML keeps its tags",
        "value": {"text": "<p>The <b>red</b> car is <i>very fast</i>.</p>", "target": "fr", "format": "html"},
    },
    "beam": {
        "summary": "Beam search, alternatives and scores",
        "value": {
            "text": "The plant needs more sunlight.",
            "target": "fr",
            "decoding": {"beam_size": 4, "num_hypotheses": 2},
            "return": ["segments", "scores"],
        },
    },
}

_ANSWER_EXAMPLE = {
    "translations": [{"text": "Bonjour.", "windowed": False, "truncated": False}],
    "source": "en",
    "target": "fr",
    "model": {"name": "en-fr", "revision": "0123456789abcdef"},
    "usage": {"source_tokens": 4, "target_tokens": 3},
    "timings": {
        "total_seconds": 0.021,
        "queue_seconds": 0.001,
        "encode_seconds": 0.004,
        "decode_seconds": 0.014,
    },
}


_DETECT_EXAMPLES = {
    "sentence": {"summary": "One text", "value": {"text": "Where is the train station?"}},
    "list": {"summary": "Several texts", "value": {"text": ["Good morning, my friend.", "Wo ist der Bahnhof?", "42"]}},
}

_DETECT_EXAMPLE = {
    "detections": [
        {
            "language": "en",
            "confidence": 0.9991,
            "candidates": [{"language": "en", "confidence": 0.9991}],
            "looks_like": "en",
        }
    ],
    "languages": ["en"],
}


@router.post(
    "/v1/translate",
    summary="Translate texts",
    response_model=schemas.TranslateAnswer,
    responses={
        200: {
            "description": "The translations; with `stream`, server-sent events that end with them.",
            "content": {"application/json": {"example": _ANSWER_EXAMPLE}, "text/event-stream": {}},
        },
        **problems(400, 413, 415, 422, 502, 503, 504),
    },
)
async def translate(
    body: Annotated[schemas.TranslateRequest, Body(openapi_examples=_EXAMPLES)],
    request: Request,
    services: ServicesDep,
) -> Response:
    """Translates a text or a list of texts.

    Texts are split into sentences; everything between them (white space, line breaks, list markers) comes back as it
    was. A text without a letter in it comes back unchanged.
    """
    started = time.monotonic()
    markups = await _markups(body, services)
    job = await _job(body, request, services, started, [markup.text for markup in markups] or None)
    if wants_inside(body):
        check_inside(body, job, services)
    if markups:
        translation = await while_connected(request, services.documents.translate(job, markups))
        return await _response(translation, body, job, services, started)
    if body.stream:
        events = services.translator.stream(job)
        # Refusals come with the first event: they still get a status of their own.
        first = await while_connected(request, anext(events))
        return EventStream(_encoded(events, first, body, job, services, started, request))

    async def work() -> tuple[Translation, list[dict[str, Any]]]:
        translation = await services.translator.translate(job)
        return translation, await inside(body, job, translation, services) if wants_inside(body) else []

    translation, insides = await while_connected(request, work())
    return await _response(translation, body, job, services, started, insides)


@router.post(
    "/v1/detect",
    summary="Find out the language of texts",
    response_model=schemas.DetectAnswer,
    responses={
        200: {"content": {"application/json": {"example": _DETECT_EXAMPLE}}},
        **problems(400, 413, 415, 422, 503),
    },
)
async def detect(
    body: Annotated[schemas.DetectRequest, Body(openapi_examples=_DETECT_EXAMPLES)], services: ServicesDep
) -> Response:
    """Says for each text in which of the languages that can be translated it is, or `unknown`.

    Text in another language is weighed against all the languages the detector knows, so it is unknown rather than
    taken for the nearest one that can be translated.
    """
    _check_sizes(body.texts, services)
    found = await services.translator.detect(body.texts, target=body.target)
    return JsonResponse(
        schemas.DetectAnswer(
            detections=[
                schemas.Detection(
                    language=each.language,
                    confidence=round(each.confidence, 4),
                    candidates=[
                        schemas.DetectedLanguage(language=language, confidence=round(confidence, 4))
                        for language, confidence in each.candidates
                    ],
                    looks_like=each.looks_like,
                )
                for each in found
            ],
            languages=list(services.translator.source_languages(target=body.target)),
        )
    )


def _check_sizes(texts: Sequence[str], services: Services) -> None:
    settings = services.settings
    if len(texts) > settings.max_texts:
        raise TooManyTexts(len(texts), settings.max_texts)
    num_bytes = sum(len(text.encode()) for text in texts)
    if num_bytes > settings.max_text_bytes:
        raise TextTooLarge(num_bytes, settings.max_text_bytes)


async def _markups(body: schemas.TranslateRequest, services: Services) -> list[Markup]:
    """The documents, read; none where the texts are plain."""
    if body.format == "text":
        return []
    if body.stream:
        raise InvalidField("stream", True, f'false with the format "{body.format}", whose tags are placed at the end')
    if wants_inside(body):
        field, given = ("return", "alignment") if body.attention is None else ("attention", dict(body.attention))
        raise InvalidField(field, given, f'nothing of the inside with the format "{body.format}"')
    _check_sizes(body.texts, services)
    try:
        return await read_markups(body.format, body.texts)
    except MarkupError as error:
        field = "text" if isinstance(body.text, str) else f"text[{error.index}]"
        raise InvalidField(field, body.texts[error.index], f"well-formed XML ({error})") from error


async def _job(
    body: schemas.TranslateRequest,
    request: Request,
    services: Services,
    started: float,
    readable: Sequence[str] | None,
) -> Job:
    """Checks what needs the settings or the models.

    Args:
        body: The request's body.
        request: Its headers.
        services: What there is.
        started: When it came.
        readable: The texts without markup, where they are documents.
    """
    settings, translator = services.settings, services.translator
    _check_sizes(body.texts, services)
    seconds = timeout_seconds(settings, request.headers, body.deadline_seconds)
    texts, with_log_probs = body.texts, bool({"scores", "tokens"} & set(body.return_))
    with_log_probs = with_log_probs or body.attention is not None  # the replay is compared with them
    if translator.must_detect(body.source, model=body.model, target=body.target, with_routes=True):
        models, detections = await translator.detect_models(readable or texts, model=body.model, target=body.target)
    else:
        found = translator.find_model(model=body.model, source=body.source, target=body.target, with_routes=True)
        models, detections = (found,), ()
    # A beam is heard of only when its segment is done, which is not what a stream is asked for.
    options = search_options(settings, models, body.decoding.given, is_greedy=body.stream)
    return Job(
        texts=texts,
        model=models[0],
        models=models if len(set(models)) > 1 else (),
        detections=detections,
        options=options,
        deadline=started + seconds,
        with_log_probs=with_log_probs,
    )


async def _encoded(
    events: AsyncIterator[TranslationEvent],
    first: TranslationEvent,
    body: schemas.TranslateRequest,
    job: Job,
    services: Services,
    started: float,
    request: Request,
) -> AsyncIterator[bytes]:
    """The events of a stream; the last one is `done` or `error`."""

    def encode_done(translation: Translation) -> bytes:
        return encode_event("done", _answer(translation, body, job, services, started))

    try:
        async with aclosing(events):  # type: ignore[type-var]  # an async generator
            event: TranslationEvent | None = first
            while event is not None:
                if isinstance(event, Translation):
                    yield await aside(encode_done, _num_segments(event) / MANY_SEGMENTS, event)
                    return
                yield _encode(event, body, job, services)
                event = await anext(events, None)
    except Exception as error:
        problem = problem_of(error)
        request.state.outcome = outcome_of(problem["status"])
        yield encode_event("error", problem)
        if problem["status"] == 500:
            raise


def _encode(event: TextDelta | SegmentDone, body: schemas.TranslateRequest, job: Job, services: Services) -> bytes:
    where: dict[str, object] = {"translation": event.text_index, "segment": event.segment_index}
    if isinstance(event, TextDelta):
        return encode_event("token", where | {"text": event.text_so_far, "delta": event.text})
    tokenizer = services.translator.tokenizer(job.model_of(event.text_index))
    segment = _segment(event.translation, body.return_, tokenizer)
    return encode_event("segment", where | segment.model_dump(exclude_none=True))


async def _response(
    translation: Translation,
    body: schemas.TranslateRequest,
    job: Job,
    services: Services,
    started: float,
    insides: Sequence[Mapping[str, Any]] = (),
) -> Response:
    """The answer; `insides` has what was looked at in each text."""

    def respond() -> Response:
        answer = _answer(translation, body, job, services, started)
        for text, fields in zip(answer.translations, insides, strict=False):
            text.attention, text.alignment = fields.get("attention"), fields.get("alignment")
        return JsonResponse(answer)

    return await aside(respond, _num_segments(translation) / MANY_SEGMENTS)


def _num_segments(translation: Translation) -> int:
    return sum(len(text.segments) for text in translation.texts)


def _answer(
    translation: Translation, body: schemas.TranslateRequest, job: Job, services: Services, started: float
) -> schemas.TranslateAnswer:
    sources = {model.source_language for model in job.models} or {job.model.source_language}
    return schemas.TranslateAnswer(
        translations=[
            _text(text, index, body.return_, job, services.translator) for index, text in enumerate(translation.texts)
        ],
        source=sources.pop() if len(sources) == 1 else "auto",
        target=job.model.target_language,
        model=None if job.models else _used(job.model),
        via=None if job.models else _via(job.model),
        usage=schemas.Usage(source_tokens=translation.source_tokens, target_tokens=translation.target_tokens),
        timings=schemas.TimingsAnswer(
            total_seconds=round(time.monotonic() - started, 6),
            queue_seconds=round(translation.timings.queue_seconds, 6),
            encode_seconds=round(translation.timings.encode_seconds, 6),
            decode_seconds=round(translation.timings.decode_seconds, 6),
        ),
    )


def _used(model: ModelInfo) -> schemas.UsedModel | None:
    return None if isinstance(model, Route) else schemas.UsedModel(name=model.name, revision=model.revision)


def _via(model: ModelInfo) -> schemas.Via | None:
    if not isinstance(model, Route):
        return None
    steps = [schemas.UsedModel(name=step.name, revision=step.revision) for step in model.steps]
    return schemas.Via(language=model.via, models=steps)


def _text(
    text: TextTranslation, index: int, parts: Sequence[str], job: Job, translator: Translator
) -> schemas.TextAnswer:
    model = job.model_of(index)
    tokenizer = translator.tokenizer(model)
    detected = job.detections[index] if job.detections else None
    ranks = range(1, text.num_candidates)
    is_plain = not isinstance(text, MarkupTranslation)
    with_segments = "segments" in parts or "tokens" in parts
    return schemas.TextAnswer(
        text=text.text,
        detected=schemas.DetectedLanguage(language=detected.language, confidence=round(detected.confidence, 4))
        if detected is not None
        else None,
        model=_used(model) if job.models else None,
        via=_via(model) if job.models else None,
        via_text=text.before.text if text.before is not None else None,
        windowed=text.windowed,
        truncated=text.truncated,
        score=text.score if "scores" in parts else None,
        alternatives=[text.nth_text(rank) for rank in ranks] or None,
        warnings=[
            schemas.Warning(segment=segment, code=code, message=schemas.WARNINGS[code])
            for segment, code in text.warnings
        ]
        or None,
        segments=[_segment(segment, parts, tokenizer, is_plain=is_plain) for segment in text.segments]
        if with_segments
        else None,
    )


def _segment(
    done: SegmentTranslation, parts: Sequence[str], tokenizer: TextTokenizer, *, is_plain: bool = True
) -> schemas.Segment:
    breathe()
    segment = done.segment
    offset = segment.start if is_plain else 0
    source_tokens = None
    if "tokens" in parts and done.encoding is not None:
        encoding = done.encoding
        source_tokens = [
            schemas.SourceToken(id=token_id, piece=piece, start=offset + start, end=offset + end)
            for token_id, piece, (start, end) in zip(encoding.ids, encoding.pieces, encoding.source_spans, strict=True)
        ]
    return schemas.Segment(
        start=segment.start,
        end=segment.end,
        source=segment.text,
        text=done.text,
        translated=done.encoding is not None,
        windowed=segment.windowed,
        hypotheses=[
            _hypothesis(candidate.text, candidate.hypothesis, parts, tokenizer) for candidate in done.candidates
        ],
        source_tokens=source_tokens,
    )


def _hypothesis(
    text: str, hypothesis: ModelHypothesis, parts: Sequence[str], tokenizer: TextTokenizer
) -> schemas.Hypothesis:
    with_scores = "scores" in parts
    tokens = None
    if "tokens" in parts:
        log_probs = hypothesis.token_log_probs or (None,) * len(hypothesis.tokens)
        tokens = [
            schemas.Token(id=token_id, piece=tokenizer.piece(token_id), log_prob=log_prob)
            for token_id, log_prob in zip(hypothesis.tokens, log_probs, strict=True)
        ]
    return schemas.Hypothesis(
        text=text,
        finish_reason=hypothesis.finish_reason,
        score=hypothesis.score if with_scores else None,
        log_prob=hypothesis.log_prob if with_scores else None,
        tokens=tokens,
    )
