"""Texts in, translations out: what both dialects ask of the translator."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from starlette.requests import Request

from model.decoding import MAX_BEAM_SIZE
from service.api.deps import Services
from service.api.dialects.fields import BadField
from service.api.dialects.languages import english_name, same_language
from service.api.errors import TextTooLarge, TooManyTexts
from service.api.requests import while_connected
from service.api.timeouts import timeout_seconds
from service.engine.interface import ModelInfo
from service.markup import read_markups
from service.routing import UnknownLanguagePair
from service.search_options import search_options
from service.text.detection import Detection
from service.text.documents.parts import PartFormat
from service.text.markup import Markup, MarkupError, Rules
from service.text.terms import Terms
from service.translator import Job, TextTranslation

_MAX_NAMED = 10
"""How many texts of an unknown language a message names."""


@dataclass(frozen=True, slots=True)
class Translated:
    """What became of a text.

    Attributes:
        text: The best translation.
        alternatives: The next best, without repetition.
        source_language: Code of the language it was taken for.
        confidence: How sure that is, 0 to 1; 1 where the client said it.
        num_characters: Of the source without its markup, in code points.
    """

    text: str
    alternatives: tuple[str, ...]
    source_language: str
    confidence: float
    num_characters: int


@dataclass(frozen=True, slots=True)
class Manner:
    """How texts are taken.

    Attributes:
        format: What they are.
        rules: About elements, where they are HTML or XML.
        terms: That must be translated so.
        split_sentences: Whether lines of plain text are parted into sentences.
    """

    format: PartFormat = "text"
    rules: Rules | None = None
    terms: Terms | None = None
    split_sentences: bool = True


def check_texts(texts: Sequence[str], services: Services) -> None:
    """Refuses what the native API would refuse.

    Raises:
        TooManyTexts: If there are too many.
        TextTooLarge: If they are too long together.
    """
    settings = services.settings
    if len(texts) > settings.max_texts:
        raise TooManyTexts(len(texts), settings.max_texts)
    num_bytes = sum(len(text.encode()) for text in texts)
    if num_bytes > settings.max_text_bytes:
        raise TextTooLarge(num_bytes, settings.max_text_bytes)


def find_model(services: Services, source: str | None, target: str, *, with_routes: bool = True) -> ModelInfo:
    """The model for a pair; the first where several fit, for a dialect has no way to name one.

    Raises:
        UnknownLanguagePair: If there is none.
        EngineStopping: If no model is loaded yet.
    """
    try:
        return services.translator.find_model(source=source, target=target, with_routes=with_routes)
    except UnknownLanguagePair as error:
        if error.field != "model":
            raise
        return services.translator.find_model(model=error.available[0], source=source, target=target)


def max_alternatives(services: Services) -> int:
    """How many alternatives a client may ask for: a beam holds them and the best."""
    return min(MAX_BEAM_SIZE, services.settings.max_rows) - 1


async def translate_texts(
    request: Request,
    services: Services,
    texts: Sequence[str],
    *,
    source: str | None,
    target: str,
    num_alternatives: int = 0,
    greedy: bool = False,
    field: str,
    manner: Manner = Manner(),
    spell: Callable[[str], str] = str,
) -> list[Translated]:
    """Translates texts, all together.

    Args:
        request: Ends the translation when its client goes away.
        services: The server's parts.
        texts: At least one.
        source: Their language; None finds out each one's. A text that is in the target language already, or has no
            letter, then comes back as it is.
        target: The language to write.
        num_alternatives: Translations wanted besides the best.
        greedy: Whether speed counts more than quality.
        field: What the dialect calls the texts, for messages.
        manner: How they are taken.
        spell: How the dialect writes a language's code, for messages.

    Raises:
        UnknownLanguagePair: If no model translates between the two.
        BadField: If the language of a text is none that can be translated, or cannot be told, or XML is not
            well-formed.
        EngineError: As the translator.
        ClientGone: If the client goes away; the translation is then given up.
    """
    deadline = time.monotonic() + timeout_seconds(services.settings, request.headers)
    markups = await _read(texts, manner, field)
    readable = [markup.text for markup in markups] if markups else texts
    if source is None:
        detected = await _detect(services, readable, target, field, spell)
    else:
        detected = [_Detected(find_model(services, source, target), 1.0)] * len(texts)
    todo = [index for index, found in enumerate(detected) if found.model is not None]
    done = [
        Translated(text, (), found.language, found.confidence, len(plain))
        for text, plain, found in zip(texts, readable, detected, strict=True)
    ]
    models = tuple(found.model for found in detected if found.model is not None)
    if not models:
        return done
    options = search_options(services.settings, models, {}, is_greedy=greedy)
    if num_alternatives:
        beam_size = max(options.beam_size, num_alternatives + 1)
        options = replace(options, beam_size=beam_size, num_hypotheses=num_alternatives + 1, beam_threshold=None)
    job = Job(
        tuple(texts[index] for index in todo),
        models[0],
        options,
        deadline,
        models=models if len(set(models)) > 1 else (),
        terms=manner.terms,
        split_sentences=manner.split_sentences,
    )
    if markups:
        work = services.documents.translate(job, [markups[index] for index in todo])
    else:
        work = services.translator.translate(job)
    translation = await while_connected(request, work)
    for index, text in zip(todo, translation.texts, strict=True):
        done[index] = replace(done[index], text=text.text, alternatives=_alternatives(text))
    return done


async def _read(texts: Sequence[str], manner: Manner, field: str) -> list[Markup]:
    """The texts as documents; none where they are plain."""
    if manner.format == "text":
        return []
    try:
        return await read_markups(manner.format, texts, manner.rules)
    except MarkupError as error:
        raise BadField(f"{field}[{error.index}] is not well-formed {manner.format.upper()}: {error}") from error


@dataclass(frozen=True, slots=True)
class _Detected:
    """What is known of a text's language; without a model it is not translated."""

    model: ModelInfo | None
    confidence: float
    said: str = ""

    @property
    def language(self) -> str:
        return self.model.source_language if self.model is not None else self.said


