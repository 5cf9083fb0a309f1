"""Stand-ins for parts that tests of other parts do not want to run."""

import asyncio
from dataclasses import dataclass, field

from model.decoding import Hypothesis
from service.engine.errors import (
    EngineDead,
    EngineError,
    EngineStopping,
    RequestAborted,
    UnknownModel,
)
from service.engine.interface import EngineState, EngineStats, ModelInfo
from service.engine.request import (
    EngineRequest,
    RequestDoneEvent,
    RequestResult,
    SequenceDoneEvent,
    SequenceResult,
    SequenceTimings,
    TokensEvent,
)

FAKE_MODEL = ModelInfo(
    name="en-fr",
    source_language="en",
    target_language="fr",
    revision="fake",
    precision="float32",
    source_vocab_size=8000,
    target_vocab_size=8000,
    eos_id=3,
    max_source_tokens=512,
    max_target_tokens=512,
    cache_bytes_per_token=1024,
)


@dataclass
class FakeEngine:
    """An `Engine` without a model: each source comes back as its own translation, in as many copies as asked for.

    Set `error` to have the next requests fail with it, `failures` to have sequences (by their source ids) fail alone,
    `hold` to an unset `asyncio.Event` to keep requests running until it is set. `requests` and `aborted` tell what
    was asked; `translate` may be replaced by a function from source ids to target ids (both ended by eos).
    """

    model_infos: tuple[ModelInfo, ...] = (FAKE_MODEL,)
    error: EngineError | None = None
    failures: dict[tuple[int, ...], str] = field(default_factory=dict)
    hold: asyncio.Event | None = None
    requests: list[EngineRequest] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    state: EngineState = EngineState.NEW
    reason: str | None = "the engine has not started"
    current_stats: EngineStats = EngineStats(max_rows=64, max_waiting_tokens=65_536, kv_cache_total_bytes=1 << 29)
    stopped_with_grace_seconds: float | None = None
    _running: dict[str, asyncio.Future] = field(default_factory=dict)
    _closed: asyncio.Event = field(default_factory=asyncio.Event)
    _death: EngineDead | None = None

    @staticmethod
    def translate(source_ids):
        return source_ids

    async def start(self):
        self.state, self.reason = EngineState.READY, None

    async def stop(self, grace_seconds):
        self.stopped_with_grace_seconds = grace_seconds
        self.state, self.reason = EngineState.STOPPED, "the engine has stopped"
        self._fail_all(EngineStopping())
        self._closed.set()

    def die(self, reason="a fault made for the test"):
        """What a real engine does when its own machinery breaks."""
        self._death = EngineDead(reason)
        self.state, self.reason = EngineState.DEAD, str(self._death)
        self._fail_all(self._death)
        self._closed.set()

    async def submit(self, request):
        async for event in self.stream(request):
            if isinstance(event, RequestDoneEvent):
                return event.result
        raise AssertionError("a stream ended without its last event")

    async def stream(self, request):
        self.requests.append(request)
        if self._death is not None:
            raise self._death
        if self.state is not EngineState.READY:
            raise EngineStopping(self.reason)
        if self.error is not None:
            raise self.error
        if request.model not in {info.name for info in self.model_infos}:
            raise UnknownModel(request.model, [info.name for info in self.model_infos])
        try:
            await self._wait(request)
        except asyncio.CancelledError:
            self.aborted.append(request.request_id)
            raise
        results = []
        for index, sequence in enumerate(request.sequences):
            result = self._result(sequence)
            results.append(result)
            if result.failure is None and sequence.options.beam_size == 1:
                for token in result.hypotheses[0].tokens_without_eos:
                    yield TokensEvent(index, (token,))
            yield SequenceDoneEvent(index, result)
        yield RequestDoneEvent(RequestResult(request.request_id, tuple(results)))

    def abort(self, request_id):
        self.aborted.append(request_id)
        future = self._running.get(request_id)
        if future is not None and not future.done():
            future.set_exception(RequestAborted(request_id))

    @property
    def is_ready(self):
        return self.state is EngineState.READY

    @property
    def not_ready_reason(self):
        return self.reason

    def models(self):
        return self.model_infos if self.state is not EngineState.NEW else ()

    def stats(self):
        return self.current_stats

    async def wait_closed(self):
        await self._closed.wait()
        return self._death

    async def _wait(self, request):
        """Returns when the request may go on; raises what ended it."""
        if self.hold is None:
            return
        ended = asyncio.get_running_loop().create_future()
        self._running[request.request_id] = ended
        held = asyncio.ensure_future(self.hold.wait())
        try:
            await asyncio.wait({held, ended}, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                ended.result()
        finally:
            held.cancel()
            del self._running[request.request_id]

    def _fail_all(self, error):
        for future in self._running.values():
            if not future.done():
                future.set_exception(error)

    def _result(self, sequence):
        timings = SequenceTimings(0.001, 0.002, 0.003)
        failure = self.failures.get(sequence.source_ids)
        if failure is not None:
            return SequenceResult((), "failed", timings, len(sequence.source_ids), 0, failure)
        tokens = tuple(self.translate(sequence.source_ids))
        log_probs = (-0.5,) * len(tokens)
        hypotheses = tuple(
            Hypothesis(tokens, "stop", log_probs, sum(log_probs), -0.5 - rank)
            for rank in range(sequence.options.num_hypotheses)
        )
        return SequenceResult(hypotheses, "stop", timings, len(sequence.source_ids), len(tokens))
