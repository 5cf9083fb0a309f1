"""The engine's loop: a thread that runs the models, or some, between a queue of commands and a stream of messages.

`submit`, `abort` and `stop` may be called from any thread, and return at once. Everything else happens in the loop:

    take commands -> end what has expired -> schedule -> run one step, or more -> tell what came of it

Where nobody wants to hear of single tokens, steps follow one another without a return to this loop, until a sequence
ends or a command comes.

Where the runner has others beside it, each has a thread with such a loop, a *lane*: all take commands, admit sequences
and book results one at a time, under one lock, and run their steps at the same time. So one may encode while another
decodes, and none ever waits for another, as threads within one step do at its end.

With nothing to do a thread sleeps until a command comes, or another lane has left it something.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from service.engine.errors import (
    DeadlineExceeded,
    EngineDead,
    EngineError,
    EngineStopping,
    NotInTime,
    WaitTooLong,
    WorkTooLong,
)
from service.engine.interface import EngineStats, ModelInfo
from service.engine.limits import EngineLimits
from service.engine.request import (
    EngineEvent,
    EngineRequest,
    RequestDoneEvent,
    RequestResult,
    SequenceDoneEvent,
    SequenceResult,
    SequenceTimings,
    TokensEvent,
)
from service.engine.scheduler import Scheduler, first_part
from service.engine.speed import Speed, wait_seconds, work_seconds
from service.engine.step import ONE_STEP, ModelRunner, SchedulerOutput, SequenceUpdate, StepResult, Stride

logger = logging.getLogger(__name__)

THREAD_NAME = "gossamer-engine"

MAX_RETRY_AFTER_SECONDS = 60.0
"""What a refused client is told at most: a guess further ahead is worth nothing."""

_LANE_NICENESS = 4
"""Of several lanes, where the system knows it of single threads."""

MAX_STRIDE_STEPS = 64
MAX_STRIDE_SECONDS = 0.02
"""How late a deadline may be noticed."""

SPEED_MEMORY_TOKENS_PER_ROW = 64
"""The speed is that of the last few sentences of each row."""

WORK_MEMORY_TOKENS_PER_ROW = 256
"""That by which work is refused that cannot be done in time is looked at for longer."""

_STEPS_TOLD_SECONDS = 0.02
"""Steps with which no request ends, and sequences of requests that want no tokens, are told of together, this often:
each time the event loop is woken for it."""

_SECONDS_BETWEEN_LOOKS = 1.0
"""How often it is looked for work that has become hopeless."""

_NEVER = sys.maxsize
"""More tokens than are ever started."""


@dataclass(frozen=True, slots=True)
class Started:
    """The models are loaded and warm. The first message, unless the engine died of it."""

    models: tuple[ModelInfo, ...]


@dataclass(frozen=True, slots=True)
class Ended:
    """The last message; the thread ends after it.

    Attributes:
        error: What the engine died of; None after `stop`.
    """

    error: EngineDead | None


@dataclass(frozen=True, slots=True)
class RequestMessage:
    """Something about one request.

    Attributes:
        ticket: As given to `submit`.
        event: What happened. After an error, or `RequestDoneEvent`, nothing more comes with this ticket.
    """

    ticket: int
    event: EngineEvent | EngineError


@dataclass(frozen=True, slots=True)
class StepMessage:
    """A step was done, or several.

    Attributes:
        num_rows: Rows that were decoded, in all steps.
        encode_seconds: Time in encoders.
        decode_seconds: Time in decode steps.
        num_encoded_tokens: Source tokens that were encoded.
        num_padding_tokens: Padding that was encoded beside them.
        num_steps: Decode steps.
    """

    num_rows: int
    encode_seconds: float
    decode_seconds: float
    num_encoded_tokens: int = 0
    num_padding_tokens: int = 0
    num_steps: int = 1


Message = Started | Ended | RequestMessage | StepMessage


@dataclass(frozen=True, slots=True)
class _Submit:
    request: EngineRequest
    ticket: int
    wants_events: bool
    submitted_at: float
    within_tokens: int | None = None
    """As for `Scheduler.accept`."""

    @property
    def is_begun(self) -> bool:
        """Whether it goes on with what was accepted before."""
        return self.within_tokens is None


@dataclass(frozen=True, slots=True)
class _Abort:
    request_id: str


@dataclass(slots=True)
class _Tracked:
    """What the core remembers of a request."""

    command: _Submit
    results: dict[int, SequenceResult] = field(default_factory=dict)


@dataclass(slots=True)
class _Lane:
    """A runner, and its loop's own numbers."""

    number: int
    is_wanted: ctypes.c_int32 = field(default_factory=ctypes.c_int32)
    """Not 0 while there is something to do besides steps: those that are running then end early."""
    batch_rows: int = 0
    """Of its last step."""
    busy_since: float = math.nan
    """When its last step ended; NaN after a pause. What is between two steps is part of the speed, too."""
    num_changes_seen: int = -1
    """As `EngineCore._num_changes` was when this lane last found nothing to do for itself; -1 while it works."""


