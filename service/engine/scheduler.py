"""Which sequence runs when. Integers, deques and dictionaries: no torch, no thread, no clock of its own.

The core calls, in this order, again and again:

    scheduler.submit(request)            # any number of times, whenever requests come; or `check`, later `accept`
    scheduler.cancel(request_id)         # likewise: aborted, expired (`expired` says which) or failed as a whole
    output = scheduler.schedule()        # what the runner does next, or one of several: schedule(lane)
    ...                                  # the runner does it, and says which sequences ended
    scheduler.finish(sequence_id)        # for each of them

Rules:
- Requests take turns: each gives one sequence, then goes to the end of the line, so an array of a thousand sentences
  delays a single one that comes later by one sentence, not by a thousand.
- Nobody overtakes the head of the line, but short ones where only the encoder's budget for this step has no room for a
  long one, which is first in the next. While its sequence does not fit, nothing is let in; what runs comes to an end,
  and as no sequence is accepted that does not fit alone, big ones never starve.
- Where several runners work side by side, each has a lane, and rows and cache are shared by all. A lane takes the head
  of the line while none of the others has fewer rows, or up to its share of all that runs and waits, so that all have
  as much to do, and a long list has them all at work at once; and no more rows than are of use to its runner. More
  would only make each step longer: what waits would end no sooner, and what runs later. Of a request of which some
  runs several are taken at a time, for they are encoded together.
- What counts is what a sequence may need at most: rows, and cache bytes of its source and its longest target.
- A request may be promised to be started before so many more tokens are: its *promised part*, that is all of it, or
  the first sequences of a long one. Turns go on as long as they can without a promise being broken; then the oldest
  go first. Whoever makes promises looks that no more is promised than can be kept: a request that comes keeps its own
  if it is for no less than `promised_tokens` and its own part. Whatever comes after it cannot change that.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from service.engine.errors import (
    DuplicateRequestId,
    InvalidOptions,
    QueueFull,
    RequestTooLarge,
    SequenceTooLarge,
    SourceTooLong,
    UnknownModel,
)
from service.engine.interface import SHARE_TOKENS, ModelInfo
from service.engine.limits import EngineLimits
from service.engine.request import EngineRequest, SequenceRequest
from service.engine.slots import Reservation, Slots
from service.engine.step import EncodeGroup, Newcomer, SchedulerOutput

_TOGETHER = 4
"""Sources of a request that is being worked on, encoded in one go: alone each takes a fourth longer."""
_MOST_PASSED_OVER = 16
"""Requests looked past in one step for one that is short enough."""


@dataclass(slots=True)
class _Request:
    """A request that has not ended."""

    request: EngineRequest
    serial: int
    """Tells it from a later request of the same id."""
    waiting: deque[int]
    """Sequences not started, by their index."""
    running: set[int] = field(default_factory=set)
    """Sequences started and not ended, by their id."""
    promised_tokens: int = 0
    """Source tokens of the promised part that are not started."""
    last_promised: int = -1
    """Index of the promised part's last sequence."""
    start_by: int = 0
    """What `started_tokens` may be at most before the promised part has been started."""


@dataclass(frozen=True, slots=True)
class _Owner:
    """Whose a running sequence is."""

    request_id: str
    index: int
    """In its request."""
    lane: int
    rows: int


