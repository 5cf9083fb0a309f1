import os
import sys
import threading
import time
from dataclasses import replace

import pytest

from service.engine.core import MAX_STRIDE_STEPS, Ended, EngineCore, RequestMessage, Started, StepMessage
from service.engine.errors import DuplicateRequestId, EngineDead, EngineStopping, QueueFull, UnknownModel
from service.engine.request import RequestDoneEvent, SequenceDoneEvent, TokensEvent
from tests.service.engine.helpers import WAIT_SECONDS, ScriptedRunner, make_limits, make_request


class Driver:
    """A core whose messages are kept, and can be waited for."""

    def __init__(self, runner, **limits):
        self.runner = runner
        self.messages = []
        self.arrived = threading.Condition()
        self.core = EngineCore(lambda: runner, make_limits(**limits), self.deliver)

    def deliver(self, messages):
        with self.arrived:
            self.messages += messages
            self.arrived.notify_all()

    def wait_for(self, is_it):
        with self.arrived:
            assert self.arrived.wait_for(lambda: any(map(is_it, self.messages)), WAIT_SECONDS), self.messages
            return next(filter(is_it, self.messages))

    def wait_for_last(self, ticket):
        def is_last(message):
            if not isinstance(message, RequestMessage) or message.ticket != ticket:
                return False
            return isinstance(message.event, RequestDoneEvent | Exception)

        return self.wait_for(is_last).event

    def events(self, ticket):
        return [
            message.event
            for message in self.messages
            if isinstance(message, RequestMessage) and message.ticket == ticket
        ]

    def __enter__(self):
        self.core.start()
        self.wait_for(lambda message: isinstance(message, Started | Ended))
        return self

    def __exit__(self, *exc_info):
        if self.runner.gate is not None:
            self.runner.open_gate()
        self.core.stop(time.monotonic())
        self.wait_for(lambda message: isinstance(message, Ended))
        self.core.join()


def test_request_comes_back_with_its_results_in_order_though_they_end_out_of_order():
    with Driver(ScriptedRunner()) as driver:
        driver.core.submit(make_request(lengths=(9, 2, 5)), 7, wants_events=False)
        result = driver.wait_for_last(7).result
        assert [sequence.num_source_tokens for sequence in result.sequences] == [9, 2, 5]
        assert [len(sequence.hypotheses[0].tokens) for sequence in result.sequences] == [9, 2, 5]
        assert len(driver.events(7)) == 1


def test_events_tell_tokens_then_ends_then_the_whole():
    with Driver(ScriptedRunner()) as driver:
        driver.core.submit(make_request(lengths=(2, 3)), 7, wants_events=True)
        done = driver.wait_for_last(7)
        first, second = done.result.sequences
        assert driver.events(7) == [
            TokensEvent(0, (4,)),
            TokensEvent(1, (4,)),
            SequenceDoneEvent(0, first),
            TokensEvent(1, (5,)),
            SequenceDoneEvent(1, second),
            done,
        ]


def test_who_wants_no_tokens_is_told_of_ends_and_does_not_end_the_steps_of_others():
    runner = ScriptedRunner()
    with Driver(runner) as driver:
        request = replace(make_request(lengths=(2, 3)), tells_tokens=False)
        driver.core.submit(request, 7, wants_events=True)
        done = driver.wait_for_last(7)
        first, second = done.result.sequences
        assert driver.events(7) == [SequenceDoneEvent(0, first), SequenceDoneEvent(1, second), done]
        assert {stride.max_steps for stride in runner.strides} == {MAX_STRIDE_STEPS}
        assert not any(stride.tells_tokens for stride in runner.strides)


