"""DeepL's routes for glossaries: `/v2/glossaries`, each for two languages, and `/v3/glossaries`, for any number."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from service.api.deps import Services, ServicesDep
from service.api.dialects.deepl_fields import choice, needed, no_pair
from service.api.dialects.fields import BadField, Fields, dialect_router, read_fields
from service.api.dialects.glossaries import (
    MAX_ENTRIES,
    MAX_TERM_CHARACTERS,
    BadGlossary,
    Dictionary,
    Glossary,
    parse_entries,
)
from service.api.dialects.keys import admit, deepl_key, key_owner
from service.api.dialects.languages import loaded_ways
from service.api.dialects.texts import find_model
from service.api.responses import JsonResponse
from service.routing import UnknownLanguagePair, main_language

router: APIRouter = dialect_router("DeepL")

_ENTRIES_FORMATS = ("tsv", "csv")
_TSV = "text/tab-separated-values"


@router.get("/v2/glossary-language-pairs")
async def glossary_language_pairs(request: Request, services: ServicesDep) -> Response:
    """The pairs that a glossary may be for: all there are."""
    await _admitted(request)
    ways = loaded_ways(services)
    pairs = {(main_language(info.source_language), main_language(info.target_language)) for info in ways}
    return JsonResponse(
        {"supported_languages": [{"source_lang": source, "target_lang": target} for source, target in sorted(pairs)]}
    )


@router.post("/v2/glossaries")
async def create_glossary(request: Request, services: ServicesDep) -> Response:
    """Makes a glossary for two languages."""
    fields = await _admitted(request)
    name = _name(fields)
    dictionary = _dictionary(fields, services)
    return JsonResponse(services.dialects.glossaries.create(key_owner(), name, [dictionary]).info(), status_code=201)


@router.get("/v2/glossaries")
async def list_glossaries(request: Request, services: ServicesDep) -> Response:
    """All glossaries of this key that are for two languages."""
    await _admitted(request)
    found = services.dialects.glossaries.all_of(key_owner())
    return JsonResponse({"glossaries": [each.info() for each in found if len(each.dictionaries) == 1]})


@router.get("/v2/glossaries/{glossary_id}")
async def get_glossary(glossary_id: str, request: Request, services: ServicesDep) -> Response:
    """What is known of a glossary."""
    await _admitted(request)
    return JsonResponse(_found(services, glossary_id).info())


@router.get("/v2/glossaries/{glossary_id}/entries")
async def get_glossary_entries(glossary_id: str, request: Request, services: ServicesDep) -> Response:
    """The entries of a glossary, one a line, with a tab between the two."""
    await _admitted(request)
    accepted = request.headers.get("accept", "*/*")
    if not any(kind in accepted for kind in (_TSV, "text/*", "*/*")):
        raise HTTPException(415, f"No supported media type specified in Accept header; there is: {_TSV}")
    return Response(_found(services, glossary_id).only.tsv(), media_type=_TSV)


@router.delete("/v2/glossaries/{glossary_id}")
@router.delete("/v3/glossaries/{glossary_id}")
async def delete_glossary(glossary_id: str, request: Request, services: ServicesDep) -> Response:
    """Forgets a glossary."""
    await _admitted(request)
    services.dialects.glossaries.delete(key_owner(), glossary_id)
    return Response(status_code=204)


@router.post("/v3/glossaries")
async def create_multilingual_glossary(request: Request, services: ServicesDep) -> Response:
    """Makes a glossary of several dictionaries."""
    fields = await _admitted(request)
    name = _name(fields)
    dictionaries = _dictionaries(fields, services)
    if not dictionaries:
        raise BadField("Parameter 'dictionaries' not specified.")
    glossary = services.dialects.glossaries.create(key_owner(), name, dictionaries)
    return JsonResponse(glossary.multilingual_info(), status_code=201)


@router.get("/v3/glossaries")
async def list_multilingual_glossaries(request: Request, services: ServicesDep) -> Response:
    """All glossaries of this key."""
    await _admitted(request)
    found = services.dialects.glossaries.all_of(key_owner())
    return JsonResponse({"glossaries": [each.multilingual_info() for each in found]})


@router.get("/v3/glossaries/{glossary_id}")
async def get_multilingual_glossary(glossary_id: str, request: Request, services: ServicesDep) -> Response:
    """What is known of a glossary."""
    await _admitted(request)
    return JsonResponse(_found(services, glossary_id).multilingual_info())


@router.patch("/v3/glossaries/{glossary_id}")
async def change_glossary(glossary_id: str, request: Request, services: ServicesDep) -> Response:
    """Gives a glossary another name, or more entries: those for a term that is there are replaced."""
    fields = await _admitted(request)
    glossary = _found(services, glossary_id)
    dictionaries = _dictionaries(fields, services)
    name = None if fields.text("name") is None else _name(fields)
    if name is None and not dictionaries:
        raise BadField("Parameter 'name' or 'dictionaries' not specified.")
    merged = dict(glossary.dictionaries)
    for new in dictionaries:
        old = merged.get(new.pair)
        entries = {**(old.entries if old is not None else {}), **new.entries}
        if len(entries) > MAX_ENTRIES:
            raise BadGlossary(f"more than {MAX_ENTRIES} entries for {' to '.join(new.pair)}")
        merged[new.pair] = replace(new, entries=entries)
    changed = replace(glossary, name=name or glossary.name, dictionaries=merged)
    return JsonResponse(services.dialects.glossaries.put(changed).multilingual_info())


@router.get("/v3/glossaries/{glossary_id}/entries")
async def get_dictionary_entries(glossary_id: str, request: Request, services: ServicesDep) -> Response:
    """The entries for two languages."""
    fields = await _admitted(request)
    source, target = needed(fields, "source_lang"), needed(fields, "target_lang")
    found = _found(services, glossary_id).dictionary(source, target)
    entries = {"source_lang": found.source, "target_lang": found.target, "entries": found.tsv()}
    return JsonResponse({"dictionaries": [entries | {"entries_format": "tsv"}]})


@router.put("/v3/glossaries/{glossary_id}/dictionaries")
async def replace_dictionary(glossary_id: str, request: Request, services: ServicesDep) -> Response:
    """Puts a dictionary in the place of the one for its two languages, or beside the others."""
    fields = await _admitted(request)
    glossary, new = _found(services, glossary_id), _dictionary(fields, services)
    services.dialects.glossaries.put(replace(glossary, dictionaries={**glossary.dictionaries, new.pair: new}))
    return JsonResponse(new.info())


@router.delete("/v3/glossaries/{glossary_id}/dictionaries")
async def delete_dictionary(glossary_id: str, request: Request, services: ServicesDep) -> Response:
    """Forgets the entries for two languages."""
    fields = await _admitted(request)
    glossary = _found(services, glossary_id)
    gone = glossary.dictionary(needed(fields, "source_lang"), needed(fields, "target_lang"))
    rest = {pair: dictionary for pair, dictionary in glossary.dictionaries.items() if pair != gone.pair}
    services.dialects.glossaries.put(replace(glossary, dictionaries=rest))
    return Response(status_code=204)


async def _admitted(request: Request) -> Fields:
    """The fields of a request whose key may ask."""
    fields = await read_fields(request)
    await admit(request, deepl_key(request, fields))
    return fields


def _found(services: Services, glossary_id: str) -> Glossary:
    return services.dialects.glossaries.get(key_owner(), glossary_id)


def _name(fields: Fields) -> str:
    name = needed(fields, "name")
    if len(name) > MAX_TERM_CHARACTERS:
        raise BadField(f"Value for 'name' not supported. At most {MAX_TERM_CHARACTERS} characters are allowed.")
    return name


def _dictionaries(fields: Fields, services: Services) -> Sequence[Dictionary]:
    found: dict[tuple[str, str], Dictionary] = {}
    for index, each in enumerate(fields.objects("dictionaries")):
        dictionary = _dictionary(each, services, f"dictionaries[{index}].")
        if dictionary.pair in found:
            raise BadField(f"dictionaries[{index}] is another one for {' to '.join(dictionary.pair)}")
        found[dictionary.pair] = dictionary
    return list(found.values())


def _dictionary(fields: Fields, services: Services, where: str = "") -> Dictionary:
    source, target, entries = (needed(fields, name, where) for name in ("source_lang", "target_lang", "entries"))
    format_ = choice(fields, "entries_format", _ENTRIES_FORMATS, where)
    if format_ is None:
        raise BadField(f"Parameter '{where}entries_format' not specified.")
    try:
        find_model(services, source, target)
    except UnknownLanguagePair as error:
        told = no_pair(error, where).detail
        raise BadField(f"Unsupported glossary source and target language pair. {told}") from error
    parsed = parse_entries(entries, format_, source, target)
    return Dictionary(main_language(source), main_language(target), parsed)
