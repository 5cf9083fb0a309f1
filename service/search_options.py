"""How to search where nobody says: the one place that decides it, for the server and the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from model.decoding import DecodingOptions
from service.engine.interface import ModelInfo
from service.routing import Route
from service.settings import Settings


def search_options(
    settings: Settings, models: Sequence[ModelInfo], given: Mapping[str, Any], *, is_greedy: bool = False
) -> DecodingOptions:
    """How to search: as the request says, else as the operator set, else as the models' makers advise.

    Args:
        settings: Of the server, or of the program that translates without one.
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


def _common_advice(models: Sequence[ModelInfo]) -> dict[str, Any]:
    steps = [step for model in models for step in (model.steps if isinstance(model, Route) else (model,))]
    advice = [dict(step.advised_decoding) for step in steps]
    return advice[0] if advice and all(each == advice[0] for each in advice) else {}
