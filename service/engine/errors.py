"""All that the engine raises.

EngineError
├── RequestRejected              refused before any of its work was queued; the engine is well
│   ├── QueueFull                try again later
│   │   ├── WaitTooLong          likewise: there is room, but it would take too long
│   │   └── NotInTime            likewise: it would be started, but not done until its deadline
│   ├── RequestTooLarge          more source tokens at once than the queue ever takes
│   │   └── WorkTooLong          more than can be done until its deadline, with nothing else to do
│   ├── SourceTooLong            one source is longer than the limit
│   ├── SequenceTooLarge         source, target and beam together would never fit the cache or the batch
│   ├── UnknownModel
│   ├── InvalidOptions           a decoding option that this engine or model cannot follow
│   ├── InspectionBusy           too many replays wait; try again later
│   └── DuplicateRequestId
├── DeadlineExceeded             the request's time is up
├── RequestAborted               by `abort`
├── SequenceFailed               the model failed for one sequence; its neighbours go on
├── EngineStopping               not started yet, or no longer taking requests
└── EngineDead                   a fault of the engine itself; the only one that turns readiness off for good
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def _short(seconds: float) -> str:
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.2g}"


class EngineError(Exception):
    """Something that the engine did not do; the message can be shown to the client."""


class RequestRejected(EngineError):
    """The request was refused, and nothing of it was queued."""


class QueueFull(RequestRejected):
    """There is no room to wait in now.

    Attributes:
        waiting_tokens: Source tokens that wait already.
        max_waiting_tokens: The most that may wait.
        retry_after_seconds: Guess of when there will be room, at least 1.
    """

    def __init__(self, waiting_tokens: int, max_waiting_tokens: int, retry_after_seconds: float) -> None:
        super().__init__(
            f"the queue is full: {waiting_tokens} of at most {max_waiting_tokens} source tokens wait; "
            f"try again in {retry_after_seconds:.0f} s"
        )
        self.waiting_tokens = waiting_tokens
        self.max_waiting_tokens = max_waiting_tokens
        self.retry_after_seconds = retry_after_seconds


class WaitTooLong(QueueFull):
    """There is room to wait in, but not in useful time.

    Attributes:
        wait_seconds: How long it would wait.
        max_wait_seconds: The most it may.
    """

    def __init__(
        self, wait_seconds: float, max_wait_seconds: float, waiting_tokens: int, max_waiting_tokens: int
    ) -> None:
        super().__init__(waiting_tokens, max_waiting_tokens, max(1.0, math.ceil(wait_seconds / 2)))
        self.args = (
            f"the server is busy: this would wait about {wait_seconds:.0f} s, and at most {max_wait_seconds:g} s are "
            f"allowed; try again in {self.retry_after_seconds:.0f} s",
        )
        self.wait_seconds = wait_seconds
        self.max_wait_seconds = max_wait_seconds


class NotInTime(QueueFull):
    """Alone it would be done until its deadline, but not beside what is being done.

    Attributes:
        needed_seconds: How long it would take.
        left_seconds: How long it may.
    """

    def __init__(
        self, needed_seconds: float, left_seconds: float, waiting_tokens: int, max_waiting_tokens: int
    ) -> None:
        super().__init__(waiting_tokens, max_waiting_tokens, max(1.0, math.ceil(needed_seconds - left_seconds)))
        self.args = (
            f"the server is busy: this would take about {needed_seconds:.0f} s, and it may take "
            f"{_short(left_seconds)} s; "
            f"try again in {self.retry_after_seconds:.0f} s, or send it in parts",
        )
        self.needed_seconds = needed_seconds
        self.left_seconds = left_seconds


class RequestTooLarge(RequestRejected):
    """The request alone is more than the queue takes, even when empty.

    Attributes:
        num_tokens: Source tokens of the request.
        max_tokens: The most a request may have.
    """

    def __init__(self, num_tokens: int, max_tokens: int) -> None:
        super().__init__(f"the text has {num_tokens} source tokens; at most {max_tokens} are taken in one request")
        self.num_tokens = num_tokens
        self.max_tokens = max_tokens


class WorkTooLong(RequestTooLarge):
    """The request alone is more than the engine does until its deadline, at the speed that it measures.

    Attributes:
        needed_seconds: How long it would take.
        left_seconds: How long it may.
    """

    def __init__(self, num_tokens: int, max_tokens: int, needed_seconds: float, left_seconds: float) -> None:
        super().__init__(num_tokens, max_tokens)
        self.args = (
            f"the text has {num_tokens} source tokens, which take about {needed_seconds:.0f} s here, and it may take "
            f"{_short(left_seconds)} s: about {max_tokens} source tokens are done in that time; send it in parts",
        )
        self.needed_seconds = needed_seconds
        self.left_seconds = left_seconds


class SourceTooLong(RequestRejected):
    """One source is longer than the model or the settings allow.

    Attributes:
        sequence_index: Which sequence of the request.
        num_tokens: Its source tokens, end of sentence included.
        max_tokens: The most a source may have.
    """

    def __init__(self, sequence_index: int, num_tokens: int, max_tokens: int) -> None:
        super().__init__(f"a segment has {num_tokens} tokens; at most {max_tokens} are allowed")
        self.sequence_index = sequence_index
        self.num_tokens = num_tokens
        self.max_tokens = max_tokens


class SequenceTooLarge(RequestRejected):
    """One sequence would not fit even if it ran alone.

    Attributes:
        sequence_index: Which sequence of the request.
        resource: What there is not enough of, in words: "cache bytes" or "rows".
        needed: How much of it the sequence may need.
        available: How much there is in all.
    """

    def __init__(self, sequence_index: int, resource: str, needed: int, available: int) -> None:
        super().__init__(
            f"a segment may need {needed} {resource}, but there are {available} in all; "
            "lower beam_size or max_target_tokens, or shorten the segment"
        )
        self.sequence_index = sequence_index
        self.resource = resource
        self.needed = needed
        self.available = available


class UnknownModel(RequestRejected):
    """No model of this name is loaded.

    Attributes:
        model: What was asked for.
        available: The names there are.
    """

    def __init__(self, model: str, available: Sequence[str]) -> None:
        super().__init__(f'there is no model "{model}"; allowed is {", ".join(available) or "none"}')
        self.model = model
        self.available = tuple(available)


class InvalidOptions(RequestRejected):
    """An option, or an id, that model or settings do not allow; what no model allows is `DecodingOptions`' own care.

    Attributes:
        sequence_index: Which sequence of the request.
        field: Name of the option.
        value: What was given.
        allowed: What would have been accepted, in words.
    """

    def __init__(self, sequence_index: int, field: str, value: object, allowed: str) -> None:
        super().__init__(f"{field} is {value!r}; allowed is {allowed}")
        self.sequence_index = sequence_index
        self.field = field
        self.value = value
        self.allowed = allowed


class InspectionBusy(RequestRejected):
    """Too many look inside at once. Translating goes on.

    Attributes:
        num_pending: Replays that run or wait.
        max_waiting: The most that may wait.
        retry_after_seconds: Guess of when there will be room, at least 1.
    """

    def __init__(self, num_pending: int, max_waiting: int, retry_after_seconds: float) -> None:
        super().__init__(
            f"{num_pending} replays run or wait, and at most {max_waiting} may wait; "
            f"try again in {retry_after_seconds:.0f} s"
        )
        self.num_pending = num_pending
        self.max_waiting = max_waiting
        self.retry_after_seconds = retry_after_seconds


class DuplicateRequestId(RequestRejected):
    """A request of the same id has not ended yet.

    Attributes:
        request_id: The id.
    """

    def __init__(self, request_id: str) -> None:
        super().__init__(f"a request with the id {request_id!r} is still running")
        self.request_id = request_id


class DeadlineExceeded(EngineError):
    """The deadline passed before every sequence had ended, or surely would; what had not is dropped.

    Attributes:
        request_id: Whose.
        retry_after_seconds: Guess of when the engine will have less to do, at least 1.
    """

    def __init__(self, request_id: str, left_seconds: float = 0.0, retry_after_seconds: float = 1.0) -> None:
        """Says what happened.

        Args:
            request_id: Whose.
            left_seconds: How far off the deadline still was, if it has not passed.
            retry_after_seconds: When to try again.
        """
        super().__init__(
            f"the translation would not be finished by its deadline, {_short(left_seconds)} s from now"
            if left_seconds > 0
            else "the deadline passed before the translation was finished"
        )
        self.request_id = request_id
        self.retry_after_seconds = retry_after_seconds


class RequestAborted(EngineError):
    """Somebody called `abort`."""

    def __init__(self, request_id: str) -> None:
        super().__init__("the request was aborted")
        self.request_id = request_id


class SequenceFailed(EngineError):
    """The model gave nothing usable for one sequence.

    Attributes:
        sequence_index: Which sequence of the request.
        reason: What happened, in words.
    """

    def __init__(self, sequence_index: int, reason: str) -> None:
        super().__init__(f"a segment could not be translated: {reason}")
        self.sequence_index = sequence_index
        self.reason = reason


class EngineStopping(EngineError):
    """The engine does not take requests: it has not started, or it is being stopped."""

    def __init__(self, reason: str = "the engine is stopping") -> None:
        super().__init__(reason)


class EngineDead(EngineError):
    """The engine met a fault of its own and cannot go on; `__cause__` is the fault where it is known.

    Attributes:
        retry_after_seconds: The process ends, and whoever runs it starts it anew: about how long that takes.
    """

    retry_after_seconds = 10.0

    def __init__(self, reason: str) -> None:
        super().__init__(f"the engine died: {reason}")
        self.reason = reason
