"""DeepL's API: `/v2/translate`, `/v2/languages` and `/v2/usage`, as its clients know it."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from service.api.deps import Services, ServicesDep
from service.api.dialects.answers import Dialect, Problem
from service.api.dialects.fields import BadField, Fields, dialect_router, read_fields
from service.api.dialects.keys import admit, deepl_key
from service.api.dialects.languages import english_name, main_language, source_languages, target_languages
from service.api.dialects.texts import check_texts, search_options, translate_texts
from service.api.errors import NotReady
from service.api.responses import JsonResponse
from service.translator import UnknownLanguagePair

router: APIRouter = dialect_router("DeepL")

CHARACTER_LIMIT = 1_000_000_000_000
"""What `/v2/usage` calls the limit: there is none, and DeepL says this number where it has none."""

_VARIANTS = {"en": ("en-GB", "en-US"), "pt": ("pt-BR", "pt-PT")}
"""Targets that DeepL, and its clients with it, know only with a country."""

_SPLIT_SENTENCES = ("0", "1", "nonewlines")
_FORMALITY = ("default", "more", "less", "prefer_more", "prefer_less")
_TAG_HANDLING = ("xml", "html")
_MODEL_TYPES = ("quality_optimized", "prefer_quality_optimized", "latency_optimized")
_UNSUPPORTED = (
    "style_id",
    "custom_instructions",
    "translation_memory_id",
    "translation_memory_threshold",
)
"""Would change the translation, so they are refused. What else is unknown is ignored, as it is by DeepL."""


@router.api_route("/v2/translate", methods=["GET", "POST"])
async def translate(request: Request, services: ServicesDep) -> Response:
    """Translates a text, or several."""
    fields = await read_fields(request)
    await admit(request, deepl_key(request, fields))
    texts = fields.texts("text")
    if not texts:
        raise BadField("Parameter 'text' not specified.")
    target = fields.text("target_lang")
    if target is None:
        raise BadField("Parameter 'target_lang' not specified.")
    _check_options(fields)
    model_type = _choice(fields, "model_type", _MODEL_TYPES)
    check_texts(texts, services)
    options = search_options(services, greedy=model_type == "latency_optimized")
    try:
        translations = await translate_texts(
            request,
            services,
            texts,
            source=fields.text("source_lang"),
            target=target,
            options=options,
            field="text",
        )
    except UnknownLanguagePair as error:
        raise _no_pair(services, error) from error
    services.dialects.num_characters += sum(map(len, texts))
    extra = {} if model_type is None else {"model_type_used": model_type.removeprefix("prefer_")}
    return JsonResponse(
        {
            "translations": [
                {
                    "detected_source_language": main_language(item.source_language).upper(),
                    "text": item.text,
                    "billed_characters": len(text),
                    **extra,
                }
                for text, item in zip(texts, translations, strict=True)
            ]
        }
    )


@router.api_route("/v2/languages", methods=["GET", "POST"])
async def languages(request: Request, services: ServicesDep) -> Response:
    """What can be read, or with `type=target` what can be written."""
    fields = await read_fields(request)
    await admit(request, deepl_key(request, fields))
    kind = fields.text("type") or "source"
    if kind not in ("source", "target"):
        raise BadField("Parameter 'type' is invalid. 'source' and 'target' are valid values.")
    models = services.engine.models()
    if not models:
        raise NotReady(services.engine.not_ready_reason or "no model is loaded")
    if kind == "source":
        codes = dict.fromkeys(main_language(code) for code in source_languages(models))
        return JsonResponse([{"language": code.upper(), "name": english_name(code)} for code in codes])
    targets = [variant for code in target_languages(models) for variant in _VARIANTS.get(code, (code,))]
    return JsonResponse(
        [{"language": code.upper(), "name": english_name(code), "supports_formality": False} for code in targets]
    )


@router.api_route("/v2/usage", methods=["GET", "POST"])
async def usage(request: Request, services: ServicesDep) -> Response:
    """How many characters were translated since the server started."""
    fields = await read_fields(request)
    await admit(request, deepl_key(request, fields))
    return JsonResponse({"character_count": services.dialects.num_characters, "character_limit": CHARACTER_LIMIT})


def _no_pair(services: Services, error: UnknownLanguagePair) -> BadField:
    pairs = ", ".join(services.translator.pairs())
    return BadField(f"Value for '{error.field}_lang' not supported. There is: {pairs}")


def _check_options(fields: Fields) -> None:
    """Refuses what cannot be done, and what nobody could."""
    _choice(fields, "split_sentences", _SPLIT_SENTENCES)
    formality = _choice(fields, "formality", _FORMALITY)
    if formality in ("more", "less"):
        raise BadField("'formality' is not supported for given 'target_lang'.")
    for name in ("preserve_formatting", "outline_detection", "show_billed_characters"):
        fields.flag(name)
    if _choice(fields, "tag_handling", _TAG_HANDLING) is not None:
        raise BadField("Value for 'tag_handling' not supported.")
    fields.text("context")
    for name in _UNSUPPORTED:
        if fields.get(name) not in (None, "", []):
            raise BadField(f"Parameter '{name}' not supported.")


def _choice(fields: Fields, name: str, allowed: tuple[str, ...]) -> str | None:
    value = fields.get(name)
    if isinstance(value, bool | int):  # clients send split_sentences as a number, too
        value = str(int(value))
    elif value is not None:
        value = fields.text(name)
    if value is None or value in allowed:
        return value
    raise BadField(f"Value for '{name}' not supported. Allowed: {', '.join(allowed)}")


def answer_problem(problem: Problem) -> tuple[int, object]:
    """DeepL's statuses, and its shape: `{"message": "what is wrong"}`."""
    status: int = problem["status"]
    status = {401: 403, 415: 400, 422: 400}.get(status, status)
    return status, {"message": problem["detail"]}


dialect = Dialect(owns=lambda path: path.startswith("/v2/"), answer=answer_problem)
