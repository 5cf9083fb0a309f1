"""DeepL's API: `/v2/translate`, `/v2/languages` and `/v2/usage`, as its clients know it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Literal

from fastapi import APIRouter, Request
from starlette.responses import Response

from service.api.deps import Services, ServicesDep
from service.api.dialects.answers import Dialect, Problem
from service.api.dialects.deepl_fields import choice, needed, no_pair, source_codes, spelled, target_codes
from service.api.dialects.fields import BadField, Fields, dialect_router, read_fields
from service.api.dialects.files import (
    count_characters,
    file_deadline,
    file_response,
    model_for,
    read_upload,
    take_apart,
    translate_document,
)
from service.api.dialects.glossaries import NoSuchGlossary
from service.api.dialects.keys import admit, deepl_key, key_owner
from service.api.dialects.languages import (
    english_name,
    loaded_ways,
    source_languages,
    target_languages,
)
from service.api.dialects.store import StoredFile
from service.api.dialects.texts import Manner, check_texts, translate_texts
from service.api.middleware import IS_HEAD
from service.api.responses import JsonResponse
from service.routing import UnknownLanguagePair, main_language
from service.text.markup import Rules
from service.text.terms import Terms

router: APIRouter = dialect_router("DeepL")

TRANSLATE = "/v2/translate"
FILES = "/v2/document"

CHARACTER_LIMIT = 1_000_000_000_000
"""What `/v2/usage` calls the limit: there is none, and DeepL says this number where it has none."""

_SPLIT_SENTENCES = ("0", "1", "nonewlines")
_FORMALITY = ("default", "more", "less", "prefer_more", "prefer_less")
_TAG_HANDLING: tuple[Literal["xml", "html"], ...] = ("xml", "html")
_TAG_HANDLING_VERSIONS = ("v1", "v2")
# A single one; an empty line parts paragraphs all the same.
_LINE_BREAK = re.compile(r"(?<=\S)[^\S\r\n]*(?:\r\n?+|\n)[^\S\r\n]*(?=\S)")
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
    source, target = fields.text("source_lang"), needed(fields, "target_lang")
    _check_options(fields)
    manner = _manner(fields, await _terms(fields, services, source, target))
    if choice(fields, "split_sentences", _SPLIT_SENTENCES) == "nonewlines" and manner.format == "text":
        texts = [_LINE_BREAK.sub(" ", text) for text in texts]
    model_type = choice(fields, "model_type", _MODEL_TYPES)
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
            spell=spelled,
        )
    except UnknownLanguagePair as error:
        raise no_pair(error) from error
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
    models = loaded_ways(services)
    if kind == "source":
        codes = source_codes(source_languages(models))
        return JsonResponse([{"language": code, "name": english_name(code)} for code in codes])
    codes = target_codes(target_languages(models))
    return JsonResponse([{"language": code, "name": english_name(code), "supports_formality": False} for code in codes])


@router.api_route("/v2/usage", methods=["GET", "POST"])
async def usage(request: Request, services: ServicesDep) -> Response:
    """How many characters were translated since the server started."""
    fields = await read_fields(request)
    await admit(request, deepl_key(request, fields))
    return JsonResponse({"character_count": services.dialects.num_characters, "character_limit": CHARACTER_LIMIT})


@router.post(FILES)
async def upload_document(request: Request, services: ServicesDep) -> Response:
    """Takes a file; it is translated while the client asks how far it is."""
    fields = await read_fields(request)
    await admit(request, deepl_key(request, fields))
    source, target = fields.text("source_lang"), needed(fields, "target_lang")
    _check_options(fields)
    upload = read_upload(fields, services, name=fields.text("filename"))
    output_format = fields.text("output_format")
    if output_format is not None and "." + output_format.lower() != upload.ending:
        raise BadField(f"Value for 'output_format' not supported. A {upload.ending[1:]} stays a {upload.ending[1:]}.")
    terms = await _terms(fields, services, source, target)
    document = await take_apart(upload, services)
    try:
        model = await model_for(services, document, source, target, spelled)
    except UnknownLanguagePair as error:
        raise no_pair(error) from error
    num_characters = count_characters(document.parts)

    async def work(tell: Callable[[float], None]) -> StoredFile:
        deadline = file_deadline(services)
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
    found = []
    for glossary_id in ids:
        glossary = services.dialects.glossaries.get(key_owner(), glossary_id)
        try:
            found.append(glossary.dictionary(source or "", target))
        except NoSuchGlossary as error:
            pairs = ", ".join(f"{one} to {other}" for one, other in glossary.dictionaries) or "no languages"
            raise BadField(f"The glossary is for {pairs}, which source_lang and target_lang must agree with") from error
    if len(found) > 1:
        entries = {term: entry for dictionary in reversed(found) for term, entry in dictionary.entries.items()}
        return await asyncio.to_thread(Terms, entries)
    # In a thread, for the first use of a long one takes a while.
    return await asyncio.to_thread(lambda: found[0].terms) if found else None


def _check_options(fields: Fields) -> None:
    """Refuses what cannot be done, and what nobody could."""
    choice(fields, "split_sentences", _SPLIT_SENTENCES)
    formality = choice(fields, "formality", _FORMALITY)
    if formality in ("more", "less"):
        raise BadField("'formality' is not supported for given 'target_lang'.")
    for name in ("preserve_formatting", "outline_detection", "show_billed_characters"):
        fields.flag(name)
    choice(fields, "tag_handling", _TAG_HANDLING)
    choice(fields, "tag_handling_version", _TAG_HANDLING_VERSIONS)
    choice(fields, "model_type", _MODEL_TYPES)
    for name in ("ignore_tags", "splitting_tags", "non_splitting_tags"):
        _tags(fields, name)
    fields.text("context")
    for name in _UNSUPPORTED:
        if fields.get(name) not in (None, "", []):
            raise BadField(f"Parameter '{name}' not supported.")


def _manner(fields: Fields, terms: Terms | None) -> Manner:
    """How texts are taken, by the options about sentences and tags."""
    tag_handling = choice(fields, "tag_handling", _TAG_HANDLING)
    if tag_handling is None:
        return Manner(terms=terms, split_sentences=choice(fields, "split_sentences", _SPLIT_SENTENCES) != "0")
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


def answer_problem(problem: Problem) -> tuple[int, object]:
    """DeepL's statuses, and its shape: `{"message": "what is wrong"}`."""
    status: int = problem["status"]
    if status == 422 or problem["type"].endswith(":unsupported-media-type"):
        status = 400
    elif status == 401:
        status = 403
    return status, {"message": problem["detail"]}


dialect = Dialect(owns=lambda path: path.startswith(("/v2/", "/v3/")), answer=answer_problem)