def test_ends_of_a_request_that_wants_no_tokens_are_told_together_and_in_time(monkeypatch):
    clock = [0.0]
    driver = Driver(ScriptedRunner(is_gated=True))
    driver.core._clock = lambda: clock[0]
    calls = []
    deliver = driver.core._deliver
    driver.core._deliver = lambda messages: (calls.append(messages), deliver(messages))
    with driver:
        driver.core.submit(replace(make_request(lengths=(1, 2, 3, 4)), tells_tokens=False), 7, wants_events=True)
        for _ in range(3):
            assert driver.runner.in_step.wait(WAIT_SECONDS)
            driver.runner.in_step.clear()
            if driver.runner.steps[2:]:
                clock[0] += 1.0
            driver.runner.allow_steps()
        driver.wait_for(lambda message: isinstance(message, RequestMessage) and message.event.sequence_index == 2)
        ends = [[m.event.sequence_index for m in call if isinstance(m, RequestMessage)] for call in calls]
        assert [each for each in ends if each] == [[0], [1, 2]]
        driver.runner.open_gate()
        driver.wait_for_last(7)
        assert [type(event) for event in driver.events(7)] == [SequenceDoneEvent] * 4 + [RequestDoneEvent]


def test_engine_sleeps_while_there_is_nothing_to_do(monkeypatch):
    driver = Driver(ScriptedRunner())
    wait, naps = driver.core._wake.wait, []
    monkeypatch.setattr(driver.core._wake, "wait", lambda *args: naps.append(args) or wait(*args))
    with driver:
        driver.core.submit(make_request(lengths=(3,)), 0, wants_events=False)
        driver.wait_for_last(0)
        time.sleep(0.1)
        assert len(naps) <= 4
        assert len(driver.runner.steps) == 3


def test_runner_is_built_and_called_in_the_engines_own_thread():
    with Driver(ScriptedRunner()) as driver:
        assert driver.runner.thread is not threading.current_thread()
        assert driver.runner.thread.name == "gossamer-engine"


def test_late_request_joins_the_running_batch():
    runner = ScriptedRunner(is_gated=True)
    with Driver(runner) as driver:
        driver.core.submit(make_request("a", (6,)), 0, wants_events=False)
        runner.allow_steps(2)
        driver.wait_for(lambda message: isinstance(message, StepMessage))
        driver.core.submit(make_request("b", (2,)), 1, wants_events=False)
        runner.open_gate()
        driver.wait_for_last(0)
        driver.wait_for_last(1)
        assert max(len(step) for step in runner.steps) == 2
        assert len(runner.steps) == 6


def test_abort_frees_rows_before_the_next_step_and_drops_the_rest():
    runner = ScriptedRunner(is_gated=True)
    with Driver(runner, max_rows=2) as driver:
        driver.core.submit(make_request("a", (9,) * 50), 0, wants_events=False)
        assert runner.in_step.wait(WAIT_SECONDS)
        driver.core.abort("a")
        driver.core.submit(make_request("b", (2,)), 1, wants_events=False)
        runner.open_gate()
        driver.wait_for_last(1)
        assert [len(step) for step in runner.steps] == [2, 1, 1]
        assert driver.events(0) == []


def test_id_of_an_aborted_request_may_be_used_again_at_once():
    runner = ScriptedRunner(is_gated=True)
    with Driver(runner) as driver:
        driver.core.submit(make_request("a", (9,)), 0, wants_events=True)
        assert runner.in_step.wait(WAIT_SECONDS)
        driver.core.abort("a")
        driver.core.submit(make_request("a", (2,)), 1, wants_events=False)
        runner.open_gate()
        assert driver.wait_for_last(1).result.sequences[0].num_target_tokens == 2


def test_id_in_use_is_refused():
    runner = ScriptedRunner(is_gated=True)
    with Driver(runner) as driver:
        driver.core.submit(make_request("a"), 0, wants_events=False)
        driver.core.submit(make_request("a"), 1, wants_events=False)
        runner.open_gate()
        assert isinstance(driver.wait_for_last(1), DuplicateRequestId)
        assert isinstance(driver.wait_for_last(0), RequestDoneEvent)


