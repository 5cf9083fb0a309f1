"""An engine that counts what goes through another one, whoever asks: every API and every dialect alike."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

from service.aside import aside
from service.engine.errors import RequestAborted
from service.engine.forwarding import ForwardingEngine
from service.engine.interface import Engine
from service.engine.request import EngineEvent, EngineRequest, RequestDoneEvent, RequestResult
from service.observability.facts import request_facts
from service.observability.metrics import Metrics

_MANY_SEQUENCES = 100
"""More are counted in a thread."""


@dataclass(slots=True)
class _Fate:
    """Whether a request came to an end of its own."""

    is_decided: bool = False


class MeasuredEngine(ForwardingEngine):
    """An `Engine` in front of another; adds numbers to the metrics, and to the facts of the request.

    Args:
        engine: Does the work.
        metrics: Where to count.
    """

    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        super().__init__(engine)
        self._metrics = metrics

    async def submit(self, request: EngineRequest) -> RequestResult:
        """As `Engine.submit`."""
        with self._followed(request) as fate:
            result = await self._engine.submit(request)
            fate.is_decided = True
            await self._count(request, result)
            return result

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineEvent, None]:
        """As `Engine.stream`."""
        with self._followed(request) as fate:
            async with aclosing(self._engine.stream(request)) as events:
                async for event in events:
                    if isinstance(event, RequestDoneEvent):
                        fate.is_decided = True  # Whoever has had the last event may close the stream.
                        await self._count(request, event.result)
                    yield event

    @contextmanager
    def _followed(self, request: EngineRequest) -> Iterator[_Fate]:
        facts = request_facts.get()
        if facts is not None and any(info.name == request.model for info in self._engine.models()):
            facts.model = request.model
            facts.source_tokens += request.num_source_tokens
        fate = _Fate()
        try:
            yield fate
        except RequestAborted:
            raise
        except Exception:
            fate.is_decided = True  # A refusal, or a failure: counted by its reason where it is answered.
            raise
        finally:
            # The caller was cancelled, closed the stream, or had the request aborted.
            if not (fate.is_decided or (facts is not None and facts.is_given_up)):
                self._metrics.count_cancellation()
                if facts is not None:
                    facts.is_given_up = True

    async def _count(self, request: EngineRequest, result: RequestResult) -> None:
        await aside(self._metrics.count_result, len(result.sequences) / _MANY_SEQUENCES, request.model, result)
        facts = request_facts.get()
        if facts is not None:
            facts.target_tokens += result.num_target_tokens

    async def start(self) -> None:
        """As `Engine.start`; tells how long it took."""
        started = time.monotonic()
        await self._engine.start()
        self._metrics.start_duration.set(time.monotonic() - started)
