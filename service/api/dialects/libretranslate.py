"""LibreTranslate's API: `/translate`, `/languages` and what belongs to them, as its clients know it.

Differences that no client minds: nothing is trimmed or unescaped, and a list is detected text by text.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Sequence

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from service.api.deps import Services, ServicesDep
from service.api.dialects.answers import Dialect, Problem
from service.api.dialects.fields import BadField, Fields, dialect_router, read_fields
from service.api.dialects.files import (
    file_deadline,
    file_response,
    model_for,
    read_upload,
    take_apart,
    translate_document,
)
from service.api.dialects.keys import admit, libretranslate_key
from service.api.dialects.languages import (
    english_name,
    loaded_ways,
    same_language,
    source_languages,
    target_languages,
)
from service.api.dialects.texts import (
    Manner,
    certainty,
    check_texts,
    max_alternatives,
    translate_texts,
)
from service.api.errors import NotReady
from service.api.requests import while_connected
from service.api.responses import JsonResponse
from service.routing import UnknownLanguagePair
from service.text.documents.formats import FORMATS
from service.text.documents.parts import PartFormat
from service.translator import AUTO

router: APIRouter = dialect_router("LibreTranslate")

TRANSLATE = "/translate"
FILES = "/translate_file"

_PATHS = frozenset(
    {"/translate", "/detect", "/languages", "/frontend/settings", "/health", "/suggest", "/translate_file"}
)
_FORMATS: tuple[PartFormat, ...] = ("text", "html")
_BYTES_PER_CHARACTER = 4
"""The most that UTF-8 needs."""


@router.api_route(TRANSLATE, methods=["GET", "POST"])
async def translate(request: Request, services: ServicesDep) -> Response:
    """Translates a text, or a list of texts."""
    fields = await read_fields(request)
    await admit(request, libretranslate_key(fields))
    q, texts = fields.get("q"), fields.texts("q")
    if not texts or q == "":
        raise _missing("q", fields)
    source, target = _needed("source", fields), _needed("target", fields)
    manner = Manner(format=_format(fields))
    answer: dict[str, object]
    num_alternatives = _num_alternatives(fields, services)
    check_texts(texts, services)
    is_auto = source.lower() == AUTO
    if not is_auto and _is_identity(services, source, target):
        answer = {"translatedText": q}
        if num_alternatives:
            answer["alternatives"] = _one_or_all([[] for _ in texts], isinstance(q, list | tuple))
        return JsonResponse(answer)
    try:
        translations = await translate_texts(
            request,
            services,
            texts,
            source=None if is_auto else source,
            target=target,
            num_alternatives=num_alternatives,
            field="q",
            manner=manner,
        )
    except UnknownLanguagePair as error:
        raise _no_pair(services, error, source, target) from error
    batch = isinstance(q, list | tuple)
    answer = {"translatedText": _one_or_all([item.text for item in translations], batch)}
    if num_alternatives:
        answer["alternatives"] = _one_or_all([list(item.alternatives) for item in translations], batch)
    if is_auto:
        answer["detectedLanguage"] = _one_or_all(
            [_detected(item.source_language, item.confidence) for item in translations], batch
        )
    return JsonResponse(answer)


@router.api_route("/detect", methods=["GET", "POST"])
async def detect(request: Request, services: ServicesDep) -> Response:
    """Says what language a text is in, the likeliest first."""
    fields = await read_fields(request)
    await admit(request, libretranslate_key(fields))
    texts = fields.texts("q")
    if not texts or fields.get("q") == "":
        raise _missing("q", fields)
    check_texts(texts, services)
    (found,) = await services.translator.detect(["\n".join(texts)])
    candidates = [_detected(language, confidence) for language, confidence in found.candidates]
    if not found.is_known and found.looks_like is not None:
        candidates.insert(0, _detected(found.looks_like, certainty(found)))
    return JsonResponse(candidates)


@router.get("/languages")
async def languages(services: ServicesDep) -> Response:
    """Every language, with those it can be translated to."""
    models = loaded_ways(services)
    codes = sorted({*source_languages(models), *target_languages(models)})
    return JsonResponse(
        [
            # As LibreTranslate does it, each language can also be translated to itself.
            {"code": code, "name": english_name(code), "targets": sorted({code, *target_languages(models, code)})}
            for code in codes
        ]
    )


@router.post(FILES)
async def translate_file(request: Request, services: ServicesDep) -> Response:
    """Translates a file and says where the result is."""
    fields = await read_fields(request)
    await admit(request, libretranslate_key(fields))
    upload = read_upload(fields, services)
    source, target = _needed("source", fields), _needed("target", fields)
    deadline = file_deadline(services)
    document = await take_apart(upload, services)
    named = None if source.lower() == AUTO else source
    is_identity = named is not None and _is_identity(services, named, target)
    try:
        model = None if is_identity else await model_for(services, document, named, target)
    except UnknownLanguagePair as error:
        raise _no_pair(services, error, source, target) from error
    translated = await while_connected(request, translate_document(services, document, model, deadline))
    name = upload.name_in(model.target_language if model is not None else target)
    file = await services.dialects.files.put(translated, name, upload.media_type)
    address = f"{request.base_url}download_file/{file.token}.{urllib.parse.quote(file.name)}"
    return JsonResponse({"translatedFileUrl": address})


@router.get("/download_file/{name}")
async def download_file(name: str, services: ServicesDep) -> Response:
    """The translated file; whoever has its name may have it, for a while."""
    found = await services.dialects.files.get(name.partition(".")[0])
    if found is None:
        raise HTTPException(404, "There is no such file, or not any more.")
    return file_response(*found)


@router.get("/frontend/settings")
async def frontend_settings(services: ServicesDep) -> Response:
    """What a page needs to know."""
    models = loaded_ways(services)
    target = target_languages(models, models[0].source_language)[0]
    return JsonResponse(
        {
            # In characters, so that every text of so many is taken whatever its script.
            "charLimit": services.settings.max_text_bytes // _BYTES_PER_CHARACTER,
            "frontendTimeout": 500,  # milliseconds after the last key until a page translates
            "apiKeys": services.gate.needs_key,
            "keyRequired": services.gate.needs_key,
            "suggestions": False,
            "filesTranslation": True,
            "supportedFilesFormat": list(FORMATS),
            "language": {
                "source": {"code": models[0].source_language, "name": english_name(models[0].source_language)},
                "target": {"code": target, "name": english_name(target)},
            },
        }
    )


@router.get("/health")
async def health(services: ServicesDep) -> Response:
    """Whether translations are taken now."""
    if not services.engine.is_ready:
        raise NotReady(services.engine.not_ready_reason or "the engine is not ready")
    return JsonResponse({"status": "ok"})


@router.post("/suggest")
async def suggest() -> Response:
    """Nothing is collected here."""
    raise HTTPException(403, "Suggestions are disabled on this server.")


def _needed(name: str, fields: Fields) -> str:
    value = fields.text(name)
    if value is None:
        raise _missing(name, fields)
    return value


def _missing(name: str, fields: Fields) -> BadField:
    """An empty text is none to LibreTranslate; but what was sent is not called missing."""
    if name in fields.files:
        return BadField(f"Invalid request: {name} parameter must be a text, not a file")
    is_empty = fields.get(name) in ("", [], ())
    return BadField(
        f"Invalid request: {name} parameter is empty" if is_empty else f"Invalid request: missing {name} parameter"
    )


def _format(fields: Fields) -> PartFormat:
    given = fields.text("format") or "text"
    for format_ in _FORMATS:
        if given == format_:
            return format_
    raise BadField(f"{given:.100} format is not supported; there is: {', '.join(_FORMATS)}")


def _is_identity(services: Services, source: str, target: str) -> bool:
    """Whether nothing is to be done: LibreTranslate gives a text in the target language back as it is."""
    models = loaded_ways(services)
    known = {*source_languages(models), *target_languages(models)}
    return same_language(source, target) and any(same_language(source, code) for code in known)


def _num_alternatives(fields: Fields, services: Services) -> int:
    given = fields.integer("alternatives") or 0
    most = max_alternatives(services)
    if not 0 <= given <= most:
        raise BadField(f"Invalid request: alternatives parameter must be >= 0 and <= {most}, not {given}")
    return given


def _no_pair(services: Services, error: UnknownLanguagePair, source: str, target: str) -> BadField:
    known = [info.target_language for info in loaded_ways(services)]
    if error.field == "target" and source.lower() != AUTO and any(same_language(target, code) for code in known):
        message = f"{_named(target)} is not available as a target language from {_named(source)}"
    else:
        message = f"{error.given or '':.100} is not supported"
    return BadField(f"{message}; there is: {', '.join(error.available)}")


def _detected(language: str, confidence: float) -> dict[str, object]:
    return {"confidence": round(100 * confidence, 1), "language": language}


def _named(code: str) -> str:
    return f"{english_name(code)} ({code:.100})"


def _one_or_all(items: Sequence[object], batch: bool) -> object:
    return list(items) if batch else items[0]


def answer_problem(problem: Problem) -> tuple[int, object]:
    """LibreTranslate's statuses and its one shape: `{"error": "what is wrong"}`."""
    status: int = problem["status"]
    kind = problem["type"].rpartition(":")[2]
    if status in (415, 422) or kind in ("text-too-large", "too-many-texts"):
        status = 400
    elif status == 401:
        status = 403
    error = f"Slowdown: {problem['detail']}" if status == 429 else problem["detail"]
    return status, {"error": error}


dialect = Dialect(owns=lambda path: path in _PATHS or path.startswith("/download_file/"), answer=answer_problem)
