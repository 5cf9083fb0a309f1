"""What the rest of the server knows of an engine.

The engine lives as long as the app: `start` before the first request, `stop` after the last. Between them any number
of tasks of one event loop call `submit`, `stream` and `abort`. Nothing here blocks the loop, and nothing here names
torch or threads, so that an engine may as well live in another process.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

from service.engine.errors import EngineDead
from service.engine.request import EngineEvent, EngineRequest, RequestResult

SHARE_TOKENS = 256
"""About ten sentences: of what is larger, so much is promised to be started in time (`service/engine/speed.py`)."""


class EngineState(Enum):
    """Where in its life an engine is. Only READY takes requests."""

    NEW = "new"
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A loaded model, as far as a caller has to know it.

    Attributes:
        name: What `EngineRequest.model` says.
        source_language: Code of the language it reads.
        target_language: Code of the language it writes.
        revision: Changes whenever the weights or the tokenizer do.
        precision: Number format of its matrices, "int8" or the name of a float type.
        source_vocab_size: Source ids are below it.
        target_vocab_size: Target ids are below it.
        eos_id: Ends every source.
        max_source_tokens: Longest source it takes, end of sentence included.
        max_target_tokens: Longest target it writes, end of sentence included.
        cache_bytes_per_token: Keys and values that one source or target position of one row takes.
        cache_page_tokens: Positions that a row takes at a time, in a cache of pages; the source's are then held once
            for all rows of a sequence. 0 = a cache of padded rectangles, which can take more than is reserved.
        target_languages: All that it writes, if these are several: which one is said by a tag in the source.
        advised_decoding: Decoding options that its makers advise, for requests that do not say.
    """

    name: str
    source_language: str
    target_language: str
    revision: str
    precision: str
    source_vocab_size: int
    target_vocab_size: int
    eos_id: int
    max_source_tokens: int
    max_target_tokens: int
    cache_bytes_per_token: int
    cache_page_tokens: int = 0
    target_languages: tuple[str, ...] = ()
    advised_decoding: Mapping[str, Any] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Plain numbers of one moment. Names that end in `_total` only grow.

    Attributes:
        running_requests: Requests of which a sequence is running.
        waiting_requests: Requests of which no sequence has been started.
        running_sequences: Sequences being decoded.
        waiting_sequences: Sequences not started.
        waiting_tokens: Source tokens of those.
        max_waiting_tokens: The most that may wait.
        batch_rows: Rows of the last step.
        reserved_rows: Rows that running sequences hold or may yet grow to.
        max_rows: Rows there are.
        kv_cache_used_bytes: Cache that running sequences hold or may yet need.
        kv_cache_total_bytes: Cache there is.
        steps_total: Steps done.
        source_tokens_total: Source tokens encoded.
        target_tokens_total: Tokens decoded, over all rows.
        encode_seconds_total: Time spent in encoders.
        decode_seconds_total: Time spent in decode steps.
        promised_tokens: Of the tokens that wait, those that are promised to be started in time; of this very moment.
        source_tokens_per_second: Source tokens done a second of late, while more waited; 0 if not known.
        row_tokens_per_second: Likewise `SequenceRequest.row_tokens`, by a longer look; 0 before that.
        gpu_memory_used_bytes: Of the GPU that runs the models, by every process; 0 without one.
        gpu_memory_total_bytes: Of the same GPU.
    """

    running_requests: int = 0
    waiting_requests: int = 0
    running_sequences: int = 0
    waiting_sequences: int = 0
    waiting_tokens: int = 0
    max_waiting_tokens: int = 0
    batch_rows: int = 0
    reserved_rows: int = 0
    max_rows: int = 0
    kv_cache_used_bytes: int = 0
    kv_cache_total_bytes: int = 0
    steps_total: int = 0
    source_tokens_total: int = 0
    target_tokens_total: int = 0
    encode_seconds_total: float = 0.0
    decode_seconds_total: float = 0.0
    promised_tokens: int = 0
    source_tokens_per_second: float = 0.0
    row_tokens_per_second: float = 0.0
    gpu_memory_used_bytes: int = 0
    gpu_memory_total_bytes: int = 0


class Engine(Protocol):
    """Translates sequences of token ids."""

    async def start(self) -> None:
        """Loads and warms up. Called once, before anything else; afterwards `is_ready` is true.

        Raises:
            EngineDead: The models could not be loaded or run.
        """

    async def stop(self, grace_seconds: float) -> None:
        """Takes no more requests, lets those accepted run for up to `grace_seconds`, and ends the rest.

        Called once by the app's lifespan, and harmless when repeated or never started. What is ended gets
        `EngineStopping`. What belongs to a begun piece of work (`service/engine/work.py`) is still taken within the
        grace. Afterwards no thread of the engine is left.
        """

    async def submit(self, request: EngineRequest) -> RequestResult:
        """Translates all sequences of a request; if the caller is cancelled, the request is aborted.

        The caller looks at each sequence's `failure`, or calls `raise_if_failed`.

        Raises:
            RequestRejected: Nothing was queued; says what would have been taken.
            DeadlineExceeded: Time was up.
            RequestAborted: `abort` was called.
            EngineStopping: The engine takes no requests, or was stopped meanwhile.
            EngineDead: The engine cannot go on.
        """

    def stream(self, request: EngineRequest) -> AsyncGenerator[EngineEvent, None]:
        """As `submit`, event by event: tokens as they come, each sequence's end, at last `RequestDoneEvent`.

        The request is submitted when the first event is asked for; refusals are raised there. A caller that stops early
        closes the generator (`contextlib.aclosing`), which aborts the request.
        """

    def abort(self, request_id: str) -> None:
        """Ends a request: its rows are free within one step, its unstarted rest is dropped.

        Whoever waits for it gets `RequestAborted`. An id that is not known, or has ended, is no error.
        """

    @property
    def state(self) -> EngineState:
        """Where in its life the engine is."""

    @property
    def is_ready(self) -> bool:
        """Whether requests are taken now."""

    @property
    def not_ready_reason(self) -> str | None:
        """Why not, in words for an operator; None when ready."""

    def models(self) -> tuple[ModelInfo, ...]:
        """The loaded models; empty before `start` has returned."""

    def stats(self) -> EngineStats:
        """A snapshot. Never waits for a step."""

    async def wait_closed(self) -> EngineDead | None:
        """Returns when the engine no longer runs: None after `stop`, the error if it died.

        The app waits here to end the process when the engine dies.
        """
