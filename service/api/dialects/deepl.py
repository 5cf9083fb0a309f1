"""DeepL's API: `/v2/translate`, `/v2/languages` and `/v2/usage`, as its clients know it."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Literal, TypeVar

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from service.api.deps import Services, ServicesDep
from service.api.dialects.answers import Dialect, Problem
from service.api.dialects.fields import BadField, Fields, dialect_router, read_fields
from service.api.dialects.files import (
    count_characters,
    file_response,
    model_for,
    read_upload,
    take_apart,
    translate_document,
)
from service.api.dialects.glossaries import MAX_TERM_CHARACTERS, Glossary, parse_entries
from service.api.dialects.keys import admit, deepl_key, key_owner
from service.api.dialects.languages import (
    english_name,
    same_language,
    source_languages,
    target_languages,
)
from service.api.dialects.store import StoredFile
from service.api.dialects.texts import Manner, check_texts, find_model, translate_texts
from service.api.errors import NotReady
from service.api.middleware import IS_HEAD
from service.api.responses import JsonResponse
from service.engine.interface import ModelInfo
from service.routing import UnknownLanguagePair, main_language
from service.text.markup import Rules
from service.text.terms import Terms

router: APIRouter = dialect_router("DeepL")

_Choice = TypeVar("_Choice", bound=str)

TRANSLATE = "/v2/translate"
FILES = "/v2/document"

CHARACTER_LIMIT = 1_000_000_000_000
"""What `/v2/usage` calls the limit: there is none, and DeepL says this number where it has none."""

_VARIANTS = {"en": ("en-GB", "en-US"), "pt": ("pt-BR", "pt-PT")}
"""Targets that DeepL, and its clients with it, know only with a country."""

_SPLIT_SENTENCES = ("0", "1", "nonewlines")
_FORMALITY = ("default", "more", "less", "prefer_more", "prefer_less")
_TAG_HANDLING: tuple[Literal["xml", "html"], ...] = ("xml", "html")
_TAG_HANDLING_VERSIONS = ("v1", "v2")
# A single one; an empty line parts paragraphs all the same.
_LINE_BREAK = re.compile(r"(?<=\S)[^\S\r\n]*(?:\r\n?+|\n)[^\S\r\n]*(?=\S)")
_ENTRIES_FORMATS = ("tsv", "csv")
_TSV = "text/tab-separated-values"
_MAX_GLOSSARIES = 5
_MODEL_TYPES = ("quality_optimized", "prefer_quality_optimized", "latency_optimized")
_UNSUPPORTED = (
    "style_id",
    "custom_instructions",
    "translation_memory_id",
    "translation_memory_threshold",
)
"""Would change the translation, so they are refused. What else is unknown is ignored, as it is by DeepL."""


@router.api_route(TRANSLATE, methods=["GET", "POST"])
async def translate(request: Request, services: ServicesDep) -> Response:
    """Translates a text, or several."""
    fields = await read_fields(request)
    await admit(request, deepl_key(request, fields))
    texts = fields.texts("text")
    if not texts:
        raise BadField("Parameter 'text' not specified.")
    source, target = fields.text("source_lang"), _needed(fields, "target_lang")
    _check_options(fields)
    manner = _manner(fields, await _terms(fields, services, source, target))
    if _choice(fields, "split_sentences", _SPLIT_SENTENCES) == "nonewlines" and manner.format == "text":
        texts = [_LINE_BREAK.sub(" ", text) for text in texts]
    model_type = _choice(fields, "model_type", _MODEL_TYPES)
    check_texts(texts, services)
    try:
        translations = await translate_texts(
            request,
            services,
            texts,
            source=source,
            target=target,
            greedy=model_type == "latency_optimized",
            field="text",
            manner=manner,
        )
    except UnknownLanguagePair as error:
        raise _no_pair(services, error) from error
    services.dialects.num_characters += sum(item.num_characters for item in translations)
    extra = {} if model_type is None else {"model_type_used": model_type.removeprefix("prefer_")}
    return JsonResponse(
        {
            "translations": [
                {
                    "detected_source_language": main_language(item.source_language).upper(),
                    "text": item.text,
                    "billed_characters": item.num_characters,
                    **extra,
                }
                for item in translations
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
    models = _models(services)
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


@router.get("/v2/glossary-language-pairs")
async def glossary_language_pairs(request: Request, services: ServicesDep) -> Response:
    """The pairs that a glossary may be for: all there are."""
    await admit(request, deepl_key(request, await read_fields(request)))
    pairs = {(main_language(info.source_language), main_language(info.target_language)) for info in _models(services)}
    return JsonResponse(
        {"supported_languages": [{"source_lang": source, "target_lang": target} for source, target in sorted(pairs)]}
    )


@router.post("/v2/glossaries")
async def create_glossary(request: Request, services: ServicesDep) -> Response:
    """Makes a glossary."""
    fields = await read_fields(request)
    await admit(request, deepl_key(request, fields))
    given = {name: _needed(fields, name) for name in ("name", "source_lang", "target_lang", "entries")}
    format_ = _choice(fields, "entries_format", _ENTRIES_FORMATS)
    if format_ is None:
        raise BadField("Parameter 'entries_format' not specified.")
    try:
        find_model(services, given["source_lang"], given["target_lang"])
    except UnknownLanguagePair as error:
        raise BadField("Unsupported glossary source and target language pair") from error
    if len(given["name"]) > MAX_TERM_CHARACTERS:
        raise BadField(f"Value for 'name' not supported. At most {MAX_TERM_CHARACTERS} characters are allowed.")
    entries = parse_entries(given["entries"], format_, given["source_lang"], given["target_lang"])
    glossary = services.dialects.glossaries.create(
        key_owner(), given["name"], given["source_lang"], given["target_lang"], entries
    )
    return JsonResponse(glossary.info(), status_code=201)


@router.get("/v2/glossaries")
async def list_glossaries(request: Request, services: ServicesDep) -> Response:
    """All glossaries of this key."""
    await admit(request, deepl_key(request, await read_fields(request)))
    found = services.dialects.glossaries.all_of(key_owner())
    return JsonResponse({"glossaries": [glossary.info() for glossary in found]})


@router.get("/v2/glossaries/{glossary_id}")
async def get_glossary(glossary_id: str, request: Request, services: ServicesDep) -> Response:
    """What is known of a glossary."""
    await admit(request, deepl_key(request, await read_fields(request)))
    return JsonResponse(services.dialects.glossaries.get(key_owner(), glossary_id).info())


@router.get("/v2/glossaries/{glossary_id}/entries")
async def get_glossary_entries(glossary_id: str, request: Request, services: ServicesDep) -> Response:
    """The entries of a glossary, one a line, with a tab between the two."""
    await admit(request, deepl_key(request, await read_fields(request)))
    accepted = request.headers.get("accept", "*/*")
    if not any(kind in accepted for kind in (_TSV, "text/*", "*/*")):
        raise HTTPException(415, f"No supported media type specified in Accept header; there is: {_TSV}")
    entries = services.dialects.glossaries.get(key_owner(), glossary_id).tsv()
    return Response(entries, media_type=_TSV)


@router.delete("/v2/glossaries/{glossary_id}")
async def delete_glossary(glossary_id: str, request: Request, services: ServicesDep) -> Response:
    """Forgets a glossary."""
    await admit(request, deepl_key(request, await read_fields(request)))
    services.dialects.glossaries.delete(key_owner(), glossary_id)
    return Response(status_code=204)


@router.post(FILES)
async def upload_document(request: Request, services: ServicesDep) -> Response:
    """Takes a file; it is translated while the client asks how far it is."""
    fields = await read_fields(request)
    await admit(request, deepl_key(request, fields))
    source, target = fields.text("source_lang"), _needed(fields, "target_lang")
    _check_options(fields)
    upload = read_upload(fields, services, name=fields.text("filename"))
    output_format = fields.text("output_format")
    if output_format is not None and "." + output_format.lower() != upload.ending:
        raise BadField(f"Value for 'output_format' not supported. A {upload.ending[1:]} stays a {upload.ending[1:]}.")
    terms = await _terms(fields, services, source, target)
    document = await take_apart(upload, services)
    try:
        model = await model_for(services, document, source, target)
    except UnknownLanguagePair as error:
        raise _no_pair(services, error) from error
    num_characters = count_characters(document.parts)

    async def work(tell: Callable[[float], None]) -> StoredFile:
        deadline = time.monotonic() + services.settings.file_timeout_seconds
        content = await translate_document(services, document, model, deadline, terms=terms, on_progress=tell)
        services.dialects.num_characters += num_characters
        return await services.dialects.files.put(content, upload.name, upload.media_type)

    taken = services.dialects.documents.start(key_owner(), num_characters, work)
    return JsonResponse({"document_id": taken.document_id, "document_key": taken.key})


@router.api_route("/v2/document/{document_id}", methods=["GET", "POST"])
async def document_status(document_id: str, request: Request, services: ServicesDep) -> Response:
    """How far a document is."""
    fields = await read_fields(request)
    await admit(request, deepl_key(request, fields))
    document = services.dialects.documents.get(document_id, fields.text("document_key"), key_owner())
    return JsonResponse(document.info())


@router.api_route("/v2/document/{document_id}/result", methods=["GET", "POST"])
async def document_result(document_id: str, request: Request, services: ServicesDep) -> Response:
    """The translated document, once."""
    fields = await read_fields(request)
    await admit(request, deepl_key(request, fields))
    document = services.dialects.documents.get(document_id, fields.text("document_key"), key_owner())
    is_head = request.scope.get(IS_HEAD, False)
    return file_response(*await services.dialects.documents.fetch(document, keep=is_head))


def _needed(fields: Fields, name: str) -> str:
    value = fields.text(name)
    if value is None:
        raise BadField(f"Parameter '{name}' not specified.")
    return value


def _models(services: Services) -> tuple[ModelInfo, ...]:
    if not services.engine.models():
        raise NotReady(services.engine.not_ready_reason or "no model is loaded")
    return services.translator.ways()


async def _terms(fields: Fields, services: Services, source: str | None, target: str) -> Terms | None:
    """The entries of the glossaries that a request names; of two for one term the first counts."""
    one, several = fields.text("glossary_id"), fields.texts("glossary_ids") or []
    # Documents come with the ids of several joined by commas.
    ids = [part.strip() for item in several for part in item.split(",") if part.strip()]
    if one is not None and ids:
        raise BadField("'glossary_id' and 'glossary_ids' cannot be used together.")
    if len(ids) > _MAX_GLOSSARIES:
        raise BadField(f"'glossary_ids' has {len(ids)} ids; at most {_MAX_GLOSSARIES} are allowed.")
    ids = [one] if one is not None else ids
    if ids and source is None:
        raise BadField("Use of a glossary requires the source_lang parameter to be specified")
    found: list[Glossary] = []
    for glossary_id in ids:
        glossary = services.dialects.glossaries.get(key_owner(), glossary_id)
        if not (same_language(glossary.source, source or "") and same_language(glossary.target, target)):
            raise BadField(
                f"The glossary is for {glossary.source} to {glossary.target}, "
                "which source_lang and target_lang must agree with"
            )
        found.append(glossary)
    if len(found) > 1:
        entries = {term: entry for glossary in reversed(found) for term, entry in glossary.entries.items()}
        return await asyncio.to_thread(Terms, entries)
    # In a thread, for the first use of a long one takes a while.
    return await asyncio.to_thread(lambda: found[0].terms) if found else None


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
    _choice(fields, "tag_handling", _TAG_HANDLING)
    _choice(fields, "tag_handling_version", _TAG_HANDLING_VERSIONS)
    _choice(fields, "model_type", _MODEL_TYPES)
    for name in ("ignore_tags", "splitting_tags", "non_splitting_tags"):
        _tags(fields, name)
    fields.text("context")
    for name in _UNSUPPORTED:
        if fields.get(name) not in (None, "", []):
            raise BadField(f"Parameter '{name}' not supported.")


def _manner(fields: Fields, terms: Terms | None) -> Manner:
    """How texts are taken, by the options about sentences and tags."""
    tag_handling = _choice(fields, "tag_handling", _TAG_HANDLING)
    if tag_handling is None:
        return Manner(terms=terms, split_sentences=_choice(fields, "split_sentences", _SPLIT_SENTENCES) != "0")
    rules = Rules(
        is_xml=tag_handling == "xml",
        untranslated=_tags(fields, "ignore_tags"),
        splitting=_tags(fields, "splitting_tags"),
        non_splitting=_tags(fields, "non_splitting_tags"),
        finds_structure=fields.flag("outline_detection") is not False,
    )
    return Manner(tag_handling, rules, terms)


def _tags(fields: Fields, name: str) -> frozenset[str]:
    """Names of elements: a list, or parted by commas."""
    return frozenset(tag.strip() for item in fields.texts(name) or [] for tag in item.split(",") if tag.strip())


def _choice(fields: Fields, name: str, allowed: tuple[_Choice, ...]) -> _Choice | None:
    value = fields.single(name)
    if isinstance(value, bool | int):  # clients send split_sentences as a number, too
        value = str(int(value))
    elif value is not None:
        value = fields.text(name)
    if value is None:
        return None
    for choice in allowed:
        if value == choice:
            return choice
    raise BadField(f"Value for '{name}' not supported. Allowed: {', '.join(allowed)}")


def answer_problem(problem: Problem) -> tuple[int, object]:
    """DeepL's statuses, and its shape: `{"message": "what is wrong"}`."""
    status: int = problem["status"]
    if status == 422 or problem["type"].endswith(":unsupported-media-type"):
        status = 400
    elif status == 401:
        status = 403
    return status, {"message": problem["detail"]}


dialect = Dialect(owns=lambda path: path.startswith("/v2/"), answer=answer_problem)