def test_full_queue_is_refused_in_the_midst_of_a_step():
    runner = ScriptedRunner(is_gated=True)
    with Driver(runner, max_rows=1, max_waiting_tokens=100) as driver:
        driver.core.submit(make_request("running", (9,)), 0, wants_events=False)
        assert runner.in_step.wait(WAIT_SECONDS)
        driver.core.submit(make_request("a", (60,)), 1, wants_events=False)
        driver.core.submit(make_request("b", (40,)), 2, wants_events=False)
        with pytest.raises(QueueFull, match="100 of at most 100") as caught:
            driver.core.submit(make_request("c", (1,)), 3, wants_events=False)
        assert caught.value.retry_after_seconds >= 1
        runner.open_gate()
        for ticket in (0, 1, 2):
            assert isinstance(driver.wait_for_last(ticket), RequestDoneEvent)
        driver.core.submit(make_request("c", (100,)), 3, wants_events=False)
        assert isinstance(driver.wait_for_last(3), RequestDoneEvent)


def test_impossible_request_is_refused_by_the_call_itself():
    with Driver(ScriptedRunner()) as driver, pytest.raises(UnknownModel):
        driver.core.check(make_request(model="none"))


def test_time_is_told_apart_and_adds_up():
    runner = ScriptedRunner(is_gated=True)
    with Driver(runner, max_rows=1) as driver:
        driver.core.submit(make_request("a", (2,)), 0, wants_events=False)
        submitted_at = time.monotonic()
        driver.core.submit(make_request("b", (2,)), 1, wants_events=False)
        time.sleep(0.05)
        runner.open_gate()
        timings = driver.wait_for_last(1).result.sequences[0].timings
        total = timings.queue_seconds + timings.encode_seconds + timings.decode_seconds
        assert timings.queue_seconds >= 0.05
        assert total <= time.monotonic() - submitted_at + 0.01
        assert driver.wait_for_last(0).result.sequences[0].timings.queue_seconds < timings.queue_seconds


def test_first_token_is_told_with_the_end_of_the_step_that_encoded_it():
    runner = ScriptedRunner(is_gated=True)
    with Driver(runner) as driver:
        driver.core.submit(make_request("a", (4,)), 0, wants_events=False)
        assert runner.in_step.wait(WAIT_SECONDS)
        time.sleep(0.05)
        runner.allow_steps(1)
        driver.wait_for(lambda message: isinstance(message, StepMessage))
        time.sleep(0.05)
        runner.open_gate()
        timings = driver.wait_for_last(0).result.sequences[0].timings
        total = timings.queue_seconds + timings.encode_seconds + timings.decode_seconds
        assert 0.05 <= timings.first_token_seconds <= total - 0.05


def test_step_tells_what_was_encoded_and_how_much_of_it_was_padding():
    with Driver(ScriptedRunner(is_gated=True)) as driver:
        driver.core.submit(make_request("a", (4, 8)), 0, wants_events=False)
        driver.runner.open_gate()
        driver.wait_for_last(0)
        steps = [message for message in driver.messages if isinstance(message, StepMessage)]
        assert sum(step.num_encoded_tokens for step in steps) == 12
        assert (steps[0].num_encoded_tokens, steps[0].num_padding_tokens) == (12, 4)
        assert (steps[-1].num_encoded_tokens, steps[-1].num_padding_tokens) == (0, 0)


def test_poisoned_sequence_fails_alone():
    runner = ScriptedRunner()
    poisoned = make_request(lengths=(3, 4)).sequences[1]
    runner.poisoned.add(poisoned.source_ids)
    with Driver(runner) as driver:
        driver.core.submit(make_request(lengths=(3, 4, 5)), 0, wants_events=False)
        sequences = driver.wait_for_last(0).result.sequences
        assert [sequence.failure for sequence in sequences] == [None, "poisoned", None]
        assert [sequence.finish_reason for sequence in sequences] == ["stop", "failed", "stop"]


