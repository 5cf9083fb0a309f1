"""A translation of the server's own, before it says that it is ready: the whole way, from text to text, is tried.

Weights that were read well may still be the wrong ones, and a kernel may work in the warm-up and not in company. So a
sentence is translated alone and again between neighbours: both must end in finite numbers, and must agree.
"""

from __future__ import annotations

import math
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing

from model.decoding import DecodingOptions, Hypothesis
from service.engine.errors import EngineDead, EngineError, EngineStopping
from service.engine.forwarding import ForwardingEngine
from service.engine.interface import Engine, EngineState, ModelInfo
from service.engine.request import EngineEvent, EngineRequest, RequestResult
from service.translator import Job, TextTranslation, Translator

TIMEOUT_SECONDS = 120.0
"""Much longer than it takes, also where a hundred others want the processor."""

TOLERANCE = 0.1
"""How far the mean log-probability of a token may change with the neighbours; float rounding is far below it."""

_ADVICE = "is it trained? GOSSAMER_SELF_CHECK=false serves it all the same"

_TRYING = "the engine is trying out its models"

_SENTENCES = {
    "de": ("Guten Morgen.", "Wo ist der Bahnhof?", "Danke."),
    "en": ("Good morning.", "Where is the train station?", "Thank you."),
    "es": ("Buenos días.", "¿Dónde está la estación?", "Gracias."),
    "fr": ("Bonjour.", "Où est la gare ?", "Merci."),
    "it": ("Buongiorno.", "Dov'è la stazione?", "Grazie."),
    "ja": ("おはようございます。", "駅はどこですか。", "ありがとう。"),
    "nl": ("Goedemorgen.", "Waar is het station?", "Dank je."),
    "pl": ("Dzień dobry.", "Gdzie jest dworzec?", "Dziękuję."),
    "pt": ("Bom dia.", "Onde fica a estação?", "Obrigado."),
    "ru": ("Доброе утро.", "Где вокзал?", "Спасибо."),
    "uk": ("Доброго ранку.", "Де вокзал?", "Дякую."),
    "zh": ("早上好。", "火车站在哪里？", "谢谢。"),
}
_ANY_LANGUAGE = ("Paris 2024.", "Nova York, Tokio, Madrid, Roma.", "Berlin.")


class CheckedEngine(ForwardingEngine):
    """An `Engine` in front of another, which is ready only when all its models have translated a sentence well.

    Args:
        engine: Does the work.
        translator: On top of `engine`.
    """

    def __init__(self, engine: Engine, translator: Translator) -> None:
        super().__init__(engine)
        self._translator = translator
        self._has_passed = False
        self._death: EngineDead | None = None

    async def start(self) -> None:
        """As `Engine.start`, and tries out the models.

        Raises:
            EngineDead: As there; or a model failed, and the engine was stopped.
            EngineStopping: `stop` was called meanwhile.
        """
        await self._engine.start()
        try:
            await check_models(self._translator, self._engine.models())
        except EngineDead as death:
            self._death = death
            await self._engine.stop(0)
            raise
        self._has_passed = True

    @property
    def state(self) -> EngineState:
        """As `Engine.state`."""
        if self._death is not None:
            return EngineState.DEAD
        state = self._engine.state
        return EngineState.STARTING if state is EngineState.READY and not self._has_passed else state

    @property
    def is_ready(self) -> bool:
        """As `Engine.is_ready`."""
        return self.state is EngineState.READY

    @property
    def not_ready_reason(self) -> str | None:
        """As `Engine.not_ready_reason`."""
        if self._death is not None:
            return str(self._death)
        reason = self._engine.not_ready_reason
        return _TRYING if reason is None and not self._has_passed else reason

    async def submit(self, request: EngineRequest) -> RequestResult:
        """As `Engine.submit`."""
        self._check_passed()
        return await self._engine.submit(request)

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineEvent, None]:
        """As `Engine.stream`."""
        self._check_passed()
        async with aclosing(self._engine.stream(request)) as events:
            async for event in events:
                yield event

    async def wait_closed(self) -> EngineDead | None:
        """As `Engine.wait_closed`."""
        return await self._engine.wait_closed() or self._death

    def _check_passed(self) -> None:
        if self._death is not None:
            raise EngineDead(self._death.reason)
        if not self._has_passed:
            raise EngineStopping(self.not_ready_reason or _TRYING)


async def check_models(translator: Translator, models: tuple[ModelInfo, ...]) -> None:
    """Translates with each model, and looks at what comes of it.

    Raises:
        EngineDead: A model gave what no model gives that works; says which, and what.
        EngineStopping: The engine was stopped meanwhile.
    """
    for info in models:
        fault = await _fault_of(translator, info)
        if fault is not None:
            raise EngineDead(f"the model {info.name} failed its self-translation: {fault} ({_ADVICE})")


async def _fault_of(translator: Translator, info: ModelInfo) -> str | None:
    before, sentence, after = _SENTENCES.get(info.source_language.partition("-")[0], _ANY_LANGUAGE)
    try:
        alone = await _translate(translator, info, sentence)
        in_company = await _translate(translator, info, before, sentence, after)
    except (EngineDead, EngineStopping):
        raise
    except EngineError as error:
        return str(error)
    best = [_best(alone[0]), *map(_best, in_company)]
    if any(hypothesis is None or not hypothesis.tokens for hypothesis in best):
        return "a sentence was not translated"
    scores = [alone[0].score, in_company[1].score]
    if any(score is None or not math.isfinite(score) or score > 0 for score in scores):
        return f"scores of {scores[0]} and {scores[1]} are no log-probabilities"
    if abs(scores[0] - scores[1]) > TOLERANCE:  # type: ignore[operator]  # None was looked for
        return f"a sentence has the score {scores[0]:.3f} alone and {scores[1]:.3f} in company"
    return None


async def _translate(translator: Translator, info: ModelInfo, *texts: str) -> tuple[TextTranslation, ...]:
    job = Job(texts, info, DecodingOptions(), time.monotonic() + TIMEOUT_SECONDS, with_log_probs=True)
    return (await translator.translate(job)).texts


def _best(text: TextTranslation) -> Hypothesis | None:
    candidates = [candidate for segment in text.segments for candidate in segment.candidates[:1]]
    return candidates[0].hypothesis if candidates else None
