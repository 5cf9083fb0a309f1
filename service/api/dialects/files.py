"""Files that are uploaded, translated part by part, and fetched."""

from __future__ import annotations

import asyncio
import re
import time
import unicodedata
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Literal

from starlette.exceptions import HTTPException
from starlette.responses import Response

from service.api.deps import Services
from service.api.dialects.fields import BadField, Fields
from service.api.dialects.languages import english_name, same_language
from service.api.dialects.store import StoredFile
from service.api.dialects.texts import find_model
from service.api.errors import RateLimited, current_timeout
from service.engine.errors import DeadlineExceeded, QueueFull, WorkTooLong
from service.engine.interface import ModelInfo
from service.engine.speed import work_seconds
from service.markup import read_markups
from service.search_options import search_options
from service.text.documents.formats import FORMATS, file_ending, open_document
from service.text.documents.parts import DocumentError, Part, TranslatableDocument
from service.text.languages import Languages
from service.text.markup import Markup, MarkupError, Rules
from service.text.terms import Terms
from service.translator import Job

_BATCH_CHARACTERS = 6_000
_BATCH_PARTS = 64
"""Files go to the engine in pieces of this size, so that others are translated between them."""

_EXPANSION = 10
"""What a file may unpack to, as a multiple of the longest file."""

_CHARACTERS_PER_TOKEN = 4.0
"""About, without white space: more than most texts have, so that what is refused by it was without hope."""

_SURE_AFTER_SECONDS = 10.0
"""How long a file is translated before it is judged by that how long all of it will take."""

_SAMPLE_CHARACTERS = 3_000
_MAX_NAME_CHARACTERS = 100

_TAG = re.compile(r"<!--.*?-->|<[^<>]*>", re.DOTALL)
_SENTENCE_END = re.compile(r"(?<=[.!?…。！？])\s+|\n+")
_STRANGE_IN_NAME = re.compile(r"[^\w.\- ()\[\]]")


class FileTooLarge(HTTPException):
    """The file has too many bytes."""

    def __init__(self, num_bytes: int, max_bytes: int) -> None:
        super().__init__(413, f"the file has {num_bytes} bytes; at most {max_bytes} are allowed")


@dataclass(frozen=True, slots=True)
class Upload:
    """A file that came.

    Attributes:
        name: Harmless: no folders, no control characters, not long.
        ending: As in `FORMATS`.
        content: All of it.
    """

    name: str
    ending: str
    content: bytes

    @property
    def media_type(self) -> str:
        """What it is, by its ending."""
        return FORMATS[self.ending].media_type

    def name_in(self, language: str) -> str:
        """What the translation is called: `report.docx` in French `report_fr.docx`."""
        return f"{self.name[: -len(self.ending)]}_{safe_name(language)}{self.ending}"


def read_upload(fields: Fields, services: Services, *, name: str | None = None) -> Upload:
    """Reads the file of a request.

    Args:
        fields: Of the request.
        services: For the limits.
        name: The file's name, where the dialect has a field for it.

    Raises:
        BadField: If there is none, or none that can be translated.
        FileTooLarge: With both numbers.
    """
    file = fields.files.get("file")
    if file is None:
        is_no_file = fields.get("file") is not None
        fault = "file parameter must be a file of a multipart form" if is_no_file else "missing file parameter"
        raise BadField(f"Invalid request: {fault}")
    given = name or file.name
    max_bytes = services.settings.max_file_bytes
    if len(file.content) > max_bytes:
        raise FileTooLarge(len(file.content), max_bytes)
    try:
        ending = file_ending(given)
    except DocumentError as error:
        raise BadField(f"Invalid request: file format not supported; {error}") from error
    if not file.content:
        raise BadField("Invalid request: empty file")
    return Upload(safe_name(given, ending), ending, file.content)


