"""The engine as the event loop sees it: `Engine` over an `EngineCore` in a thread.

A request lives in `submit` or `stream`; there, and only there, it is ended when its caller goes away.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass, field, replace

from service.aside import aside
from service.engine.core import Ended, EngineCore, Message, RequestMessage, Started, StepMessage
from service.engine.errors import DuplicateRequestId, EngineDead, EngineError, EngineStopping, RequestAborted
from service.engine.interface import EngineState, EngineStats, ModelInfo
from service.engine.limits import EngineLimits
from service.engine.request import EngineEvent, EngineRequest, RequestDoneEvent, RequestResult
from service.engine.step import ModelRunner
from service.engine.work import Work, current_work, open_works

_MANY_SEQUENCES = 100
"""More are checked in a thread."""

_REASONS = {
    EngineState.NEW: "the engine has not started",
    EngineState.STARTING: "the engine is loading its models",
    EngineState.STOPPING: "the engine is stopping",
    EngineState.STOPPED: "the engine has stopped",
}


@dataclass(slots=True)
class _Handle:
    """A request that somebody waits for."""

    request_id: str
    ticket: int
    inbox: asyncio.Queue[EngineEvent | EngineError] = field(default_factory=asyncio.Queue)


class AsyncEngine:
    """An `Engine` whose models run in a thread of this process.

    Args:
        make_runner: Loads the models and returns what runs them. Called in the engine's thread, by `start`.
        limits: How much is taken on.
        on_step: Called in the event loop after each step, for metrics.
    """

    def __init__(
        self,
        make_runner: Callable[[], ModelRunner],
        limits: EngineLimits,
        on_step: Callable[[StepMessage], None] | None = None,
    ) -> None:
        self._core = EngineCore(make_runner, limits, self._deliver)
        self._on_step = on_step
        self._state = EngineState.NEW
        self._models: tuple[ModelInfo, ...] = ()
        self._death: EngineDead | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._start_ended = asyncio.Event()
        self._closed = asyncio.Event()
        self._tickets = itertools.count()
        self._handles: dict[int, _Handle] = {}
        self._tickets_by_id: dict[str, int] = {}
        self._begun: set[Work] = set()
        self._work_ended = asyncio.Event()

    @property
    def state(self) -> EngineState:
        """Where in its life the engine is."""
        return self._state

    @property
    def is_ready(self) -> bool:
        """Whether requests are taken now."""
        return self._state is EngineState.READY

    @property
    def not_ready_reason(self) -> str | None:
        """Why not; None when ready."""
        if self._death is not None:
            return str(self._death)
        return _REASONS.get(self._state)

    def models(self) -> tuple[ModelInfo, ...]:
        """The loaded models; empty before `start` has returned."""
        return self._models

    def stats(self) -> EngineStats:
        """A snapshot of the last step, but for what waits: requests that came meanwhile count."""
        return replace(self._core.stats, promised_tokens=self._core.promised_tokens)

    async def start(self) -> None:
        """Loads and warms up in the engine's thread; see `Engine.start`.

        Raises:
            EngineDead: The models could not be loaded or run.
            EngineStopping: `stop` was called meanwhile.
            RuntimeError: Called a second time.
        """
        if self._state is not EngineState.NEW:
            raise RuntimeError(f"an engine starts once; this one is {self._state.value}")
        self._loop = asyncio.get_running_loop()
        self._state = EngineState.STARTING
        self._core.start()
        try:
            await self._start_ended.wait()
        except asyncio.CancelledError:
            await self.stop(0)
            raise
        if self._death is not None:
            self._core.join()
            raise EngineDead(self._death.reason) from self._death.__cause__
        if not self.is_ready:
            raise EngineStopping(_REASONS[self._state])

    async def stop(self, grace_seconds: float) -> None:
        """Ends the engine; see `Engine.stop`. During `start` it waits for the models to be loaded."""
        if self._state is EngineState.NEW:
            self._state = EngineState.STOPPED
            self._closed.set()
            return
        if self._state in (EngineState.STARTING, EngineState.READY):
            if self._state is EngineState.READY:
                for work in open_works() - self._begun:
                    self._begin(work)
            self._state = EngineState.STOPPING
        stop_at = time.monotonic() + grace_seconds
        await self._finish_work(grace_seconds)
        self._core.stop(stop_at)
        await self._closed.wait()
        self._core.join()

    async def _finish_work(self, grace_seconds: float) -> None:
        """Returns when what has begun has ended, also if all of it is between two submissions now."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                while self._begun and not self._closed.is_set():
                    self._work_ended.clear()
                    await self._work_ended.wait()

    async def wait_closed(self) -> EngineDead | None:
        """Returns when the engine no longer runs: None after `stop`, the error if it died."""
        await self._closed.wait()
        return self._death

    async def submit(self, request: EngineRequest) -> RequestResult:
        """Translates all sequences of a request; see `Engine.submit`."""
        await self._check(request)
        handle = self._open(request, wants_events=False)
        try:
            while True:
                event = await self._next(handle)
                if isinstance(event, RequestDoneEvent):
                    return event.result
        finally:
            self._close(handle)

    async def stream(self, request: EngineRequest) -> AsyncGenerator[EngineEvent, None]:
        """As `submit`, event by event; see `Engine.stream`."""
        await self._check(request)
        handle = self._open(request, wants_events=True)
        try:
            while True:
                event = await self._next(handle)
                yield event
                if isinstance(event, RequestDoneEvent):
                    return
        finally:
            self._close(handle)

    def abort(self, request_id: str) -> None:
        """Ends a request; see `Engine.abort`."""
        ticket = self._tickets_by_id.get(request_id)
        if ticket is not None:
            self._core.abort(request_id)
            self._end(ticket, RequestAborted(request_id))

    # --- a request's life ------------------------------------------------------------------------------------------

    async def _check(self, request: EngineRequest) -> None:
        """Refuses what is wrong in itself."""
        if self._state in (EngineState.READY, EngineState.STOPPING):  # otherwise the state is what to tell of
            await aside(self._core.check, len(request.sequences) / _MANY_SEQUENCES, request)

    def _open(self, request: EngineRequest, *, wants_events: bool) -> _Handle:
        if self._death is not None:
            raise EngineDead(self._death.reason) from self._death.__cause__
        work = current_work.get()
        is_begun = work in self._begun
        if self._state is not EngineState.READY and not (is_begun and self._state is EngineState.STOPPING):
            raise EngineStopping(_REASONS[self._state])
        if request.request_id in self._tickets_by_id:
            raise DuplicateRequestId(request.request_id)
        handle = _Handle(request.request_id, next(self._tickets))
        self._core.submit(request, handle.ticket, wants_events, is_begun=is_begun)
        if work is not None and work.is_open and not is_begun:
            self._begin(work)
        self._handles[handle.ticket] = handle
        self._tickets_by_id[handle.request_id] = handle.ticket
        return handle

    def _begin(self, work: Work) -> None:
        work.has_begun = True
        self._begun.add(work)
        work.when_ended(self._forget)

    def _forget(self, work: Work) -> None:
        self._begun.discard(work)
        if not self._begun:
            self._work_ended.set()

    async def _next(self, handle: _Handle) -> EngineEvent:
        event = await handle.inbox.get()
        if isinstance(event, EngineError):
            raise event
        return event

    def _close(self, handle: _Handle) -> None:
        """Whoever waited for the request has left; if it has not ended, it is ended now."""
        if self._handles.pop(handle.ticket, None) is not None:
            del self._tickets_by_id[handle.request_id]
            self._core.abort(handle.request_id)

    def _end(self, ticket: int, last: EngineEvent | EngineError) -> None:
        """Hands over the last event of a request, whose id is free from now on."""
        handle = self._handles.pop(ticket)
        del self._tickets_by_id[handle.request_id]
        handle.inbox.put_nowait(last)

    # --- what the core tells ---------------------------------------------------------------------------------------

    def _deliver(self, messages: Sequence[Message]) -> None:
        """Called in the engine's thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._dispatch, messages)

    def _dispatch(self, messages: Sequence[Message]) -> None:
        for message in messages:
            match message:
                case RequestMessage(ticket, event):
                    self._hand_over(ticket, event)
                case StepMessage():
                    if self._on_step is not None:
                        self._on_step(message)
                case Started(models):
                    self._models = models
                    if self._state is EngineState.STARTING:
                        self._state = EngineState.READY
                    self._start_ended.set()
                case Ended(error):
                    self._death = error
                    self._state = EngineState.STOPPED if error is None else EngineState.DEAD
                    self._start_ended.set()
                    self._closed.set()
                    self._work_ended.set()

    def _hand_over(self, ticket: int, event: EngineEvent | EngineError) -> None:
        handle = self._handles.get(ticket)
        if handle is None:
            return  # Aborted while this was on its way.
        if isinstance(event, EngineError | RequestDoneEvent):
            self._end(ticket, event)
        else:
            handle.inbox.put_nowait(event)
