"""How long what was accepted waits: the whole core on a clock of its own, without its thread."""

import copy
import heapq
import math
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from model.decoding import Hypothesis
from service.engine.core import EngineCore, RequestMessage
from service.engine.errors import WaitTooLong
from service.engine.interface import SHARE_TOKENS
from service.engine.request import RequestDoneEvent
from service.engine.scheduler import Scheduler, first_part
from service.engine.speed import Speed, wait_seconds
from service.engine.step import SequenceUpdate, StepResult
from tests.service.engine.helpers import INFO, make_limits, make_request

MAX_WAIT_SECONDS = 3.0
ROWS = 16
LENGTH = 25
"""Source tokens of a sentence; it takes as many steps."""


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class TimedRunner:
    """Each row's step takes its time; a sequence ends after as many as it has source tokens."""

    def __init__(self, clock, row_seconds):
        self.clock, self.row_seconds, self.left = clock, row_seconds, {}

    def execute(self, output):
        for sequence_id in output.departed:
            self.left.pop(sequence_id, None)
        newcomers = [newcomer for group in output.groups for newcomer in group.newcomers]
        self.left |= {newcomer.sequence_id: list(newcomer.source_ids) for newcomer in newcomers}
        num_rows = len(self.left)
        self.clock.now += self.row_seconds * ROWS  # as long as a full batch takes
        updates = []
        for sequence_id, source in list(self.left.items()):
            source.pop()
            if not source:
                del self.left[sequence_id]
                updates.append(SequenceUpdate(sequence_id, (), (Hypothesis((4, 3), "stop"),)))
        return StepResult(tuple(updates), {newcomer.sequence_id: 0.0 for newcomer in newcomers}, num_rows)


@dataclass
class Simulation:
    """Clients that come when they come."""

    row_seconds: float = 0.002
    max_wait_seconds: float = MAX_WAIT_SECONDS
    clock: Clock = field(default_factory=Clock)
    waits: dict[int, tuple[int, float]] = field(default_factory=dict)
    """Of each request that was accepted: source tokens, and seconds until its first part was started."""
    latencies: dict[int, float] = field(default_factory=dict)
    refused: list[int] = field(default_factory=list)
    """Source tokens of the others."""
    rows: list[int] = field(default_factory=list)

    def __post_init__(self):
        limits = make_limits(
            max_rows=ROWS,
            kv_cache_bytes=1_000_000,
            max_waiting_tokens=1_000_000,
            max_encode_tokens_per_step=100,
            max_wait_seconds=self.max_wait_seconds,
        )
        self.core = EngineCore(lambda: None, limits, self._hear, self.clock)
        self.scheduler = self.core._scheduler = Scheduler([INFO], limits)
        self.runner = TimedRunner(self.clock, self.row_seconds)
        self.requests = {}

    def run(self, arrivals, seconds):
        """`arrivals`: times after now, and the sources' lengths of a request each; in any order."""
        start = self.clock.now
        arrivals = [(start + time, lengths) for time, lengths in arrivals]
        heapq.heapify(arrivals)
        while self.clock.now < start + seconds or not self.scheduler.is_idle:
            while arrivals and arrivals[0][0] <= self.clock.now:
                self._submit(heapq.heappop(arrivals)[1])
            if self.scheduler.is_idle and not self.core._commands:
                self.core._lanes[0].busy_since = math.nan
                self.clock.now = arrivals[0][0] if arrivals else start + seconds
                continue
            self.core._take_commands(self.scheduler)
            self.core._iterate(self.scheduler, self.runner)
            self.rows.append(self.core.stats.batch_rows)
        self.scheduler.check_integrity()
        return self

    def _submit(self, lengths):
        number = len(self.requests)
        request = self.requests[number] = make_request(str(number), lengths)
        try:
            self.core.submit(request, number, wants_events=False)
        except WaitTooLong as error:
            assert error.wait_seconds > self.max_wait_seconds
            self.refused.append(sum(lengths))

    def _hear(self, messages):
        for message in messages:
            if isinstance(message, RequestMessage):
                assert isinstance(message.event, RequestDoneEvent), message
                request, result = self.requests[message.ticket], message.event.result
                last = first_part(request)[1]
                wait = max(sequence.timings.queue_seconds for sequence in result.sequences[: last + 1])
                self.waits[message.ticket] = request.num_source_tokens, wait
                timings = [sequence.timings for sequence in result.sequences]
                self.latencies[message.ticket] = max(t.queue_seconds + t.decode_seconds for t in timings)

    @property
    def tokens_per_second(self):
        """What it can do."""
        return 1 / self.row_seconds


def poisson(rate, seconds, lengths, seed=1):
    generator = random.Random(seed)
    now, found = 0.0, []
    while now < seconds:
        now += generator.expovariate(rate)
        found.append((now, lengths(generator)))
    return found


def longs(_):
    return (LENGTH,) * 10