def test_fault_of_the_runner_ends_all_with_its_cause(caplog):
    runner = ScriptedRunner(is_gated=True)
    with Driver(runner, max_rows=1) as driver:
        for ticket in range(3):
            driver.core.submit(make_request(f"r{ticket}"), ticket, wants_events=False)
        runner.fault = ZeroDivisionError("broken")
        runner.open_gate()
        errors = [driver.wait_for_last(ticket) for ticket in range(3)]
        assert all(isinstance(error, EngineDead) and error.__cause__ is runner.fault for error in errors)
        assert len(set(map(id, errors))) == 3
        assert "ZeroDivisionError: broken" in str(errors[0])
        driver.wait_for(lambda message: isinstance(message, Ended) and message.error is not None)
        with pytest.raises(EngineDead):
            driver.core.submit(make_request("late"), 9, wants_events=False)
    assert "the engine died" in caplog.text


def test_stop_ends_what_still_runs_when_the_time_is_up():
    runner = ScriptedRunner(is_gated=True)
    with Driver(runner, max_rows=1) as driver:
        driver.core.submit(make_request("a", (50,)), 0, wants_events=False)
        driver.core.submit(make_request("b", (50,)), 1, wants_events=False)
        assert runner.in_step.wait(WAIT_SECONDS)
        driver.core.stop(time.monotonic())
        with pytest.raises(EngineStopping):
            driver.core.submit(make_request("c"), 2, wants_events=False)
        runner.open_gate()
        assert isinstance(driver.wait_for_last(0), EngineStopping)
        assert isinstance(driver.wait_for_last(1), EngineStopping)
    assert driver.core.stats.reserved_rows == 0
    assert len(runner.steps) == 1


def test_thread_ends_when_nobody_listens_any_more(caplog):
    runner = ScriptedRunner(is_gated=True)
    driver = Driver(runner)
    with driver:
        driver.core.submit(make_request(), 0, wants_events=False)
        assert runner.in_step.wait(WAIT_SECONDS)

        def deliver(messages):
            raise RuntimeError("Event loop is closed")

        driver.core._deliver = deliver
        runner.open_gate()
        driver.core._thread.join(WAIT_SECONDS)
        assert not driver.core._thread.is_alive()
        driver.deliver([Ended(None)])  # What the core could not tell.
    assert "event loop was closed" in caplog.text


def test_many_steps_may_follow_one_another_where_nobody_hears_of_single_tokens():
    with Driver(ScriptedRunner()) as driver:
        driver.core.submit(make_request("quiet", (6,)), 1, wants_events=False)
        driver.wait_for_last(1)
        assert {stride.max_steps for stride in driver.runner.strides} == {MAX_STRIDE_STEPS}
        assert 0 < driver.runner.strides[0].max_seconds < 0.1
        driver.runner.strides.clear()
        driver.core.submit(make_request("heard", (6,)), 2, wants_events=True)
        driver.wait_for_last(2)
        assert {stride.max_steps for stride in driver.runner.strides} == {1}
        driver.runner.strides.clear()
        driver.core.submit(make_request("quiet again", (6,)), 3, wants_events=False)
        driver.wait_for_last(3)
        assert {stride.max_steps for stride in driver.runner.strides} == {MAX_STRIDE_STEPS}


def test_one_step_at_a_time_while_the_encoder_has_more_to_do():
    with Driver(ScriptedRunner(), max_encode_tokens_per_step=8) as driver:
        driver.core.submit(make_request("r", (8, 8, 8)), 1, wants_events=False)
        driver.wait_for_last(1)
        assert [stride.max_steps for stride in driver.runner.strides[:4]] == [1, 1] + [MAX_STRIDE_STEPS] * 2