async def _detect(
    services: Services, texts: Sequence[str], target: str, field: str, spell: Callable[[str], str]
) -> list[_Detected]:
    found = await services.translator.detect(texts, target=target)
    readable = services.translator.source_languages(target=target)
    models = {language: find_model(services, language, target) for language in readable}
    # What has no letter could be in any language.
    fallback = next((each.language for each in found if each.is_known), readable[0])
    detected, strange = [], []
    for index, each in enumerate(found):
        if each.is_known or any(same_language(each.looks_like or "", language) for language in readable):
            # Of two languages that are as likely the first is taken: these clients expect an answer, also to one word.
            detected.append(_Detected(models[each.candidates[0][0]], each.candidates[0][1]))
        elif each.looks_like is None:
            detected.append(_Detected(None, 0.0, fallback))
        elif same_language(each.looks_like, target):
            detected.append(_Detected(None, certainty(each), each.looks_like))
        else:
            strange.append(f"{field}[{index}] looks like {english_name(each.looks_like)} ({spell(each.looks_like)})")
    if strange:
        more = f" and {len(strange) - _MAX_NAMED} more" if len(strange) > _MAX_NAMED else ""
        raise BadField(
            f"{', '.join(strange[:_MAX_NAMED])}{more}: not clearly in a language that can be translated to "
            f"{target:.100} ({', '.join(map(spell, readable))}); "
            "name the source if it is one of them"
        )
    return detected


def certainty(detection: Detection) -> float:
    """How sure a detection is of what it calls the text's language, or what that looks like; 0 to 1."""
    if detection.is_known:
        return detection.confidence
    # What is left for all the languages that cannot be translated.
    return 0.0 if detection.looks_like is None else max(0.0, 1.0 - sum(part for _, part in detection.candidates))


def _alternatives(text: TextTranslation) -> tuple[str, ...]:
    found = dict.fromkeys(text.nth_text(rank) for rank in range(text.num_candidates))
    return tuple(list(found)[1:])