class EngineCore:
    """Runs the loop in a thread of its own, or in several.

    Args:
        make_runner: Loads the models. Called in the thread, once; runners beside it have threads of their own.
        limits: How much is taken on.
        deliver: Called in the thread with messages, in order. Must not block. A RuntimeError means that nobody
            listens any more (the event loop is closed): the engine then ends.
        clock: Monotonic seconds; what deadlines are compared with.
    """

    def __init__(
        self,
        make_runner: Callable[[], ModelRunner],
        limits: EngineLimits,
        deliver: Callable[[Sequence[Message]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_runner = make_runner
        self._limits = limits
        self._deliver = deliver
        self._clock = clock
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)

        self._wake = threading.Condition()
        """Guards all that follows, and the scheduler: it is held whenever a runner is not working."""
        self._commands: list[_Submit | _Abort] = []
        self._command_tokens = 0
        self._command_promised = 0
        self._stop_at = math.inf
        self._is_stopping = False
        self._is_closed = False
        self._death: EngineDead | None = None
        self._fault: BaseException | None = None
        """Of which a lane has ended."""
        self._lanes = [_Lane(0)]
        self._num_changes = 0
        """Grows whenever a lane may have more to do than before."""
        self._scheduler: Scheduler | None = None
        self._listening: set[str] = set()
        """Requests of which every token is told."""
        self._tracked: dict[str, _Tracked] = {}
        self._encoded: dict[int, tuple[float, float, float]] = {}
        """Running sequences: when their first step started, how long their encoding took from there, and when that
        step ended: with the first token, for a step decodes what it has encoded."""
        self._speed = Speed(SPEED_MEMORY_TOKENS_PER_ROW * limits.max_rows)
        self._work_speed = Speed(WORK_MEMORY_TOKENS_PER_ROW * limits.max_rows)
        """Row tokens (`SequenceRequest.row_tokens`) a second; half count at a sequence's start, half at its end."""
        self._looked_at = -math.inf
        self._has_listener = True
        self._untold: list[Message] = []
        """Steps that are told of with the next message."""
        self._told_at = -math.inf
        self.stats = EngineStats(
            max_rows=limits.max_rows,
            max_waiting_tokens=limits.max_waiting_tokens,
            kv_cache_total_bytes=limits.kv_cache_bytes,
        )
        """Replaced after each step, never changed."""

    # --- from any thread -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts the thread; `Started` or `Ended` follows."""
        self._thread.start()

    def check(self, request: EngineRequest) -> None:
        """Refuses what could not be served even by an idle engine; takes time linear in the number of sequences.

        Raises:
            RequestRejected: Says what would be taken.
            EngineStopping: Not started.
        """
        if self._scheduler is None:
            raise EngineStopping("the engine has not started")
        self._scheduler.check(request)

    def submit(self, request: EngineRequest, ticket: int, wants_events: bool, *, is_begun: bool = False) -> None:
        """Accepts a request that was checked, or refuses it at once, also in the midst of a step.

        Args:
            request: Its id must not be in use, but may be that of one that was aborted.
            ticket: Comes back with every message about it.
            wants_events: Whether to tell of tokens and sequences; otherwise only the end is told.
            is_begun: Whether it goes on with what was accepted before, and is not refused for want of room.

        Raises:
            RequestRejected: Nothing was queued; among others `QueueFull`, and `WaitTooLong`.
            EngineStopping: Not started, stopping or stopped.
            EngineDead: It died, though the message may still be on its way.
        """
        scheduler = self._scheduler
        if scheduler is None:
            raise EngineStopping("the engine has not started")
        num_tokens = request.num_source_tokens
        with self._wake:
            if self._death is not None:
                raise _death(self._death.__cause__ or self._death)
            if self._is_stopping or self._is_closed:
                raise EngineStopping
            # Tokens move from commands to scheduler under this lock, so that each counts once.
            within_tokens = None
            if not is_begun:
                scheduler.check_room(num_tokens, self._retry_after_seconds(scheduler), self._command_tokens)
                self._check_time(scheduler, request)
                within_tokens = self._promise(scheduler, first_part(request)[0])
            self._commands.append(_Submit(request, ticket, wants_events, self._clock(), within_tokens))
            self._command_tokens += num_tokens
            self._call()

    def _promise(self, scheduler: Scheduler, num_tokens: int) -> int:
        """What a request is promised whose first part has so many tokens; called with the lock held.

        Raises:
            WaitTooLong: It would wait longer than is allowed.
        """
        limits, speed = self._limits, self._speed.tokens_per_second
        ahead = scheduler.promised_tokens + self._command_promised
        wait = wait_seconds(ahead, num_tokens, speed)
        if wait > limits.max_wait_seconds:
            raise WaitTooLong(
                wait,
                limits.max_wait_seconds,
                scheduler.waiting_tokens + self._command_tokens,
                limits.max_waiting_tokens,
            )
        self._command_promised += num_tokens
        if not speed or limits.max_wait_seconds == math.inf:
            return _NEVER
        return max(ahead + num_tokens, int(speed * limits.max_wait_seconds))

    def _check_time(self, scheduler: Scheduler, request: EngineRequest) -> None:
        """Refuses what cannot be done until its deadline; called with the lock held.

        Others that take turns with it count as far as they have as much to do as it has.

        Raises:
            WorkTooLong: Not even alone.
            NotInTime: Not beside what waits.
        """
        speed = self._work_speed.settled
        if request.deadline is None or not speed:
            return
        left = request.deadline - self._clock()
        num_tokens = request.num_source_tokens
        alone = work_seconds(request.row_tokens, speed)
        if alone > left:
            raise _work_too_long(num_tokens, alone, left)
        waiting = scheduler.waiting_tokens + self._command_tokens
        turns = (scheduler.waiting_requests + len(self._commands)) * num_tokens
        needed = alone + min(waiting, turns) / (self._speed.tokens_per_second or math.inf)
        if needed > left:
            raise NotInTime(needed, left, waiting, self._limits.max_waiting_tokens)

    @property
    def promised_tokens(self) -> int:
        """Source tokens of first parts that wait at this moment."""
        # Without the lock: who asks this only guesses, and what is on its way from one to the other may count twice.
        return self._scheduler.promised_tokens + self._command_promised if self._scheduler else 0

    def abort(self, request_id: str) -> None:
        """Drops a request without a message. Its rows are free before the next step."""
        with self._wake:
            if not self._is_closed:
                self._commands.append(_Abort(request_id))
                self._call()

    def stop(self, stop_at: float) -> None:
        """Takes no more requests, and ends when all are done, or at `stop_at` by the clock. `Ended` follows."""
        with self._wake:
            self._is_stopping = True
            self._stop_at = min(self._stop_at, stop_at)
            self._call()
            self._change()

    def _call(self) -> None:
        """Has the threads look what there is to do; called with the lock held."""
        for lane in self._lanes:
            lane.is_wanted.value = 1
        self._num_changes += 1
        self._wake.notify()  # One is enough: it wakes the others if there is something for them.

    def _change(self) -> None:
        """Has the lanes that sleep look again; called with the lock held."""
        if len(self._lanes) > 1:
            self._num_changes += 1
            self._wake.notify_all()

    def join(self) -> None:
        """Waits for the thread, which is brief after `Ended`; those beside it have ended before."""
        if self._thread.is_alive():
            self._thread.join()

    # --- the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        error: EngineDead | None = None
        try:
            runner = self._make_runner()
            runner.warm_up()
            beside = runner.beside()
            scheduler = Scheduler(runner.models(), self._limits, 1 + len(beside), runner.useful_rows)
            self._lanes = [_Lane(number) for number in range(scheduler.num_lanes)]
            self._scheduler = scheduler
            self._tell([Started(runner.models())])
            threads = [
                threading.Thread(target=self._run_beside, args=(scheduler, *pair), name=THREAD_NAME, daemon=True)
                for pair in zip(beside, self._lanes[1:], strict=True)
            ]
            for thread in threads:
                thread.start()
            self._run_lane(scheduler, runner, self._lanes[0])
            for thread in threads:
                thread.join()
            if self._fault is not None:
                raise self._fault
            self._drop_all(scheduler)
        except BaseException as fault:  # Whatever it is, those who wait must hear of it.
            logger.exception("the engine died")
            error = _death(fault)
        self._close(error)

    def _run_beside(self, scheduler: Scheduler, runner: ModelRunner, lane: _Lane) -> None:
        try:
            self._run_lane(scheduler, runner, lane)
        except BaseException as fault:  # The first thread tells of it.
            with self._wake:
                self._fault = fault
                self._call()
                self._change()

    def _run_lane(self, scheduler: Scheduler, runner: ModelRunner, lane: _Lane) -> None:
        if len(self._lanes) > 1 and sys.platform == "linux":
            # As many threads as there are cores work without a pause: the event loop is to have one when it wants it.
            with contextlib.suppress(OSError):
                thread = threading.get_native_id()
                niceness = os.getpriority(os.PRIO_PROCESS, thread) + _LANE_NICENESS
                os.setpriority(os.PRIO_PROCESS, thread, niceness)
        while self._take_commands(scheduler, lane):
            self._iterate(scheduler, runner, lane)
        with self._wake:
            self._call()  # The others are to end, too.
            self._change()

    def _take_commands(self, scheduler: Scheduler, lane: _Lane | None = None) -> bool:
        """Waits until there is something to do, and carries out commands; False when it is time to end."""
        lane = lane or self._lanes[0]
        messages: list[Message] = []
        with self._wake:
            if scheduler.is_idle:
                scheduler.check_integrity()
                self._tell([])
                lane.busy_since = math.nan
                self.stats = self._snapshot(scheduler, StepResult(), 0)
            while not self._has_work(scheduler, lane) and not self._is_over(scheduler):
                self._wake.wait()
                lane.busy_since = math.nan
            lane.num_changes_seen = self._num_changes  # until it finds something
            commands, self._commands = self._commands, []
            self._command_tokens = self._command_promised = 0
            lane.is_wanted.value = 0
            for command in commands:
                if isinstance(command, _Abort):
                    scheduler.cancel(command.request_id)
                    self._tracked.pop(command.request_id, None)
                    self._listening.discard(command.request_id)
                    self._change()  # There are places.
                else:
                    messages += self._accept(scheduler, command)
            if messages:
                self._tell(messages)
            return not self._is_over(scheduler)

    def _has_work(self, scheduler: Scheduler, lane: _Lane) -> bool:
        """Whether a lane may find something to do."""
        may_admit = scheduler.waiting_sequences > 0 and lane.num_changes_seen != self._num_changes
        return bool(self._commands) or scheduler.is_busy(lane.number) or may_admit

    def _is_over(self, scheduler: Scheduler) -> bool:
        """Whether it is time for the threads to end."""
        is_stopped = self._is_stopping and (
            (scheduler.is_idle and not self._commands) or self._clock() >= self._stop_at
        )
        return is_stopped or not self._has_listener or self._fault is not None or self._is_closed

    def _accept(self, scheduler: Scheduler, command: _Submit) -> list[Message]:
        try:
            scheduler.accept(command.request, command.within_tokens, is_begun=command.is_begun)
        except EngineError as error:  # Only of an id in use: the rest was looked at before.
            return [RequestMessage(command.ticket, error)]
        self._tracked[command.request.request_id] = _Tracked(command)
        if command.wants_events and command.request.tells_tokens:
            self._listening.add(command.request.request_id)
        return []

    def _iterate(self, scheduler: Scheduler, runner: ModelRunner, lane: _Lane | None = None) -> None:
        lane = lane or self._lanes[0]
        with self._wake:
            self._expire(scheduler)
            self._end_hopeless(scheduler)
            output = scheduler.schedule(lane.number)
            if not scheduler.is_busy(lane.number) and not output.departed:
                return  # All that waited has expired, or is for another lane, or for a place.
            num_started = sum(len(one.source_ids) for group in output.groups for one in group.newcomers)
            started_at = self._clock()
            if output.groups and scheduler.waiting_sequences:
                self._change()  # Another lane may be the next to take some.
            output = replace(output, stride=self._stride(output, lane))
        result = runner.execute(output)
        with self._wake:
            if not self._is_closed:
                self._book(scheduler, output, result, lane, started_at, num_started)

    def _book(
        self,
        scheduler: Scheduler,
        output: SchedulerOutput,
        result: StepResult,
        lane: _Lane,
        started_at: float,
        num_started: int,
    ) -> None:
        """Books what a step did that took up so many source tokens, and tells of it."""
        lane.num_changes_seen = -1
        messages, is_urgent, num_ended_tokens, ended_row_tokens = self._finish(scheduler, output, result, started_at)
        ended_at = self._clock()
        if output.some_wait:
            seconds = ended_at - (started_at if math.isnan(lane.busy_since) else lane.busy_since)
            seconds /= len(self._lanes)
            self._speed.note(num_ended_tokens, seconds)
            self._work_speed.note((output.num_row_tokens + ended_row_tokens) / 2, seconds)
        lane.busy_since = ended_at
        lane.batch_rows = result.num_rows // result.num_steps
        self.stats = self._snapshot(scheduler, result, num_started)
        if num_ended_tokens:
            self._change()  # There are places that another lane may wait for; or nothing is left to wait for.
        num_encoded, num_padding = output.num_encoded_tokens
        messages.append(
            StepMessage(
                result.num_rows, result.total_encode_seconds, result.decode_seconds, num_encoded, num_padding,
                result.num_steps,
            )
        )  # fmt: skip
        if not is_urgent and ended_at - self._told_at < _STEPS_TOLD_SECONDS:
            self._untold += messages
        else:
            self._told_at = ended_at
            self._tell(messages)

    def _stride(self, output: SchedulerOutput, lane: _Lane) -> Stride:
        """How far the steps may go before this loop has something to do."""
        # Others may wait for a place, which is free when a sequence ends.
        if self._listening or output.is_encoder_full:
            return ONE_STEP if self._listening else Stride(tells_tokens=False)
        return Stride(MAX_STRIDE_STEPS, MAX_STRIDE_SECONDS, lane.is_wanted, tells_tokens=False)

    def _expire(self, scheduler: Scheduler) -> None:
        messages: list[Message] = []
        for request_id in scheduler.expired(self._clock()):
            scheduler.cancel(request_id)
            tracked = self._tracked.pop(request_id)
            self._listening.discard(request_id)
            late = DeadlineExceeded(request_id, retry_after_seconds=self._retry_after_seconds(scheduler))
            messages.append(RequestMessage(tracked.command.ticket, late))
        if messages:
            self._tell(messages)
            self._change()

    def _end_hopeless(self, scheduler: Scheduler) -> None:
        """Ends what will not be done until its deadline even if nothing else is done from now on.

        Such work is refused when it comes, but by a speed that is not known at first, and may change. A stream goes on:
        what it has told is worth something.
        """
        now, speed = self._clock(), self._work_speed.settled
        if not speed or not scheduler.waiting_sequences or now - self._looked_at < _SECONDS_BETWEEN_LOOKS:
            return
        self._looked_at = now
        messages: list[Message] = []
        for request_id, waiting in scheduler.waiting_with_deadline():
            command = self._tracked[request_id].command
            request = command.request
            left = (request.deadline or math.inf) - now
            row_tokens = sum(request.sequences[index].row_tokens for index in waiting)
            if request_id in self._listening or row_tokens / speed < left:
                continue
            whole, allowed = work_seconds(request.row_tokens, speed), left + now - command.submitted_at
            error: EngineError = DeadlineExceeded(request_id, left, self._retry_after_seconds(scheduler))
            if whole > allowed and not command.is_begun:
                error = _work_too_long(request.num_source_tokens, whole, allowed)
            scheduler.cancel(request_id)
            del self._tracked[request_id]
            messages.append(RequestMessage(command.ticket, error))
        if messages:
            self._tell(messages)
            self._change()

    def _finish(
        self, scheduler: Scheduler, output: SchedulerOutput, result: StepResult, started_at: float
    ) -> tuple[list[Message], bool, int, int]:
        """Books what a step did: messages of it, whether they are urgent, source and row tokens of what ended."""
        for sequence_id in output.departed:
            self._encoded.pop(sequence_id, None)
        later_steps = result.decode_seconds * (1 - 1 / result.num_steps)
        first_at = max(started_at, self._clock() - later_steps)
        for sequence_id, encode_seconds in result.encode_seconds.items():
            self._encoded[sequence_id] = started_at, encode_seconds, first_at
        messages: list[Message] = []
        is_urgent = False
        num_ended_tokens = ended_row_tokens = 0
        for update in result.updates:
            owner = scheduler.owner(update.sequence_id)
            if owner is None:
                assert len(self._lanes) > 1, f"the runner tells of sequence {update.sequence_id}, which does not run"
                continue  # Another lane has ended its request meanwhile.
            request_id, index = owner
            tracked = self._tracked[request_id]
            events = self._events(tracked, index, update)
            if update.is_final:
                scheduler.finish(update.sequence_id)
                sequence = tracked.command.request.sequences[index]
                num_ended_tokens += len(sequence.source_ids)
                ended_row_tokens += sequence.row_tokens
            if len(tracked.results) == len(tracked.command.request.sequences):
                del self._tracked[request_id]
                self._listening.discard(request_id)
            messages += [RequestMessage(tracked.command.ticket, event) for event in events]
            # Who wants no tokens can wait for the end of a sequence, too, while others of the request go on.
            can_wait = not tracked.command.request.tells_tokens
            is_urgent |= not all(can_wait and isinstance(event, SequenceDoneEvent) for event in events)
        return messages, is_urgent, num_ended_tokens, ended_row_tokens

    def _events(self, tracked: _Tracked, index: int, update: SequenceUpdate) -> list[EngineEvent]:
        """What the submitter of a request is told of an update to one of its sequences."""
        events: list[EngineEvent] = []
        request, wants_events = tracked.command.request, tracked.command.wants_events
        if update.new_token_ids and wants_events and request.tells_tokens:
            events.append(TokensEvent(index, update.new_token_ids))
        if update.is_final:
            sequence_result = self._sequence_result(tracked.command, index, update)
            tracked.results[index] = sequence_result
            if wants_events:
                events.append(SequenceDoneEvent(index, sequence_result))
            if len(tracked.results) == len(request.sequences):
                results = tuple(tracked.results[i] for i in range(len(request.sequences)))
                events.append(RequestDoneEvent(RequestResult(request.request_id, results)))
        return events

    def _sequence_result(self, command: _Submit, index: int, update: SequenceUpdate) -> SequenceResult:
        started_at, encode_seconds, first_token_at = self._encoded.pop(update.sequence_id)
        timings = SequenceTimings(
            queue_seconds=started_at - command.submitted_at,
            encode_seconds=encode_seconds,
            decode_seconds=max(0.0, self._clock() - started_at - encode_seconds),
            first_token_seconds=first_token_at - command.submitted_at,
        )
        best = update.hypotheses[0] if update.hypotheses else None
        return SequenceResult(
            hypotheses=update.hypotheses,
            finish_reason="failed" if best is None else best.finish_reason,
            timings=timings,
            num_source_tokens=len(command.request.sequences[index].source_ids),
            num_target_tokens=0 if best is None else len(best.tokens),
            failure=update.failure,
        )

    def _drop_all(self, scheduler: Scheduler) -> None:
        """Frees whatever is held when the engine is stopped before all is done; `_close` tells of it."""
        for request_id in scheduler.request_ids:
            scheduler.cancel(request_id)
        for lane in self._lanes:
            scheduler.schedule(lane.number)  # Takes the list of the departed: no runner is left to be told.
        self._encoded.clear()
        scheduler.check_integrity()
        self.stats = self._snapshot(scheduler, StepResult(), 0)

    def _close(self, error: EngineDead | None) -> None:
        """Ends all that still waits, and tells that the engine has ended."""
        with self._wake:
            self._is_closed = True
            self._death = error
            self._call()
            self._change()
            commands, self._commands = self._commands, []
        unfinished = [tracked.command for tracked in self._tracked.values()]
        unfinished += [command for command in commands if isinstance(command, _Submit)]
        self._tracked.clear()
        self._listening.clear()
        if error is not None:
            self.stats = _nothing_held(self.stats)
        messages: list[Message] = [
            RequestMessage(command.ticket, EngineStopping() if error is None else _death(error.__cause__ or error))
            for command in unfinished
        ]
        self._tell([*messages, Ended(error)])

    def _tell(self, messages: Sequence[Message]) -> None:
        messages, self._untold = [*self._untold, *messages], []
        if not messages or not self._has_listener:
            return
        try:
            self._deliver(messages)
        except RuntimeError:
            self._has_listener = False
            logger.warning("the event loop was closed before the engine was stopped; the engine ends")

    def _retry_after_seconds(self, scheduler: Scheduler) -> float:
        """When half of what waits now will have been started, at the speed of late."""
        speed = self._speed.tokens_per_second
        if not speed:
            return 1.0
        seconds = scheduler.waiting_tokens / 2 / speed
        return min(max(1.0, float(math.ceil(seconds))), MAX_RETRY_AFTER_SECONDS)

    def _snapshot(self, scheduler: Scheduler, result: StepResult, num_source_tokens: int) -> EngineStats:
        before, slots = self.stats, scheduler.slots
        running_requests = scheduler.running_requests
        return EngineStats(
            running_requests=running_requests,
            waiting_requests=len(scheduler.request_ids) - running_requests,
            running_sequences=scheduler.running_sequences,
            waiting_sequences=scheduler.waiting_sequences,
            waiting_tokens=scheduler.waiting_tokens,
            max_waiting_tokens=before.max_waiting_tokens,
            batch_rows=sum(lane.batch_rows for lane in self._lanes if scheduler.is_busy(lane.number)),
            reserved_rows=slots.used_rows,
            max_rows=slots.max_rows,
            kv_cache_used_bytes=slots.used_cache_bytes,
            kv_cache_total_bytes=slots.max_cache_bytes,
            steps_total=before.steps_total + (result.num_steps if result.num_rows else 0),
            source_tokens_total=before.source_tokens_total + num_source_tokens,
            target_tokens_total=before.target_tokens_total + result.num_rows,
            encode_seconds_total=before.encode_seconds_total + result.total_encode_seconds,
            decode_seconds_total=before.decode_seconds_total + result.decode_seconds,
            promised_tokens=scheduler.promised_tokens,
            source_tokens_per_second=self._speed.tokens_per_second,
            row_tokens_per_second=self._work_speed.settled,
            gpu_memory_used_bytes=result.gpu_memory_used_bytes or before.gpu_memory_used_bytes,
            gpu_memory_total_bytes=result.gpu_memory_total_bytes or before.gpu_memory_total_bytes,
        )


def _work_too_long(num_tokens: int, needed_seconds: float, left_seconds: float) -> WorkTooLong:
    return WorkTooLong(num_tokens, int(num_tokens * left_seconds / needed_seconds), needed_seconds, left_seconds)


def _nothing_held(stats: EngineStats) -> EngineStats:
    """What remains of the last snapshot when the batch is gone with its thread."""
    return replace(
        stats,
        running_requests=0,
        waiting_requests=0,
        running_sequences=0,
        waiting_sequences=0,
        waiting_tokens=0,
        promised_tokens=0,
        batch_rows=0,
        reserved_rows=0,
        kv_cache_used_bytes=0,
    )


def _death(fault: BaseException) -> EngineDead:
    """An error of its own for everyone who waits: one that is raised in two places mixes up their tracebacks."""
    error = EngineDead(f"{type(fault).__name__}: {fault}")
    error.__cause__ = fault
    return error
