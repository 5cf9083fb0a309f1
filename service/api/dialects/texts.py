"""Texts in, translations out: what both dialects ask of the translator."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.requests import Request

from model.decoding import MAX_BEAM_SIZE, DecodingOptions
from service.api.deps import Services
from service.api.errors import TextTooLarge, TooManyTexts
from service.api.requests import while_connected
from service.engine.interface import ModelInfo
from service.translator import Job, TextTranslation, UnknownLanguagePair


@dataclass(frozen=True, slots=True)
class Translated:
    """What became of a text.

    Attributes:
        text: The best translation.
        alternatives: The next best, without repetition.
        source_language: Code of the language it was taken for.
        confidence: How sure that is, 0 to 1; 1 where the client said it.
    """

    text: str
    alternatives: tuple[str, ...]
    source_language: str
    confidence: float = 1.0


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


def find_model(services: Services, source: str | None, target: str) -> ModelInfo:
    """The model for a pair; the first where several fit, for a dialect has no way to name one.

    Raises:
        UnknownLanguagePair: If there is none.
        EngineStopping: If no model is loaded yet.
    """
    try:
        return services.translator.find_model(source=source, target=target)
    except UnknownLanguagePair as error:
        if error.field != "model":
            raise
        return services.translator.find_model(model=error.available[0], source=source, target=target)


def max_alternatives(services: Services) -> int:
    """How many alternatives a client may ask for: a beam holds them and the best."""
    return min(MAX_BEAM_SIZE, services.settings.max_rows) - 1


def search_options(services: Services, *, num_alternatives: int = 0, greedy: bool = False) -> DecodingOptions:
    """The server's own way to search, with a beam wide enough for the alternatives."""
    beam_size = 1 if greedy else min(services.settings.default_beam_size, services.settings.max_rows)
    return DecodingOptions(beam_size=max(beam_size, num_alternatives + 1), num_hypotheses=num_alternatives + 1)


async def translate_texts(
    request: Request, services: Services, texts: Sequence[str], model: ModelInfo, options: DecodingOptions
) -> list[Translated]:
    """Translates texts of one language, all together.

    Raises:
        EngineError: As the translator.
        ClientGone: If the client goes away; the translation is then given up.
    """
    deadline = time.monotonic() + services.settings.request_timeout_seconds
    job = Job(tuple(texts), model, options, deadline)
    translation = await while_connected(request, services.translator.translate(job))
    return [Translated(text.text, _alternatives(text), model.source_language) for text in translation.texts]


def _alternatives(text: TextTranslation) -> tuple[str, ...]:
    found = dict.fromkeys(text.nth_text(rank) for rank in range(text.num_candidates))
    return tuple(list(found)[1:])
