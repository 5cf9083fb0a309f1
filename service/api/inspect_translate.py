"""What a translation is asked beside its text: attention maps, and which words come from which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from service.api import inspect_answers as answers
from service.api import schemas
from service.api.deps import Services
from service.api.errors import InspectionTooLarge, InvalidField
from service.engine.inspection import SegmentAlignment
from service.inspection.errors import InvalidInspection, TooLarge
from service.inspection.inspector import CapturedMaps
from service.inspection.pairs import Ask, Found
from service.routing import Route
from service.translator import Job, Translation


def wants_inside(body: schemas.TranslateRequest) -> bool:
    """Whether anything but the translation is wanted."""
    return body.attention is not None or "alignment" in body.return_


def check_inside(body: schemas.TranslateRequest, job: Job, services: Services) -> None:
    """Refuses before anything is translated.

    Raises:
        InvalidField: It is a stream or no plain text, or the model has no such layer or head.
        InspectionDisabled: Looking inside is turned off.
        InspectionTooLarge: The texts alone have too many tokens.
    """
    wanted, path = ("attention", "/v1/attention") if body.attention is not None else ("alignment", "/v1/alignment")
    if body.stream:
        raise InvalidField("stream", True, f"false with {wanted}, which is there when all is written")
    if body.format != "text":
        raise InvalidField("format", body.format, f'"text" with {wanted}; {path} takes one text, too')
    for index, text in enumerate(job.texts):
        model = job.model_of(index)
        if isinstance(model, Route):
            allowed = f"a pair that one model translates; this goes via {model.via}: look at each step on its own"
            raise InvalidField("target", model.target_language, allowed)
        facts = services.inspector.facts(model)
        if body.attention is not None:
            try:
                body.attention.options(None).selection(facts.config)
                services.inspector.check_length(Ask(text, model))
            except InvalidInspection as error:
                raise InvalidField(f"attention.{error.field}", error.given, error.allowed) from error
            except TooLarge as error:
                raise InspectionTooLarge(error, {}) from error


async def inside(
    body: schemas.TranslateRequest, job: Job, translation: Translation, services: Services
) -> list[dict[str, Any]]:
    """The fields `attention` and `alignment` of each text; at most one replay for each segment."""
    parts = [
        (Ask(text, job.model_of(index), job.options, job.deadline), done)
        for index, (text, done) in enumerate(zip(job.texts, translation.texts, strict=True))
    ]
    options = None if body.attention is None else body.attention.options(None)
    with_alignment = "alignment" in body.return_

    def render(found: Found, maps: CapturedMaps | None, alignments: Mapping[int, SegmentAlignment]) -> dict[str, Any]:
        fields: dict[str, Any] = {}
        if maps is not None and body.attention is not None:
            fields["attention"] = answers.maps(found, body.attention, maps, with_values=True)
        if with_alignment:
            fields["alignment"] = answers.aligned(found, alignments, found.facts.recipe)
        return fields

    try:
        return await services.inspector.beside(parts, options, with_alignment, render)
    except TooLarge as error:
        raise InspectionTooLarge(error, {}) from error
