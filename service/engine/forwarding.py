"""An engine that hands everything on to another: what stands in front of an engine changes only what it is about."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from service.engine.errors import EngineDead
from service.engine.interface import Engine, EngineState, EngineStats, ModelInfo
from service.engine.request import EngineEvent, EngineRequest, RequestResult


class ForwardingEngine:
    """An `Engine` in front of another.

    Args:
        engine: Does the work.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def start(self) -> None:
        """As `Engine.start`."""
        await self._engine.start()

    async def stop(self, grace_seconds: float) -> None:
        """As `Engine.stop`."""
        await self._engine.stop(grace_seconds)

    async def submit(self, request: EngineRequest) -> RequestResult:
        """As `Engine.submit`."""
        return await self._engine.submit(request)

    def stream(self, request: EngineRequest) -> AsyncGenerator[EngineEvent, None]:
        """As `Engine.stream`."""
        return self._engine.stream(request)

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