@pytest.mark.parametrize("command", ["submit", "abort", "stop"])
def test_a_command_ends_the_steps_that_are_running(command):
    runner = ScriptedRunner(is_gated=True)
    with Driver(runner) as driver:
        driver.core.submit(make_request("r", (6,)), 1, wants_events=False)
        assert runner.in_step.wait(WAIT_SECONDS)
        (stride,) = runner.strides
        assert stride.is_wanted.value == 0
        if command == "submit":
            driver.core.submit(make_request("s", (6,)), 2, wants_events=False)
        elif command == "abort":
            driver.core.abort("r")
        else:
            driver.core.stop(time.monotonic() + WAIT_SECONDS)
        assert stride.is_wanted.value != 0
        runner.in_step.clear()
        runner.allow_steps()
        if command != "abort":
            assert runner.in_step.wait(WAIT_SECONDS)
            assert stride.is_wanted.value == 0  # what was told is done


def two_lanes(**limits):
    """A driver with two gated runners."""
    other = ScriptedRunner(is_gated=True)
    return Driver(ScriptedRunner(is_gated=True, others=(other,)), **limits), other


def test_runners_beside_one_another_share_the_sequences_of_a_request():
    driver, other = two_lanes()
    with driver:
        driver.core.submit(make_request("r", (5, 2)), 1, wants_events=True)
        # Each has begun with one of them, though no step of the other has ended.
        assert driver.runner.in_step.wait(WAIT_SECONDS) and other.in_step.wait(WAIT_SECONDS)
        assert len(driver.runner.steps[0]) == len(other.steps[0]) == 1
        assert driver.runner.steps[0] != other.steps[0]
        driver.runner.open_gate()
        other.open_gate()
        result = driver.wait_for_last(1).result
        assert [sequence.num_target_tokens for sequence in result.sequences] == [5, 2]
        told = [event for event in driver.events(1) if isinstance(event, TokensEvent)]
        assert sorted((event.sequence_index, *event.token_ids) for event in told) == [
            (0, 4), (0, 5), (0, 6), (0, 7), (1, 4),
        ]  # fmt: skip
    assert driver.core.stats.reserved_rows == 0


def test_request_that_is_ended_in_the_midst_of_another_lanes_step_leaves_it():
    driver, other = two_lanes()
    with driver:
        driver.core.submit(make_request("a", (2, 2)), 1, wants_events=False)
        assert driver.runner.in_step.wait(WAIT_SECONDS) and other.in_step.wait(WAIT_SECONDS)
        driver.core.abort("a")
        driver.runner.open_gate()  # takes the command, while the other is still at work
        driver.core.submit(make_request("b", (2,)), 2, wants_events=False)
        assert isinstance(driver.wait_for_last(2), RequestDoneEvent)
        other.open_gate()
        driver.core.submit(make_request("c", (3,) * 4), 3, wants_events=False)
        assert isinstance(driver.wait_for_last(3), RequestDoneEvent)
        assert driver.events(1) == []
        driver.core.stop(time.monotonic() + WAIT_SECONDS)
        driver.wait_for(lambda message: isinstance(message, Ended))
    assert driver.core.stats.reserved_rows == driver.core.stats.running_sequences == 0
    assert not driver.runner.running and not other.running


def test_lanes_do_all_that_waits_and_then_sleep(monkeypatch):
    driver, other = two_lanes(max_rows=3, max_encode_tokens_per_step=8)
    driver.runner.open_gate()
    other.open_gate()
    with driver:
        for ticket in range(60):
            driver.core.submit(
                make_request(str(ticket), (1 + ticket % 7,) * (1 + ticket % 3)), ticket, wants_events=False
            )
        for ticket in range(60):
            assert isinstance(driver.wait_for_last(ticket), RequestDoneEvent)
        assert driver.runner.steps and other.steps
        wait, naps = driver.core._wake.wait, []
        monkeypatch.setattr(driver.core._wake, "wait", lambda *args: naps.append(args) or wait(*args))
        time.sleep(0.1)
        assert len(naps) <= 2
    assert driver.core.stats.reserved_rows == 0