async def take_apart(upload: Upload, services: Services) -> TranslatableDocument:
    """Opens a file, in a thread.

    Raises:
        BadField: If it cannot be.
    """
    most = _EXPANSION * services.settings.max_file_bytes
    try:
        return await asyncio.to_thread(open_document, upload.name, upload.content, max_expanded_bytes=most)
    except DocumentError as error:
        raise BadField(f"Invalid file data: {error}") from error


async def model_for(
    services: Services,
    document: TranslatableDocument,
    source: str | None,
    target: str,
    spell: Callable[[str], str] = str,
) -> ModelInfo | None:
    """The model for a file.

    Args:
        services: The server's parts.
        document: What was taken apart.
        source: Its language; None finds it out.
        target: The language to write.
        spell: How the dialect writes a language's code, for messages.

    Returns:
        None if the language had to be found out and is the target already, or there is no word in the file.

    Raises:
        UnknownLanguagePair: If no model translates between the two.
        BadField: If it had to be found out, and cannot be translated.
    """
    if source is not None:
        return find_model(services, source, target, with_routes=False)
    sample = ""
    for part in document.parts:
        sample += visible_text(part)[:_SAMPLE_CHARACTERS] + "\n"
        if len(sample) > _SAMPLE_CHARACTERS:
            break
    (found,) = await services.translator.detect([sample], target=target)
    if found.is_known:
        return find_model(services, found.language, target, with_routes=False)
    if found.looks_like is None or same_language(found.looks_like, target):
        return None
    raise BadField(
        f"The file looks like {english_name(found.looks_like)} ({spell(found.looks_like)}): not clearly in a language "
        f"that can be translated to {target:.100}; name the source if it is one"
    )


def file_deadline(services: Services) -> float:
    """Until when a file that comes now must be done, on the monotonic clock; noted for errors."""
    seconds = services.settings.file_timeout_seconds
    current_timeout.set((seconds, seconds))
    return time.monotonic() + seconds


async def translate_document(
    services: Services,
    document: TranslatableDocument,
    model: ModelInfo | None,
    deadline: float,
    *,
    terms: Terms | None = None,
    on_progress: Callable[[float], None] = lambda _: None,
) -> bytes:
    """Translates a file.

    Args:
        services: The server's parts.
        document: What was taken apart; used up.
        model: For all of it; None leaves it as it is.
        deadline: On the monotonic clock, for the whole.
        terms: That must be translated so.
        on_progress: Told which share is done, 0 to 1.

    Raises:
        BadField: If something in the file turns out to be damaged.
        EngineError: As the translator; a full queue is waited for.
    """
    parts = document.parts
    texts = [part.text for part in parts]
    if model is not None:
        texts = await translate_parts(services, parts, model, deadline, terms=terms, on_progress=on_progress)
    languages = None if model is None else Languages(model.source_language, model.target_language)
    try:
        return await asyncio.to_thread(document.render, texts, languages)
    except DocumentError as error:
        raise BadField(f"Invalid file data: {error}") from error


async def translate_parts(
    services: Services,
    parts: Sequence[Part],
    model: ModelInfo,
    deadline: float,
    *,
    terms: Terms | None = None,
    on_progress: Callable[[float], None] = lambda _: None,
) -> list[str]:
    """Translates the parts of a file, some at a time.

    Args:
        services: The server's parts.
        parts: Of the file.
        model: For all of them.
        deadline: On the monotonic clock, for the whole.
        terms: That must be translated so.
        on_progress: Told which share is done, 0 to 1.

    Raises:
        EngineError: As the translator; a full queue is waited for. `WorkTooLong` as soon as it is known.
    """
    options = search_options(services.settings, (model,), {})
    done = [part.text for part in parts]
    total = sum(len(part.text) for part in parts) or 1
    num_characters = 0
    started = time.monotonic()
    num_tokens = await asyncio.to_thread(_guess_tokens, parts)
    needed = work_seconds(num_tokens * options.beam_size, services.engine.stats().row_tokens_per_second)
    _check_time(num_tokens, needed, deadline - started)
    for batch in _batches(parts):
        job = Job(tuple(parts[index].text for index in batch), model, options, deadline, terms=terms)
        translation = await _when_there_is_room(services, job, parts[batch[0]])
        for index, text in zip(batch, translation, strict=True):
            done[index] = text
            num_characters += len(parts[index].text)
        on_progress(num_characters / total)
        spent = time.monotonic() - started
        if spent > _SURE_AFTER_SECONDS:
            _check_time(num_tokens, spent * total / max(1, num_characters), deadline - started)
    return done