class Scheduler:
    """Accepts requests and deals out rows and cache to their sequences.

    Args:
        models: The models there are.
        limits: How much is taken on.
        num_lanes: Runners that work side by side.
        useful_rows: See `ModelRunner`.
    """

    def __init__(
        self, models: Iterable[ModelInfo], limits: EngineLimits, num_lanes: int = 1, useful_rows: int | None = None
    ) -> None:
        self._models = {info.name: info for info in models}
        self._limits = limits
        self._slots = Slots(limits.max_rows, limits.kv_cache_bytes)
        self._requests: dict[str, _Request] = {}
        self._line: deque[str] = deque()
        """Requests with waiting sequences, the next one to be served first."""
        self._owners: dict[int, _Owner] = {}
        """Running sequences."""
        self._is_small = useful_rows is not None
        self._useful_rows = useful_rows or limits.max_rows
        self._rows = [0] * num_lanes
        """Rows that the sequences of each lane hold."""
        self._departed: list[list[int]] = [[] for _ in range(num_lanes)]
        """Of each lane, what its runner has to drop."""
        self._deadlines: list[tuple[float, int, str]] = []
        """A heap of deadline, serial and id of requests; those that ended before stay in it until then."""
        self._serials = itertools.count()
        self._sequence_ids = itertools.count()
        self._promised: dict[str, _Request] = {}
        """Requests of whose promised part some waits, the oldest first."""
        self.waiting_tokens = 0
        self.waiting_sequences = 0
        self.waiting_rows = 0
        self.promised_tokens = 0
        """Those of the promised parts that wait."""
        self.started_tokens = 0
        """Source tokens started, ever."""

    # --- what the core tells ---------------------------------------------------------------------------------------

    def check(self, request: EngineRequest) -> None:
        """Raises if `request` could not be served even by an idle engine. Reads nothing that changes.

        Raises:
            RequestRejected: Says what would be taken, with both numbers.
        """
        model = self._models.get(request.model)
        if model is None:
            raise UnknownModel(request.model, sorted(self._models))
        for index, sequence in enumerate(request.sequences):
            _check_ids(index, sequence, model)
            self._check_target(index, sequence, model)
            wanted = self._reservation(sequence, model)
            if wanted.rows > self._slots.max_rows:
                raise SequenceTooLarge(index, "rows", wanted.rows, self._slots.max_rows)
            if wanted.cache_bytes > self._slots.max_cache_bytes:
                raise SequenceTooLarge(index, "cache bytes", wanted.cache_bytes, self._slots.max_cache_bytes)
        if request.num_source_tokens > self._limits.max_waiting_tokens:
            raise RequestTooLarge(request.num_source_tokens, self._limits.max_waiting_tokens)

    def check_room(self, num_tokens: int, retry_after_seconds: float, num_tokens_ahead: int = 0) -> None:
        """Raises `QueueFull` if that many source tokens cannot wait beside those that do.

        Args:
            num_tokens: Of the request that wants to wait.
            retry_after_seconds: What to say if it cannot.
            num_tokens_ahead: Source tokens on their way here, which the scheduler does not know yet.
        """
        waiting = self.waiting_tokens + num_tokens_ahead
        if waiting + num_tokens > self._limits.max_waiting_tokens:
            raise QueueFull(waiting, self._limits.max_waiting_tokens, retry_after_seconds)

    def submit(self, request: EngineRequest, retry_after_seconds: float = 1.0) -> None:
        """Checks `request`, and puts all its sequences in line, or none.

        Args:
            request: What is to be translated.
            retry_after_seconds: As for `check_room`.

        Raises:
            RequestRejected: See `check` and `check_room`; or its id is in use.
        """
        self.check(request)
        self.check_room(request.num_source_tokens, retry_after_seconds)
        self.accept(request)

    def accept(self, request: EngineRequest, within_tokens: int | None = None, *, is_begun: bool = False) -> None:
        """Puts all sequences of `request` in line.

        Args:
            request: Was checked; and there is room, or it may wait all the same.
            within_tokens: Promises that the first part is started before so many source tokens are; None promises
                nothing.
            is_begun: It goes on with what has waited already, and is the next to have a turn.

        Raises:
            DuplicateRequestId: It is in use.
        """
        if request.request_id in self._requests:
            raise DuplicateRequestId(request.request_id)
        serial = next(self._serials)
        accepted = _Request(request, serial, deque(range(len(request.sequences))))
        self._requests[request.request_id] = accepted
        if is_begun:
            self._line.appendleft(request.request_id)
        else:
            self._line.append(request.request_id)
        if within_tokens is not None:
            accepted.promised_tokens, accepted.last_promised = first_part(request)
            accepted.start_by = self.started_tokens + within_tokens
            self.promised_tokens += accepted.promised_tokens
            self._promised[request.request_id] = accepted
        self.waiting_tokens += request.num_source_tokens
        self.waiting_sequences += len(request.sequences)
        self.waiting_rows += sum(sequence.options.beam_size for sequence in request.sequences)
        if request.deadline is not None:
            heapq.heappush(self._deadlines, (request.deadline, serial, request.request_id))

    def cancel(self, request_id: str) -> bool:
        """Ends a request: frees what it holds, forgets what it waits with. The runner hears of it in the next output.

        Returns:
            Whether there was such a request.
        """
        ended = self._requests.pop(request_id, None)
        if ended is None:
            return False
        if ended.waiting:
            self._line.remove(request_id)
            sequences = ended.request.sequences
            self.waiting_tokens -= sum(len(sequences[index].source_ids) for index in ended.waiting)
            self.waiting_sequences -= len(ended.waiting)
            self.waiting_rows -= sum(sequences[index].options.beam_size for index in ended.waiting)
            self._promised.pop(request_id, None)
            self.promised_tokens -= ended.promised_tokens
        for sequence_id in sorted(ended.running):
            lane = self._release(sequence_id).lane
            self._departed[lane].append(sequence_id)
        return True

    def expired(self, now: float) -> list[str]:
        """Requests whose deadline has passed, each told once; the core cancels them."""
        passed = []
        while self._deadlines and self._deadlines[0][0] <= now:
            _, serial, request_id = heapq.heappop(self._deadlines)
            request = self._requests.get(request_id)
            if request is not None and request.serial == serial:
                passed.append(request_id)
        return passed

    def schedule(self, lane: int = 0) -> SchedulerOutput:
        """Lets in as many waiting sequences as fit, and as the encoder may take up before the next decode step.

        Args:
            lane: The runner that does it.
        """
        admitted: dict[str, list[Newcomer]] = {}
        too_long: list[str] = []
        """Heads of the line that the encoder has no time for now; they are first next time."""
        pressed = self._pressed()
        num_tokens = num_passed_over = 0
        is_encoder_full = False
        share = min(
            -(-(sum(self._rows) + self.waiting_rows) // len(self._rows)), self._slots.max_rows // len(self._rows)
        )
        while num_passed_over < len(self._line) and self._rows[lane] < max(share, min(self._rows) + 1):
            while pressed and not pressed[0].promised_tokens:
                pressed.popleft()
            owner = pressed[0] if pressed else self._requests[self._line[0]]
            index = owner.waiting[0]
            sequence = owner.request.sequences[index]
            length = len(sequence.source_ids)
            if num_tokens and num_tokens + length > self._limits.max_encode_tokens_per_step:
                is_encoder_full = True
                if pressed or len(too_long) == _MOST_PASSED_OVER:
                    break
                too_long.append(self._line.popleft())
                continue
            model = self._models[owner.request.model]
            wanted = self._reservation(sequence, model)
            own_rows = self._rows[lane]
            if not self._slots.fits(wanted) or (own_rows and own_rows + wanted.rows > self._useful_rows):
                break
            has_share = bool(owner.running) and not owner.promised_tokens
            if has_share and self._slots.free_rows - wanted.rows < self._limits.newcomer_rows:
                self._line.rotate(-1)
                num_passed_over += 1
                continue
            # Rows of a small model cost the same in any company, but sources cost less if they are encoded together.
            together = min(_TOGETHER * wanted.rows, self._useful_rows // 2) if self._is_small else 0
            if owner.running and own_rows and not (pressed or admitted) and own_rows + together > self._useful_rows:
                self._line.rotate(-1)
                num_passed_over += 1
                continue
            num_tokens += length
            newcomer = self._admit(owner, index, wanted, lane)
            admitted.setdefault(model.name, []).append(newcomer)
        self._line.extendleft(reversed(too_long))
        departed, self._departed[lane] = tuple(self._departed[lane]), []
        groups = [group for name, newcomers in admitted.items() for group in _groups_of_like_length(name, newcomers)]
        is_for_others = min(self._rows) < self._rows[lane] < self._useful_rows
        some_wait = bool(self._line) and not is_for_others
        return SchedulerOutput(departed, tuple(groups), is_encoder_full=is_encoder_full, some_wait=some_wait)

    def finish(self, sequence_id: int) -> None:
        """A running sequence has ended, well or not, and the runner has dropped it.

        One of a cancelled request is no error: the runner may have ended it before it heard of that.
        """
        if sequence_id not in self._owners:
            return
        request_id = self._release(sequence_id).request_id
        request = self._requests[request_id]
        request.running.remove(sequence_id)
        if not request.running and not request.waiting:
            del self._requests[request_id]

    # --- what the core asks ----------------------------------------------------------------------------------------

    def owner(self, sequence_id: int) -> tuple[str, int] | None:
        """The request of a running sequence, and its index in it; None if its request was cancelled."""
        owner = self._owners.get(sequence_id)
        return None if owner is None else (owner.request_id, owner.index)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to do: no request, and nothing that a runner has to drop."""
        return not self._requests and not any(self._departed)

    @property
    def num_lanes(self) -> int:
        """Runners that work side by side."""
        return len(self._rows)

    def is_busy(self, lane: int) -> bool:
        """Whether a runner has anything to do by itself: sequences to decode, or to drop."""
        return self._rows[lane] > 0 or bool(self._departed[lane])

    @property
    def request_ids(self) -> tuple[str, ...]:
        """Requests that have not ended, oldest first."""
        return tuple(self._requests)

    @property
    def waiting_requests(self) -> int:
        """Requests of which a sequence waits."""
        return len(self._line)

    def waiting_with_deadline(self) -> list[tuple[str, Sequence[int]]]:
        """Requests of which a sequence waits and that have a deadline, each with the indices of what waits."""
        requests = [(name, self._requests[name]) for name in self._line]
        return [(name, request.waiting) for name, request in requests if request.request.deadline is not None]

    @property
    def running_sequences(self) -> int:
        """Sequences started and not ended."""
        return len(self._owners)

    @property
    def running_requests(self) -> int:
        """Requests of which a sequence runs."""
        return sum(bool(request.running) for request in self._requests.values())

    @property
    def slots(self) -> Slots:
        """The book of rows and cache, to be read."""
        return self._slots

    def check_integrity(self) -> None:
        """Asserts that all books agree: free + used = total, and nobody is in two places or in none."""
        self._slots.check_integrity()
        assert len(self._slots) == len(self._owners), "a sequence holds slots without running, or runs without slots"
        running = {(name, id) for name, request in self._requests.items() for id in request.running}
        assert running == {(o.request_id, id) for id, o in self._owners.items()}, "requests and sequences disagree"
        rows = [
            sum(owner.rows for owner in self._owners.values() if owner.lane == lane) for lane in range(self.num_lanes)
        ]
        assert rows == self._rows, f"lanes have {rows} rows, {self._rows} counted"
        assert sorted(self._line) == sorted(name for name, request in self._requests.items() if request.waiting)
        assert all(request.waiting or request.running for request in self._requests.values()), "an ended request stays"
        sequences = [
            request.request.sequences[index] for request in self._requests.values() for index in request.waiting
        ]
        waiting = [len(sequence.source_ids) for sequence in sequences]
        assert self.waiting_sequences == len(waiting), f"{self.waiting_sequences} counted, {len(waiting)} wait"
        assert self.waiting_tokens == sum(waiting), f"{self.waiting_tokens} tokens counted, {sum(waiting)} wait"
        num_rows = sum(sequence.options.beam_size for sequence in sequences)
        assert self.waiting_rows == num_rows, f"{self.waiting_rows} rows counted, {num_rows} wait"
        promised = {
            name: sum(
                len(request.request.sequences[index].source_ids)
                for index in request.waiting
                if index <= request.last_promised
            )
            for name, request in self._requests.items()
        }
        assert {name: tokens for name, tokens in promised.items() if tokens} == {
            name: request.promised_tokens for name, request in self._promised.items()
        }, "promises and what waits disagree"
        assert self.promised_tokens == sum(promised.values())
        if self.is_idle:
            assert self._slots.free_rows == self._slots.max_rows
            assert self._slots.free_cache_bytes == self._slots.max_cache_bytes

    # --- parts -----------------------------------------------------------------------------------------------------

    def _admit(self, owner: _Request, index: int, wanted: Reservation, lane: int) -> Newcomer:
        """Starts the first waiting sequence of a request in line, and moves the request to the end."""
        request = owner.request
        sequence = request.sequences[index]
        sequence_id = next(self._sequence_ids)
        self._slots.reserve(sequence_id, wanted)
        self._owners[sequence_id] = _Owner(request.request_id, index, lane, wanted.rows)
        self._rows[lane] += wanted.rows
        owner.running.add(sequence_id)
        owner.waiting.popleft()
        self._line.remove(request.request_id)  # mostly the first
        if owner.waiting:
            self._line.append(request.request_id)
        self.waiting_tokens -= len(sequence.source_ids)
        self.waiting_sequences -= 1
        self.waiting_rows -= wanted.rows
        self.started_tokens += len(sequence.source_ids)
        if index <= owner.last_promised:
            owner.promised_tokens -= len(sequence.source_ids)
            self.promised_tokens -= len(sequence.source_ids)
            if index == owner.last_promised:
                del self._promised[request.request_id]
        return Newcomer(
            sequence_id=sequence_id,
            source_ids=sequence.source_ids,
            options=sequence.options,
            forced_prefix=sequence.forced_prefix,
            max_target_tokens=self._target_limit(sequence, self._models[request.model]),
            with_log_probs=request.with_log_probs,
        )

    def _release(self, sequence_id: int) -> _Owner:
        """Takes a running sequence out of the books, but not out of its request."""
        owner = self._owners.pop(sequence_id)
        self._slots.release(sequence_id)
        self._rows[owner.lane] -= owner.rows
        return owner

    def _pressed(self) -> deque[_Request]:
        """Requests that go first, for a promise would be broken otherwise: the oldest ones, up to the last of these."""
        # As much as may be started before this is looked at again.
        margin = self.started_tokens + max(self._limits.max_encode_tokens_per_step, self._limits.max_source_tokens)
        num_tokens = num_pressed = 0
        for number, request in enumerate(self._promised.values(), 1):
            num_tokens += request.promised_tokens
            if margin + num_tokens > request.start_by:
                num_pressed = number
        return deque(itertools.islice(self._promised.values(), num_pressed))

    def _target_limit(self, sequence: SequenceRequest, model: ModelInfo) -> int:
        wanted = sequence.options.max_target_tokens
        if wanted is None:
            # The options that need room get it: a prefix and one token, and the tokens that have to come.
            needed = max(len(sequence.forced_prefix) + 1, sequence.options.min_target_tokens)
            wanted = max(self._limits.default_target_tokens(len(sequence.source_ids)), needed)
        return min(wanted, self._most_target_tokens(model))

    def _most_target_tokens(self, model: ModelInfo) -> int:
        return min(self._limits.max_target_tokens, model.max_target_tokens)

    def _reservation(self, sequence: SequenceRequest, model: ModelInfo) -> Reservation:
        rows = sequence.options.beam_size
        page = model.cache_page_tokens
        source, target = len(sequence.source_ids), self._target_limit(sequence, model)
        if page:
            positions = _whole_pages(source, page) + rows * _whole_pages(target, page)
        else:
            positions = rows * (source + target)
        return Reservation(rows, positions * model.cache_bytes_per_token)

    def _check_target(self, index: int, sequence: SequenceRequest, model: ModelInfo) -> None:
        if len(sequence.source_ids) > min(self._limits.max_source_tokens, model.max_source_tokens):
            most = min(self._limits.max_source_tokens, model.max_source_tokens)
            raise SourceTooLong(index, len(sequence.source_ids), most)
        most = self._most_target_tokens(model)
        options = sequence.options
        for name, value in (
            ("max_target_tokens", options.max_target_tokens or 0),
            ("min_target_tokens", options.min_target_tokens),
        ):
            if value > most:
                raise InvalidOptions(index, name, value, f"at most {most}, the longest target that the model may write")
        limit = self._target_limit(sequence, model)
        if len(sequence.forced_prefix) >= limit:
            allowed = f"fewer tokens than the limit of {limit}; these are {len(sequence.forced_prefix)}"
            raise InvalidOptions(index, "forced_prefix", sequence.forced_prefix, allowed)


def first_part(request: EngineRequest) -> tuple[int, int]:
    """What of a request is promised: source tokens of its first sequences, and the index of the last of them.

    These are all, or as many as have `SHARE_TOKENS` together: the rest of what is large was never going to be quick.
    """
    num_tokens = num_sequences = 0
    for sequence in request.sequences:
        num_tokens += len(sequence.source_ids)
        num_sequences += 1
        if num_tokens >= SHARE_TOKENS:
            break
    return num_tokens, num_sequences - 1


def _check_ids(index: int, sequence: SequenceRequest, model: ModelInfo) -> None:
    """Raises if ids are not what the model can read or write."""
    source, prefix = sequence.source_ids, sequence.forced_prefix
    if not source or source[-1] != model.eos_id:
        raise InvalidOptions(index, "source_ids", source[-1:], f"what ends with the end of sentence, {model.eos_id}")
    if not 0 <= min(source) <= max(source) < model.source_vocab_size:
        worst = min(source) if min(source) < 0 else max(source)
        raise InvalidOptions(index, "source_ids", worst, f"ids from 0 to {model.source_vocab_size - 1}")
    for token in prefix:
        if not 0 <= token < model.target_vocab_size or token == model.eos_id:
            allowed = f"ids from 0 to {model.target_vocab_size - 1}, without the end of sentence"
            raise InvalidOptions(index, "forced_prefix", token, allowed)


def _groups_of_like_length(model: str, newcomers: Sequence[Newcomer]) -> list[EncodeGroup]:
    """Groups in which the longest is at most a quarter and four tokens longer than the shortest: little padding."""
    groups: list[list[Newcomer]] = []
    for newcomer in sorted(newcomers, key=lambda newcomer: len(newcomer.source_ids)):
        if groups and len(newcomer.source_ids) <= 1.25 * len(groups[-1][0].source_ids) + 4:
            groups[-1].append(newcomer)
        else:
            groups.append([newcomer])
    return [EncodeGroup(model, tuple(group)) for group in groups]


def _whole_pages(positions: int, page: int) -> int:
    return -(-positions // page) * page