def shorts(_):
    return (LENGTH // 2,)


def mixed(generator):
    return generator.choice([(LENGTH,), (LENGTH,), (LENGTH,) * 4, (LENGTH,) * 10, (5,), (40, 3, 60), (LENGTH,) * 300])


def bursts(lengths):
    return [(float(time), lengths(random.Random(time))) for time in range(0, 16, 4) for _ in range(60)]


PATTERNS = {
    "twice as much": lambda: poisson(4, 16, longs),
    "five times as much": lambda: poisson(10, 16, longs),
    "short ones after long ones": lambda: (
        poisson(10, 8, longs) + [(8 + time, lengths) for time, lengths in poisson(200, 8, shorts)]
    ),
    "long ones in the midst of short ones": lambda: poisson(100, 16, shorts) + poisson(1, 16, longs),
    "everything, very large ones too": lambda: poisson(8, 16, mixed),
    "all at once, again and again": lambda: bursts(longs),
    "many short ones at once, and some long ones": lambda: bursts(shorts) + bursts(longs)[::7],
}


@pytest.fixture(scope="module")
def learnt():
    """What a simulation has learnt of its speed."""
    simulation = Simulation()
    simulation.run(poisson(10, 20, longs), 20)
    assert simulation.core._speed.tokens_per_second == pytest.approx(simulation.tokens_per_second, rel=0.1)
    return simulation.core._speed


@pytest.fixture
def simulation(learnt):
    """One that knows its speed."""
    simulation = Simulation()
    simulation.core._speed = copy.copy(learnt)
    return simulation


@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_is_accepted_waits_no_longer_than_is_allowed_and_the_time_of_one_request(pattern, simulation):
    simulation.run(PATTERNS[pattern](), 16)
    one_request = (SHARE_TOKENS + LENGTH) / simulation.tokens_per_second
    waits = [wait for _, wait in simulation.waits.values()]
    assert max(waits) <= MAX_WAIT_SECONDS + one_request
    assert len(waits) >= 12 and len(simulation.refused) >= 12


@pytest.mark.parametrize("factor", [1.5, 2, 5, 20])
def test_goodput_of_an_overload_is_all_there_is(factor, simulation):
    capacity = simulation.tokens_per_second / (10 * LENGTH)
    simulation.run(poisson(factor * capacity, 16, longs), 16)
    assert len(simulation.refused) > 0
    full = simulation.rows[50:-200]
    assert sum(full) / len(full) > 0.97 * ROWS


def test_short_ones_are_hardly_ever_refused_beside_long_ones_that_are(simulation):
    arrivals = poisson(10, 16, longs) + poisson(2, 16, shorts)
    simulation.run(arrivals, 16)
    refused = Counter(simulation.refused)
    assert refused[LENGTH // 2] < 0.2 * sum(lengths == shorts(None) for _, lengths in arrivals)
    assert refused[10 * LENGTH] > 0.5 * sum(lengths == longs(None) for _, lengths in arrivals)


def test_short_ones_take_turns_with_long_ones(simulation):
    simulation.run([(0.0, longs(None))] * 3 + [(0.01, shorts(None))], 2)
    long_waits, short_waits = ([wait for size, wait in simulation.waits.values() if size == n] for n in (250, 12))
    assert len(long_waits) == 3
    assert max(short_waits) < 0.5 * min(long_waits)


def test_a_rush_that_can_be_served_in_time_is_accepted(simulation):
    simulation.run([(0.0, (LENGTH,))] * 50, 4)  # 1,250 tokens at 500 a second
    assert simulation.refused == []


def test_a_machine_that_gets_slower_is_noticed(simulation):
    simulation.runner.row_seconds *= 4
    simulation.run(poisson(5, 40, longs), 40)
    assert simulation.core._speed.tokens_per_second == pytest.approx(simulation.tokens_per_second / 4, rel=0.15)


def test_times_when_nothing_waits_do_not_count():
    speed = Speed(1000)
    assert speed.tokens_per_second == 0
    speed.note(100, 0.5)
    assert speed.tokens_per_second == 0  # too little to be sure
    speed.note(100, 0.5)
    assert speed.tokens_per_second == pytest.approx(200, rel=0.01)
    for _ in range(100):
        speed.note(100, 1.0)
    assert speed.tokens_per_second == pytest.approx(100, rel=0.01)


def test_nothing_that_ends_for_long_is_slow_and_not_unknown():
    speed = Speed(1000)
    speed.note(0, 5.0)
    assert speed.tokens_per_second == pytest.approx(0.2)


def test_a_wait_is_for_what_is_ahead_and_for_large_ones_for_what_comes_after_too():
    assert wait_seconds(0, 100, 500) == 0
    assert wait_seconds(1000, 100, 0) == 0
    assert wait_seconds(1000, 0, 500) == 2
    assert wait_seconds(1000, SHARE_TOKENS, 500) == pytest.approx(2 * (1000 + SHARE_TOKENS) / 500)
    assert wait_seconds(1000, 100_000, 500) == wait_seconds(1000, SHARE_TOKENS, 500)