def _guess_tokens(parts: Sequence[Part]) -> float:
    """About how many tokens a file has, each sentence counted once in a batch, for it is translated once."""
    num_characters = 0
    for batch in _batches(parts):
        sentences = {found for index in batch for found in _SENTENCE_END.split(visible_text(parts[index]))}
        num_characters += sum(len(word) for sentence in sentences for word in sentence.split())
    return num_characters / _CHARACTERS_PER_TOKEN


def _check_time(num_tokens: float, needed: float, allowed: float) -> None:
    """Refuses a file that takes too long, instead of giving it up when its time is over."""
    if needed > allowed:
        raise WorkTooLong(int(num_tokens), int(num_tokens * allowed / needed), needed, allowed)


async def _when_there_is_room(services: Services, job: Job, like: Part) -> list[str]:
    rules = Rules(
        like.format == "xml", like.untranslated, like.splitting, attributes=like.attributes, finds_structure=False
    )
    while True:
        try:
            if like.format == "text":
                translation = await services.translator.translate(job)
            else:
                markups = await _read(like.format, job.texts, rules)
                translation = await services.documents.translate(job, markups)
            return [text.text for text in translation.texts]
        except (QueueFull, RateLimited) as error:
            if job.deadline is not None and time.monotonic() + error.retry_after_seconds > job.deadline:
                raise DeadlineExceeded("file", retry_after_seconds=error.retry_after_seconds) from error
            await asyncio.sleep(error.retry_after_seconds)


async def _read(format_: Literal["html", "xml"], texts: Sequence[str], rules: Rules) -> list[Markup]:
    try:
        return await read_markups(format_, texts, rules)
    except MarkupError as error:
        raise BadField(f"Invalid file data: a page of it is not well-formed ({error})") from error


def _batches(parts: Sequence[Part]) -> Iterator[list[int]]:
    batch: list[int] = []
    num_characters = 0
    for index, part in enumerate(parts):
        is_full = len(batch) >= _BATCH_PARTS or num_characters + len(part.text) > _BATCH_CHARACTERS
        if batch and (is_full or not _go_together(parts[batch[0]], part)):
            yield batch
            batch, num_characters = [], 0
        batch.append(index)
        num_characters += len(part.text)
    if batch:
        yield batch


def _go_together(one: Part, other: Part) -> bool:
    return replace(one, text="") == replace(other, text="")


def count_characters(parts: Sequence[Part]) -> int:
    """How much text there is for a reader, in code points."""
    return sum(len(visible_text(part)) for part in parts)


def visible_text(part: Part) -> str:
    """A part without its tags."""
    return part.text if part.format == "text" else _TAG.sub("", part.text)


def safe_name(name: str, ending: str = "") -> str:
    """A file's name that is only a name: without folders, control characters and quotes, and not too long."""
    name = unicodedata.normalize("NFC", PurePosixPath(name.replace("\\", "/")).name)
    stem = name[: len(name) - len(ending)] if ending else name
    stem = _STRANGE_IN_NAME.sub("_", stem).strip(". ")[:_MAX_NAME_CHARACTERS]
    return (stem or "file") + ending


def file_response(file: StoredFile, content: bytes) -> Response:
    """The answer that is saved under the file's name, whatever it holds."""
    plain = file.name.encode("ascii", "replace").decode().replace("?", "_")
    quoted = urllib.parse.quote(file.name)
    return Response(
        content,
        media_type=file.media_type,
        headers={"Content-Disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quoted}"},
    )
