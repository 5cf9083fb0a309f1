"""What cannot be done until its deadline is refused at once, or as soon as that is known."""

import math
import re

import pytest

from service.engine.core import RequestMessage
from service.engine.errors import DeadlineExceeded, NotInTime, QueueFull, RequestTooLarge, WorkTooLong
from service.engine.request import RequestDoneEvent
from service.engine.speed import Speed, work_seconds
from tests.service.engine.helpers import make_request
from tests.service.engine.test_waiting_time import LENGTH, Simulation

TEXT = (LENGTH,) * 300
"""20 seconds of work alone: a quarter of the rows, which together do 500 tokens a second, are for others."""


class Deadlines(Simulation):
    """Requests with deadlines, one at a time or together, and how each ended, and when."""

    def __post_init__(self):
        super().__post_init__()
        self.ends = {}

    def submit(self, lengths, seconds, *, wants_events=False, is_begun=False, **options):
        """Returns the number of the request; it must be done in so many seconds from now."""
        number = len(self.requests)
        deadline = self.clock.now + seconds
        request = self.requests[number] = make_request(str(number), lengths, deadline=deadline, **options)
        self.core.submit(request, number, wants_events=wants_events, is_begun=is_begun)
        return number

    def run_until_idle(self):
        """Returns for each request how it ended, and after how many seconds from now."""
        start = self.clock.now
        while not self.scheduler.is_idle or self.core._commands:
            self.core._take_commands(self.scheduler)
            self.core._iterate(self.scheduler, self.runner)
        self.scheduler.check_integrity()
        return {number: (event, now - start) for number, (event, now) in self.ends.items()}

    def _hear(self, messages):
        for message in messages:
            if isinstance(message, RequestMessage):
                self.ends[message.ticket] = message.event, self.clock.now


@pytest.fixture
def settled():
    """One that knows its speed."""
    simulation = Deadlines()
    simulation.submit(TEXT, 100)
    simulation.run_until_idle()
    assert simulation.core.stats.row_tokens_per_second == pytest.approx(375, rel=0.1)
    simulation.ends.clear()
    return simulation


def test_what_is_too_much_for_its_time_is_refused_with_what_would_not_be(settled):
    with pytest.raises(WorkTooLong) as refusal:
        settled.submit(TEXT, 12)
    error = refusal.value
    assert isinstance(error, RequestTooLarge)  # and so it is a 413, not to be sent again as it is
    assert (error.num_tokens, error.left_seconds) == (7_500, pytest.approx(12))
    assert error.needed_seconds == pytest.approx(24, rel=0.1)
    assert error.max_tokens == pytest.approx(7_500 / 2, rel=0.1)
    assert all(str(number) in str(error) for number in (error.num_tokens, error.max_tokens))
    half = settled.submit((LENGTH,) * (error.max_tokens // LENGTH), 12)
    assert isinstance(settled.run_until_idle()[half][0], RequestDoneEvent)


def test_a_beam_is_that_much_more_work(settled):
    settled.submit(TEXT, 26)
    with pytest.raises(WorkTooLong):
        settled.submit(TEXT, 26, beam_size=2)


def test_what_would_be_done_alone_but_not_beside_others_is_told_when_to_come_again(settled):
    first = settled.submit(TEXT, 26)
    with pytest.raises(NotInTime) as refusal:
        settled.submit(TEXT, 26)
    assert isinstance(refusal.value, QueueFull)
    assert refusal.value.retry_after_seconds == pytest.approx(24 + 20 - 26, abs=4)
    small = settled.submit((LENGTH,), 2)  # takes turns, and waits for as much as it has itself
    ends = settled.run_until_idle()
    assert isinstance(ends[first][0], RequestDoneEvent) and isinstance(ends[small][0], RequestDoneEvent)
    assert ends[small][1] < 2


def test_work_that_has_begun_and_work_without_a_deadline_are_taken(settled):
    settled.submit(TEXT, math.inf)
    settled.submit(TEXT, 12, is_begun=True)


def test_while_the_speed_is_not_known_hopeless_work_ends_as_soon_as_it_is():
    simulation = Deadlines()
    number = simulation.submit(TEXT, 12)
    error, seconds = simulation.run_until_idle()[number]
    assert isinstance(error, WorkTooLong)
    assert 5 <= seconds <= 7.5
    assert error.max_tokens == pytest.approx(7_500 / 2, rel=0.15)


def test_work_that_becomes_hopeless_ends_before_its_time(settled):
    number = settled.submit(TEXT, 40)
    settled.runner.row_seconds *= 5
    error, seconds = settled.run_until_idle()[number]
    assert isinstance(error, WorkTooLong | DeadlineExceeded)
    assert seconds < 35
    begun = settled.submit(TEXT, 60, is_begun=True)
    error, seconds = settled.run_until_idle()[begun]
    assert isinstance(error, DeadlineExceeded)
    assert re.search(r"would not be finished by its deadline, \d+ s from now", str(error))
    assert seconds < 30


def test_what_a_stream_has_told_is_worth_something():
    simulation = Deadlines()
    number = simulation.submit(TEXT, 9, wants_events=True)
    error, seconds = simulation.run_until_idle()[number]
    assert isinstance(error, DeadlineExceeded)
    assert "the deadline passed" in str(error)
    assert seconds >= 9


def test_work_that_will_be_done_is_left_alone():
    simulation = Deadlines()
    number = simulation.submit(TEXT, 22)
    event, seconds = simulation.run_until_idle()[number]
    assert isinstance(event, RequestDoneEvent)
    assert seconds == pytest.approx(20, rel=0.1)


def test_a_speed_is_settled_after_a_long_look():
    speed = Speed(100_000)
    speed.note(2_000, 4.9)
    assert (speed.settled, work_seconds(100, speed.settled)) == (0, 0)
    speed.note(500, 0.3)
    assert speed.settled == pytest.approx(480, rel=0.05)
    assert work_seconds(480, speed.settled) == pytest.approx(1.2, rel=0.05)
