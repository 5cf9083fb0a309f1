"""An engine that counts what goes through another one, whoever asks: every API and every dialect alike."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

from service.engine.errors import EngineDead, RequestAborted
from service.engine.interface import Engine, EngineState, EngineStats, ModelInfo
from service.engine.request import EngineEvent, EngineRequest, RequestDoneEvent, RequestResult
from service.observability.facts import request_facts
from service.observability.metrics import Metrics


@dataclass(slots=True)
class _Fate:
    """Whether a request came to an end of its own."""

    is_decided: bool = False


class MeasuredEngine:
    """An `Engine` in front of another; adds numbers to the metrics, and to the facts of the request.

    Args:
        engine: Does the work.
        metrics: Where to count.
    """

    def __init__(self, engine: Engine, metrics: Metrics) -> None:
        self._engine = engine
        self._metrics = metrics

    async def submit(self, request: EngineRequest) -> RequestResult:
        """As `Engine.submit`."""
        with self._followed(request) as fate:
            result = await self._engine.submit(request)
            self._count(request, result)
            fate.is_decided = True
            return result

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineEvent, None]:
        """As `Engine.stream`."""
        with self._followed(request) as fate:
            async with aclosing(self._engine.stream(request)) as events:
                async for event in events:
                    if isinstance(event, RequestDoneEvent):
                        self._count(request, event.result)
                        fate.is_decided = True  # Whoever has had the last event may close the stream.
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
            if not fate.is_decided:  # The caller was cancelled, closed the stream, or had the request aborted.
                self._metrics.cancellations.inc()

    def _count(self, request: EngineRequest, result: RequestResult) -> None:
        self._metrics.count_result(request.model, result)
        facts = request_facts.get()
        if facts is not None:
            facts.target_tokens += result.num_target_tokens

    # --- passed on -------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """As `Engine.start`."""
        started = time.monotonic()
        await self._engine.start()
        self._metrics.start_duration.set(time.monotonic() - started)

    async def stop(self, grace_seconds: float) -> None:
        """As `Engine.stop`."""
        await self._engine.stop(grace_seconds)

    def abort(self, request_id: str) -> None:
        """As `Engine.abort`."""
        self._engine.abort(request_id)

    @property
    def state(self) -> EngineState:
        """As `Engine.state`."""
        return self._engine.state

    @property
    def is_ready(self) -> bool:
        """As `Engine.is_ready`."""
        return self._engine.is_ready

    @property
    def not_ready_reason(self) -> str | None:
        """As `Engine.not_ready_reason`."""
        return self._engine.not_ready_reason

    def models(self) -> tuple[ModelInfo, ...]:
        """As `Engine.models`."""
        return self._engine.models()

    def stats(self) -> EngineStats:
        """As `Engine.stats`."""
        return self._engine.stats()

    async def wait_closed(self) -> EngineDead | None:
        """As `Engine.wait_closed`."""
        return await self._engine.wait_closed()