def test_fault_of_one_runner_ends_all(caplog):
    driver, other = two_lanes()
    with driver:
        other.fault = ZeroDivisionError("broken")
        driver.core.submit(make_request("r", (5, 5)), 1, wants_events=False)
        assert driver.runner.in_step.wait(WAIT_SECONDS) and other.in_step.wait(WAIT_SECONDS)
        other.open_gate()
        driver.runner.open_gate()
        error = driver.wait_for_last(1)
        assert isinstance(error, EngineDead) and error.__cause__ is other.fault
        driver.wait_for(lambda message: isinstance(message, Ended) and message.error is not None)
    assert "the engine died" in caplog.text


def test_stop_waits_for_what_runs_in_all_lanes():
    driver, other = two_lanes()
    with driver:
        driver.core.submit(make_request("r", (5, 5)), 1, wants_events=False)
        assert driver.runner.in_step.wait(WAIT_SECONDS) and other.in_step.wait(WAIT_SECONDS)
        driver.core.stop(time.monotonic() + WAIT_SECONDS)
        driver.runner.open_gate()
        other.open_gate()
        assert isinstance(driver.wait_for_last(1), RequestDoneEvent)
        driver.wait_for(lambda message: isinstance(message, Ended))
    assert len(driver.runner.steps) == len(other.steps) == 5


def test_event_loop_is_not_woken_for_each_step():
    calls = []
    with Driver(ScriptedRunner()) as driver:
        deliver = driver.core._deliver
        driver.core._deliver = lambda messages: (calls.append(messages), deliver(messages))
        driver.core.submit(make_request("r", (90,)), 1, wants_events=False)
        driver.wait_for_last(1)
        steps = [message for call in calls for message in call if isinstance(message, StepMessage)]
        assert len(steps) == 90
        assert any(sum(isinstance(message, StepMessage) for message in call) > 1 for call in calls)
        assert driver.core._untold == []


def test_steps_are_told_of_before_the_thread_sleeps():
    runner = ScriptedRunner(is_gated=True)
    with Driver(runner) as driver:
        driver.core.submit(make_request("r", (90,)), 1, wants_events=False)
        runner.allow_steps(3)
        assert runner.in_step.wait(WAIT_SECONDS)
        driver.core.abort("r")
        runner.open_gate()

        def are_all_told():
            told = sum(isinstance(message, StepMessage) for message in driver.messages)
            return not runner.running and told == len(runner.steps) > 3

        with driver.arrived:
            assert driver.arrived.wait_for(are_all_told, WAIT_SECONDS)


def test_lane_sleeps_while_others_wait_for_a_place(monkeypatch):
    driver, other = two_lanes(max_rows=1)
    with driver:
        scheduler, calls = driver.core._scheduler, []
        schedule = scheduler.schedule
        monkeypatch.setattr(scheduler, "schedule", lambda lane: calls.append(lane) or schedule(lane))
        for ticket in range(3):
            driver.core.submit(make_request(str(ticket), (2,)), ticket, wants_events=False)
        time.sleep(0.1)
        assert len(calls) <= 8
        driver.runner.open_gate()
        other.open_gate()
        for ticket in range(3):
            assert isinstance(driver.wait_for_last(ticket), RequestDoneEvent)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere threads have no niceness of their own")
def test_lanes_give_way_to_the_event_loop_and_a_single_thread_keeps_its_priority():
    seen = {}

    class Noting(ScriptedRunner):
        def execute(self, output):
            seen.setdefault(self, os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
            return super().execute(output)

    own = os.getpriority(os.PRIO_PROCESS, 0)
    other, single = Noting(is_gated=True), Noting()
    first = Noting(is_gated=True, others=(other,))
    with Driver(first) as driver:
        driver.core.submit(make_request("r", (2, 2)), 1, wants_events=False)
        assert first.in_step.wait(WAIT_SECONDS) and other.in_step.wait(WAIT_SECONDS)
        other.open_gate()
    with Driver(single) as driver:
        driver.core.submit(make_request("r", (2,)), 1, wants_events=False)
        driver.wait_for_last(1)
    assert seen[single] == own
    assert seen[first] == seen[other] == min(19, own + 4)
