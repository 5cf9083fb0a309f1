"""What holds where a request does not say: how to search, and how long it may take."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.datastructures import Headers

from model.decoding import DecodingOptions
from service.api.errors import InvalidField
from service.engine.interface import ModelInfo
from service.routing import Route
from service.settings import Settings

TIMEOUT_HEADER = "X-Request-Timeout"
"""Seconds that the client will wait, for clients that cannot change the body."""

_NUMBER = re.compile(r"\d{1,9}(\.\d{1,9})?")


def search_options(
    settings: Settings, models: Sequence[ModelInfo], given: Mapping[str, Any], *, is_greedy: bool = False
) -> DecodingOptions:
    """How to search: as the request says, else as the operator set, else as the models' makers advise.

    Args:
        settings: Of the server.
        models: Those that will translate; advice counts if it is the same for all.
        given: What the request says, as fields of `DecodingOptions`.
        is_greedy: Whether a request that names no beam is not to have one.

    Raises:
        InvalidDecodingOptions: Names the field, what was given and what is allowed.
    """
    chosen = _common_advice(models)
    beam_size = chosen.get("beam_size", settings.default_beam_size)
    if "default_beam_size" in settings.model_fields_set:
        beam_size = settings.default_beam_size
    chosen["beam_size"] = 1 if is_greedy or given.get("temperature") else min(beam_size, settings.max_rows)
    chosen |= given
    if chosen["beam_size"] > 1 and chosen.get("num_hypotheses", 1) == 1:
        # Who wants several hypotheses wants those, too, that are far behind the best.
        chosen.setdefault("beam_threshold", settings.default_beam_threshold)
    return DecodingOptions(**chosen)


def timeout_seconds(settings: Settings, headers: Headers, deadline_seconds: float | None = None) -> float:
    """How long a request may take: the shortest of what its body, its header and the settings say.

    Raises:
        InvalidField: One of the two is not above 0, or above what the settings allow.
    """
    longest = settings.request_timeout_seconds
    allowed = f"a number above 0 and at most {longest:g}"
    if deadline_seconds is not None and not 0 < deadline_seconds <= longest:
        raise InvalidField("deadline_seconds", deadline_seconds, allowed)
    header = headers.get(TIMEOUT_HEADER)
    if header is None:
        return longest if deadline_seconds is None else deadline_seconds
    if not _NUMBER.fullmatch(header.strip()) or not 0 < float(header) <= longest:
        raise InvalidField(TIMEOUT_HEADER, header, allowed)
    return min(float(header), longest if deadline_seconds is None else deadline_seconds)


def _common_advice(models: Sequence[ModelInfo]) -> dict[str, Any]:
    steps = [step for model in models for step in (model.steps if isinstance(model, Route) else (model,))]
    advice = [dict(step.advised_decoding) for step in steps]
    return advice[0] if advice and all(each == advice[0] for each in advice) else {}
