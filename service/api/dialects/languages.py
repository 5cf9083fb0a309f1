"""Which languages there are, and what they are called in English.

`language_names.json` is the table of the Unicode CLDR (Unicode License V3), as Babel has it; a test compares. Babel
itself would add 33 MB to every installation, for this table.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources

from service.api.deps import Services
from service.api.errors import NotReady
from service.engine.interface import ModelInfo
from service.routing import main_language


@cache
def english_name(code: str) -> str:
    """The English name of a language (CLDR), as `French` for `fr`; the code itself where there is none."""
    names = _names()
    main, _, rest = code.replace("_", "-").partition("-")
    exact = f"{main.lower()}_{rest.replace('-', '_')}"
    return names.get(exact) or names.get(main.lower()) or code


@cache
def _names() -> Mapping[str, str]:
    content = resources.files(__package__).joinpath("language_names.json").read_text(encoding="utf-8")
    names: dict[str, str] = json.loads(content)
    return names


def loaded_ways(services: Services) -> tuple[ModelInfo, ...]:
    """Everything that can be translated.

    Raises:
        NotReady: If no model is loaded.
    """
    if not services.engine.models():
        raise NotReady(services.engine.not_ready_reason or "no model is loaded")
    return services.translator.ways()


def source_languages(models: Sequence[ModelInfo]) -> list[str]:
    """Codes of what can be read, sorted."""
    return sorted({info.source_language for info in models})


def target_languages(models: Sequence[ModelInfo], source: str | None = None) -> list[str]:
    """Codes of what can be written, from one language if given; sorted."""
    return sorted({info.target_language for info in models if source in (None, info.source_language)})


def same_language(one: str, other: str) -> bool:
    """Whether two codes name one main language: `en-GB` and `EN` do."""
    return main_language(one) == main_language(other)
