"""Which model translates from one language to another, or which two do, through a third language. Plain values only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace

from service.engine.errors import EngineError, UnknownModel
from service.engine.interface import ModelInfo

PREFERRED_BETWEEN = "en"
"""The language that most models were trained with; of several ways, the one through it is taken."""

_CODE = re.compile(r"[a-z]{2,8}(?:-[a-z0-9]{1,8})*")
"""What codes of languages look like in small letters (BCP 47)."""


class UnknownLanguagePair(EngineError):
    """No model translates from one language to the other, or more than one does and none was chosen.

    Attributes:
        field: What to change: `source`, `target`, or `model`.
        given: What was asked for; None if nothing was.
        available: What `field` may be: the languages there are on this side, or the names of the models.
    """

    def __init__(self, field: str, given: str | None, reason: str, available: Sequence[str]) -> None:
        super().__init__(f"{reason}; allowed is {', '.join(available)}")
        self.field = field
        self.given = given
        self.available = tuple(available)


@dataclass(frozen=True, slots=True)
class Route(ModelInfo):
    """Two models, one after the other. The fields of a model are the first one's, but for the target language.

    Attributes:
        steps: The models; the first writes the language that the second reads.
    """

    steps: tuple[ModelInfo, ...] = ()

    @property
    def via(self) -> str:
        """The language between."""
        return self.steps[0].target_language


def by_target(models: Iterable[ModelInfo]) -> list[ModelInfo]:
    """One entry for each language that a model writes, that for which no request has to ask first."""
    return [
        replace(info, target_language=language)
        for info in models
        for language in dict.fromkeys((info.target_language, *info.target_languages))
    ]


def routes(models: Iterable[ModelInfo]) -> list[Route]:
    """A way through one language for every pair that no model translates but two do; one for each pair."""
    models = by_target(models)
    direct = {(_folded(info.source_language), _folded(info.target_language)) for info in models}
    found: dict[tuple[str, str], Route] = {}
    ways = [(first, second) for first in models for second in models if _follows(first, second)]
    for first, second in sorted(ways, key=lambda way: main_language(way[0].target_language) != PREFERRED_BETWEEN):
        pair = _folded(first.source_language), _folded(second.target_language)
        if pair not in direct and pair not in found:
            values = {each.name: getattr(first, each.name) for each in fields(ModelInfo)}
            values |= {"target_language": second.target_language, "target_languages": ()}
            found[pair] = Route(**values, steps=(first, second))
    return list(found.values())


def find_model(
    models: Sequence[ModelInfo],
    *,
    model: str | None = None,
    source: str | None = None,
    target: str | None = None,
    with_routes: bool = False,
) -> ModelInfo:
    """The model that a request means; its `target_language` is the one that is wanted of it.

    A language code also finds the model of its main language (`en-GB` finds `en`), whatever the case of its letters.
    Without anything given, the only model there is.

    Args:
        models: There is at least one.
        model: Its name.
        source: Code of the language to read.
        target: Code of the language to write; without it that which the model writes unless asked for another.
        with_routes: Whether a `Route` will do where no model translates a pair, and no name was given.

    Raises:
        UnknownModel: If no model has the name.
        UnknownLanguagePair: If no model fits, or several do.
    """
    named = [info for info in models if model in (None, info.name)]
    if not named:
        raise UnknownModel(str(model), [info.name for info in models])
    direct, ways = by_target(named), routes(models) if with_routes and model is None else []
    candidates = _fitting(direct, source, target) or _fitting(ways, source, target)
    if not candidates:
        raise _nothing_fits([*direct, *ways], model, source, target)
    names = list(dict.fromkeys(info.name for info in candidates))
    if len({(_folded(info.source_language), info.name) for info in candidates}) == 1:
        return candidates[0]
    if any(isinstance(info, Route) for info in candidates):
        codes = sorted({info.source_language for info in candidates})
        raise UnknownLanguagePair("source", source, "more than one way fits, so the source must be named", codes)
    raise UnknownLanguagePair("model", None, "more than one model fits, so one must be named", names)


def speaking(models: Sequence[ModelInfo], side: str, language: str) -> list[ModelInfo]:
    """Models that have the language on this side; the exact code wins over its main language."""
    for wanted in (_folded(language), main_language(language)):
        found = [info for info in models if _folded(getattr(info, f"{side}_language")) == wanted]
        if found:
            return found
    return []


def main_language(code: str) -> str:
    """The part of a code before its variant, in small letters: `en` of `en-GB`; of what is no code, all of it."""
    folded = _folded(code)
    return folded.partition("-")[0] if _CODE.fullmatch(folded) else folded


def _fitting(models: Sequence[ModelInfo], source: str | None, target: str | None) -> list[ModelInfo]:
    found = list(models)
    for side, language in (("source", source), ("target", target)):
        if language is not None:
            found = speaking(found, side, language)
    return found


def _nothing_fits(
    models: Sequence[ModelInfo], model: str | None, source: str | None, target: str | None
) -> UnknownLanguagePair:
    who = f'the model "{model}" has not' if model else "no model has"
    readable = models if source is None else speaking(models, "source", source)
    if not readable:
        codes = sorted({info.source_language for info in models})
        return UnknownLanguagePair("source", source, f'{who} the source language "{source}"', codes)
    reason = f'{who} the target language "{target}"'
    if source is not None:
        reason += f' for the source language "{source}"'
    return UnknownLanguagePair("target", target, reason, sorted({info.target_language for info in readable}))


def _follows(first: ModelInfo, second: ModelInfo) -> bool:
    """Whether the second reads what the first writes, and leads somewhere else."""
    start, between, end = map(main_language, (first.source_language, first.target_language, second.target_language))
    return main_language(second.source_language) == between and start not in (between, end)


def _folded(language: str) -> str:
    return language.lower().replace("_", "-")
