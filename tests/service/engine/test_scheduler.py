from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule

from service.engine.errors import (
    DuplicateRequestId,
    InvalidOptions,
    QueueFull,
    RequestRejected,
    RequestTooLarge,
    SequenceTooLarge,
    SourceTooLong,
    UnknownModel,
)
from service.engine.request import EngineRequest, SequenceRequest
from service.engine.scheduler import Scheduler
from tests.service.engine.helpers import EOS, INFO, make_limits, make_request, make_sequence

OTHER = replace(INFO, name="other", cache_bytes_per_token=3)


def make_scheduler(models=(INFO,), **limits):
    return Scheduler(models, make_limits(**limits))


def newcomers_of(output):
    return [newcomer for group in output.groups for newcomer in group.newcomers]


def run_to_end(scheduler, max_steps=10_000):
    """Runs every sequence for one step; returns the (request, index) admitted in each step."""
    steps = []
    while not scheduler.is_idle:
        assert len(steps) < max_steps, "nothing moves any more"
        newcomers = newcomers_of(scheduler.schedule())
        steps.append([scheduler.owner(newcomer.sequence_id) for newcomer in newcomers])
        for newcomer in newcomers:
            scheduler.finish(newcomer.sequence_id)
    scheduler.check_integrity()
    return steps


# --- admission -------------------------------------------------------------------------------------------------------


def test_sequences_are_admitted_by_rows():
    scheduler = make_scheduler(max_rows=5)
    scheduler.submit(make_request(lengths=(4,) * 3, beam_size=2))
    assert len(newcomers_of(scheduler.schedule())) == 2
    assert scheduler.slots.free_rows == 1
    assert newcomers_of(scheduler.schedule()) == []


def test_sequences_are_admitted_by_the_cache_they_may_come_to_need():
    # One takes 2 rows of 4 source and 6 target positions.
    scheduler = make_scheduler(max_rows=100, kv_cache_bytes=59)
    scheduler.submit(make_request(lengths=(4,) * 5, beam_size=2, max_target_tokens=6))
    assert len(newcomers_of(scheduler.schedule())) == 2
    assert scheduler.slots.used_cache_bytes == 40


def test_models_share_one_cache_each_at_its_own_price():
    scheduler = make_scheduler((INFO, OTHER), kv_cache_bytes=40)
    scheduler.submit(make_request("a", model="tiny", max_target_tokens=6))
    scheduler.submit(make_request("b", model="other", max_target_tokens=6))
    scheduler.submit(make_request("c", model="tiny", max_target_tokens=6))
    output = scheduler.schedule()
    assert [(group.model, len(group.newcomers)) for group in output.groups] == [("tiny", 1), ("other", 1)]
    assert scheduler.slots.used_cache_bytes == 10 + 30


def test_encoder_work_of_a_step_is_bounded_in_tokens():
    scheduler = make_scheduler(max_rows=100, kv_cache_bytes=100_000, max_encode_tokens_per_step=20)
    scheduler.submit(make_request(lengths=(8,) * 5))
    assert [len(newcomers_of(scheduler.schedule())) for _ in range(4)] == [2, 2, 1, 0]


def test_source_longer_than_the_encoders_bound_is_encoded_alone():
    scheduler = make_scheduler(max_rows=100, kv_cache_bytes=100_000, max_encode_tokens_per_step=20)
    scheduler.submit(make_request(lengths=(4, 60, 4)))
    steps = [[len(newcomer.source_ids) for newcomer in newcomers_of(scheduler.schedule())] for _ in range(3)]
    assert steps == [[4], [60], [4]]


def test_short_ones_pass_a_long_one_that_the_encoder_has_no_time_for_and_it_is_first_in_the_next_step():
    scheduler = make_scheduler(max_rows=3, kv_cache_bytes=100_000, max_encode_tokens_per_step=20)
    for name, length in (("a", 10), ("long", 18), ("b", 4), ("c", 1), ("d", 2)):
        scheduler.submit(make_request(name, (length,)))
    first = newcomers_of(scheduler.schedule())
    assert sorted(len(each.source_ids) for each in first) == [1, 4, 10]
    scheduler.finish(first[0].sequence_id)
    assert [len(each.source_ids) for each in newcomers_of(scheduler.schedule())] == [18]
    scheduler.check_integrity()


def test_newcomers_are_encoded_together_with_those_of_like_length():
    scheduler = make_scheduler(max_rows=100, kv_cache_bytes=100_000, max_encode_tokens_per_step=1000)
    scheduler.submit(make_request(lengths=(40, 8, 41, 9, 3, 14)))
    groups = [[len(n.source_ids) for n in group.newcomers] for group in scheduler.schedule().groups]
    assert groups == [[3], [8, 9, 14], [40, 41]]


def test_target_limit_is_that_of_the_options_or_grows_with_the_source():
    scheduler = make_scheduler(max_target_tokens=30, max_rows=10)
    scheduler.submit(
        EngineRequest(
            "r",
            "tiny",
            (
                make_sequence(4, max_target_tokens=7),
                make_sequence(4),
                make_sequence(10),
                replace(make_sequence(2), forced_prefix=(5,) * 25),
                make_sequence(2, min_target_tokens=29),
            ),
        )
    )
    by_id = sorted(newcomers_of(scheduler.schedule()), key=lambda newcomer: newcomer.sequence_id)
    assert [newcomer.max_target_tokens for newcomer in by_id] == [7, 28, 30, 26, 29]


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("request_", "error", "message"),
    [
        (make_request(model="en-de"), UnknownModel, '"en-de".*tiny'),
        (make_request(lengths=(4, 101)), SourceTooLong, "a segment has 101 tokens; at most 100"),
        (make_request(beam_size=5), SequenceTooLarge, "may need 5 rows, but there are 4"),
        (
            make_request(lengths=(60,), beam_size=4, max_target_tokens=100),
            SequenceTooLarge,
            "may need 640 cache bytes, but there are 600",
        ),
        (make_request(max_target_tokens=101), InvalidOptions, "max_target_tokens is 101; allowed is at most 100"),
        (make_request(min_target_tokens=101), InvalidOptions, "min_target_tokens is 101; allowed is at most 100"),
        (make_request(lengths=(100,) * 6), RequestTooLarge, "has 600 source tokens; at most 500"),
        (EngineRequest("r", "tiny", (SequenceRequest(()),)), InvalidOptions, "source_ids.*allowed is what ends with"),
        (
            EngineRequest("r", "tiny", (SequenceRequest((5, 6)),)),
            InvalidOptions,
            "source_ids.*allowed is what ends with",
        ),
        (EngineRequest("r", "tiny", (SequenceRequest((100, EOS)),)), InvalidOptions, "source_ids is 100.*0 to 99"),
        (EngineRequest("r", "tiny", (SequenceRequest((-1, EOS)),)), InvalidOptions, "source_ids is -1.*0 to 99"),
        (
            EngineRequest("r", "tiny", (SequenceRequest((5, EOS), forced_prefix=(100,)),)),
            InvalidOptions,
            "forced_prefix is 100.*0 to 99",
        ),
        (EngineRequest("r", "tiny", (SequenceRequest((5, EOS), forced_prefix=(EOS,)),)), InvalidOptions, "forced_"),
        (
            EngineRequest("r", "tiny", (replace(make_sequence(max_target_tokens=2), forced_prefix=(5, 6)),)),
            InvalidOptions,
            "fewer tokens than the limit of 2; these are 2",
        ),
    ],
)
def test_what_can_never_run_is_refused_with_both_numbers_and_nothing_is_queued(request_, error, message):
    scheduler = make_scheduler(max_waiting_tokens=500, kv_cache_bytes=600)
    with pytest.raises(error, match=message) as caught:
        scheduler.submit(request_)
    assert isinstance(caught.value, RequestRejected)
    assert scheduler.is_idle
    scheduler.check_integrity()


def test_sequence_that_fills_everything_runs():
    scheduler = make_scheduler(kv_cache_bytes=640)
    scheduler.submit(make_request(lengths=(60,), beam_size=4, max_target_tokens=100))
    assert len(newcomers_of(scheduler.schedule())) == 1
    assert scheduler.slots.free_rows == scheduler.slots.free_cache_bytes == 0


def test_model_that_takes_less_than_the_settings_decides():
    scheduler = make_scheduler([replace(INFO, max_source_tokens=10, max_target_tokens=20)])
    with pytest.raises(SourceTooLong, match="at most 10"):
        scheduler.submit(make_request(lengths=(11,)))
    with pytest.raises(InvalidOptions, match="at most 20"):
        scheduler.submit(make_request(max_target_tokens=21))


def test_full_queue_is_refused_with_retry_after():
    scheduler = make_scheduler(max_rows=1, max_waiting_tokens=100)
    scheduler.submit(make_request("a", (100,)))
    with pytest.raises(QueueFull, match="100 of at most 100") as caught:
        scheduler.submit(make_request("b", (1,)), retry_after_seconds=7)
    assert (caught.value.waiting_tokens, caught.value.max_waiting_tokens) == (100, 100)
    assert caught.value.retry_after_seconds == 7
    scheduler.schedule()
    scheduler.submit(make_request("b", (100,)))  # What runs does not wait.


def test_tokens_on_their_way_count_as_waiting():
    scheduler = make_scheduler(max_waiting_tokens=100)
    scheduler.check_room(40, 1.0, num_tokens_ahead=60)
    with pytest.raises(QueueFull):
        scheduler.check_room(40, 1.0, num_tokens_ahead=61)


def test_id_in_use_is_refused_and_free_again_afterwards():
    scheduler = make_scheduler()
    scheduler.submit(make_request("a"))
    with pytest.raises(DuplicateRequestId):
        scheduler.submit(make_request("a"))
    run_to_end(scheduler)
    scheduler.submit(make_request("a"))


# --- fairness --------------------------------------------------------------------------------------------------------


def test_array_of_a_thousand_does_not_starve_a_single_sentence_that_comes_later():
    scheduler = make_scheduler(max_waiting_tokens=10_000)
    scheduler.submit(make_request("array", (8,) * 1000))
    first = newcomers_of(scheduler.schedule())
    scheduler.submit(make_request("single", (8,)))
    for newcomer in first:
        scheduler.finish(newcomer.sequence_id)
    steps = run_to_end(scheduler)
    assert ("single", 0) in steps[0]
    admitted = [owner for step in steps for owner in step]
    assert admitted[:2] == [("array", 4), ("single", 0)]
    assert len(admitted) == 997


def test_lists_leave_rows_for_requests_that_come_later():
    scheduler = make_scheduler(max_rows=20, kv_cache_bytes=10**6)
    for name in ("list", "other list"):
        scheduler.submit(make_request(name, lengths=(4,) * 1000, beam_size=2))
    for _ in range(3):
        scheduler.schedule()
    assert scheduler.slots.free_rows == 6  # a quarter is 5, and a beam takes 2
    scheduler.submit(make_request("late", lengths=(4,) * 2, beam_size=2))
    started = [scheduler.owner(newcomer.sequence_id) for newcomer in newcomers_of(scheduler.schedule())]
    assert started == [("late", 0)]
    assert newcomers_of(scheduler.schedule()) == []
    scheduler.check_integrity()


def test_requests_take_turns_and_keep_their_own_order():
    scheduler = make_scheduler(max_rows=1)
    scheduler.submit(make_request("a", (4,) * 4))
    scheduler.submit(make_request("b", (4,) * 2))
    scheduler.submit(make_request("c", (4,)))
    admitted = [owner for step in run_to_end(scheduler) for owner in step]
    assert admitted == [("a", 0), ("b", 0), ("c", 0), ("a", 1), ("b", 1), ("a", 2), ("a", 3)]


def test_single_sentences_are_served_in_the_order_they_came():
    scheduler = make_scheduler(max_rows=2)
    names = [f"r{i}" for i in range(10)]
    for name in names:
        scheduler.submit(make_request(name))
    assert [owner[0] for step in run_to_end(scheduler) for owner in step] == names


def test_big_sequence_is_not_overtaken_for_ever_by_small_ones():
    scheduler = make_scheduler(max_rows=4)
    scheduler.submit(make_request("small0", max_target_tokens=4))
    running = newcomers_of(scheduler.schedule())
    scheduler.submit(make_request("big", beam_size=4, max_target_tokens=4))
    for i in range(1, 20):  # One small one comes and one goes in every step: never are all rows free by chance.
        scheduler.submit(make_request(f"small{i}", max_target_tokens=4))
        newcomers = newcomers_of(scheduler.schedule())
        for newcomer in running:
            scheduler.finish(newcomer.sequence_id)
        running = newcomers
        if any(newcomer.options.beam_size == 4 for newcomer in running):
            break
    else:
        pytest.fail("the big one was never admitted")
    assert i <= 3


# --- ends ------------------------------------------------------------------------------------------------------------


def test_lanes_have_as_much_to_do():
    scheduler = Scheduler([INFO], make_limits(max_rows=12), num_lanes=2)
    for name in "abcdefghi":
        scheduler.submit(make_request(name, beam_size=2 if name == "a" else 1))
    assert len(newcomers_of(scheduler.schedule(0))) == 4  # "a" has two rows: half of the ten that run and wait
    output = scheduler.schedule(0)
    assert not newcomers_of(output) and not output.some_wait  # there is room for all, in the other lane
    last = newcomers_of(scheduler.schedule(1))
    assert len(last) == 5
    scheduler.check_integrity()
    for newcomer in last[:2]:
        scheduler.finish(newcomer.sequence_id)
    for name in "jk":
        scheduler.submit(make_request(name))
    assert len(newcomers_of(scheduler.schedule(0))) == 0
    assert len(newcomers_of(scheduler.schedule(1))) == 2
    scheduler.check_integrity()


def test_all_lanes_begin_with_their_share_of_a_list():
    scheduler = Scheduler(
        [INFO],
        make_limits(max_rows=64, kv_cache_bytes=100_000, max_encode_tokens_per_step=500),
        num_lanes=2,
        useful_rows=16,
    )
    scheduler.submit(make_request("list", (4,) * 21))
    assert len(newcomers_of(scheduler.schedule(0))) == 11
    assert len(newcomers_of(scheduler.schedule(1))) == 10
    assert scheduler.waiting_rows == 0
    scheduler.submit(make_request("more", (4,) * 40))
    assert len(newcomers_of(scheduler.schedule(1))) == 6
    scheduler.cancel("more")
    scheduler.submit(make_request("wide", (4,) * 3, beam_size=4))
    assert scheduler.waiting_rows == 12
    scheduler.check_integrity()


def test_of_a_list_that_is_being_worked_on_several_are_taken_at_a_time_and_of_others_at_once():
    limits = make_limits(max_rows=64, kv_cache_bytes=100_000, max_encode_tokens_per_step=500)
    scheduler = Scheduler([INFO], limits, num_lanes=2, useful_rows=16)
    scheduler.submit(make_request("list", (4,) * 90))
    first, second = newcomers_of(scheduler.schedule(0)), newcomers_of(scheduler.schedule(1))
    assert len(first) == len(second) == 16
    for count, newcomer in enumerate(first[:3], 1):
        scheduler.finish(newcomer.sequence_id)
        assert newcomers_of(scheduler.schedule(0)) == []
        if count == 2:
            scheduler.submit(make_request("other", (7,)))
            assert [len(each.source_ids) for each in newcomers_of(scheduler.schedule(0))] == [7]
    for newcomer in first[3:5]:
        scheduler.finish(newcomer.sequence_id)
    assert len(newcomers_of(scheduler.schedule(0))) == 4
    for newcomer in second[:-1]:
        scheduler.finish(newcomer.sequence_id)
    assert len(newcomers_of(scheduler.schedule(1))) == 15
    scheduler.check_integrity()


def test_several_beams_are_taken_at_a_time_as_far_as_they_are_half_of_the_rows():
    limits = make_limits(max_rows=64, kv_cache_bytes=100_000, max_encode_tokens_per_step=500)
    scheduler = Scheduler([INFO], limits, useful_rows=16)
    scheduler.submit(make_request("list", (4,) * 9, beam_size=4))
    first = newcomers_of(scheduler.schedule())
    assert len(first) == 4
    scheduler.finish(first[0].sequence_id)
    assert newcomers_of(scheduler.schedule()) == []
    scheduler.finish(first[1].sequence_id)
    assert len(newcomers_of(scheduler.schedule())) == 2
    scheduler.check_integrity()


def test_each_lane_drops_its_own():
    scheduler = Scheduler([INFO], make_limits(), num_lanes=2)
    scheduler.submit(make_request("a", (4, 4)))
    (first,), (second,) = newcomers_of(scheduler.schedule(0)), newcomers_of(scheduler.schedule(1))
    scheduler.cancel("a")
    assert scheduler.is_busy(0) and scheduler.is_busy(1) and not scheduler.is_idle
    assert scheduler.schedule(1).departed == (second.sequence_id,)
    assert scheduler.is_busy(0) and not scheduler.is_busy(1) and not scheduler.is_idle
    assert scheduler.schedule(0).departed == (first.sequence_id,)
    assert scheduler.is_idle
    scheduler.check_integrity()


def test_lane_takes_no_more_rows_than_are_of_use_to_it_but_one_sequence_of_any_width():
    scheduler = Scheduler([INFO], make_limits(max_rows=12), num_lanes=2, useful_rows=3)
    scheduler.submit(make_request("wide", beam_size=5))
    scheduler.submit(make_request("others", (4,) * 9))
    assert len(newcomers_of(scheduler.schedule(0))) == 1
    running = [newcomers_of(scheduler.schedule(1)) for _ in range(4)]
    assert list(map(len, running)) == [3, 0, 0, 0]
    assert not newcomers_of(scheduler.schedule(0))
    assert scheduler.schedule(0).some_wait and scheduler.schedule(1).some_wait
    scheduler.finish(running[0][0].sequence_id)
    assert len(newcomers_of(scheduler.schedule(1))) == 1


def test_cancel_frees_rows_at_once_and_drops_what_has_not_started():
    scheduler = make_scheduler(max_rows=2)
    scheduler.submit(make_request("a", (8,) * 10))
    started = [newcomer.sequence_id for newcomer in newcomers_of(scheduler.schedule())]
    scheduler.submit(make_request("b", (5,)))
    assert scheduler.cancel("a")
    assert scheduler.slots.used_rows == 0
    assert (scheduler.waiting_sequences, scheduler.waiting_tokens) == (1, 5)
    output = scheduler.schedule()
    assert list(output.departed) == started
    assert [len(newcomer.source_ids) for newcomer in newcomers_of(output)] == [5]
    assert scheduler.schedule().departed == ()


def test_runner_is_told_of_departures_even_when_nothing_else_is_to_do():
    scheduler = make_scheduler()
    scheduler.submit(make_request())
    scheduler.schedule()
    scheduler.cancel("r")
    assert not scheduler.is_idle
    assert len(scheduler.schedule().departed) == 1
    assert scheduler.is_idle


def test_cancel_of_an_unknown_request_is_no_error():
    assert not make_scheduler().cancel("r")


def test_end_of_a_sequence_whose_request_was_cancelled_is_no_error():
    scheduler = make_scheduler()
    scheduler.submit(make_request())
    (newcomer,) = newcomers_of(scheduler.schedule())
    scheduler.cancel("r")
    scheduler.finish(newcomer.sequence_id)
    scheduler.check_integrity()


def test_deadlines_are_told_once_in_order_and_only_for_requests_that_live():
    scheduler = make_scheduler(max_rows=10)
    for name, deadline in (("late", 30.0), ("soon", 10.0), ("never", None), ("gone", 15.0), ("mid", 20.0)):
        scheduler.submit(make_request(name, deadline=deadline))
    scheduler.cancel("gone")
    assert scheduler.expired(9.9) == []
    assert scheduler.expired(20.0) == ["soon", "mid"]
    assert scheduler.expired(20.0) == []


def test_deadline_of_an_earlier_request_does_not_hit_a_later_one_of_the_same_id():
    scheduler = make_scheduler()
    scheduler.submit(make_request("a", deadline=10.0))
    scheduler.cancel("a")
    scheduler.submit(make_request("a", deadline=99.0))
    assert scheduler.expired(50.0) == []
    assert scheduler.expired(99.0) == ["a"]


# --- any history -----------------------------------------------------------------------------------------------------


class AnyHistory(RuleBasedStateMachine):
    """Submits, steps, cancels, expires and fails in any order, beside a runner that only counts."""

    LIMITS = {"max_rows": 6, "kv_cache_bytes": 400, "max_waiting_tokens": 300, "max_encode_tokens_per_step": 30}

    requests = Bundle("requests")

    def __init__(self):
        super().__init__()
        self.scheduler = make_scheduler((INFO, OTHER), **self.LIMITS)
        self.now = 0.0
        self.count = 0
        self.live = {}
        """Accepted requests that have not ended: for each the indexes that have not ended."""
        self.admitted = Counter()
        self.runner = {}
        """What a runner would hold: rows and bytes of each sequence."""

    @rule(
        target=requests,
        lengths=st.lists(st.integers(1, 60), min_size=1, max_size=8),
        beam_size=st.sampled_from([1, 1, 1, 2, 4, 6, 7]),
        max_target_tokens=st.one_of(st.none(), st.integers(1, 120)),
        model=st.sampled_from(["tiny", "other"]),
        patience=st.one_of(st.none(), st.integers(0, 5)),
    )
    def submit(self, lengths, beam_size, max_target_tokens, model, patience):
        self.count += 1
        request = make_request(
            f"r{self.count}",
            lengths,
            beam_size=beam_size,
            max_target_tokens=max_target_tokens,
            model=model,
            deadline=None if patience is None else self.now + patience,
        )
        waiting = self.scheduler.waiting_tokens
        try:
            self.scheduler.submit(request)
        except RequestRejected:
            assert self.scheduler.waiting_tokens == waiting
        else:
            self.live[request.request_id] = set(range(len(lengths)))
        return request.request_id

    @rule()
    def step(self):
        output = self.scheduler.schedule()
        for sequence_id in output.departed:
            self.runner.pop(sequence_id, None)
        newcomers = newcomers_of(output)
        assert len(newcomers) <= 1 or sum(len(newcomer.source_ids) for newcomer in newcomers) <= 30
        for group in output.groups:
            price = {"tiny": 1, "other": 3}[group.model]
            for newcomer in group.newcomers:
                owner = self.scheduler.owner(newcomer.sequence_id)
                self.admitted[owner] += 1
                assert owner[1] in self.live[owner[0]]
                rows = newcomer.options.beam_size
                positions = len(newcomer.source_ids) + newcomer.max_target_tokens
                self.runner[newcomer.sequence_id] = rows, rows * positions * price
        assert sum(rows for rows, _ in self.runner.values()) <= 6
        assert sum(size for _, size in self.runner.values()) <= 400
        if self.live and not self.runner:
            pytest.fail("something waits, and nothing runs")

    @precondition(lambda self: self.runner)
    @rule(data=st.data())
    def end_a_sequence(self, data):
        """It has finished, or failed alone: to the scheduler that is one."""
        sequence_id = data.draw(st.sampled_from(sorted(self.runner)))
        owner = self.scheduler.owner(sequence_id)
        self.scheduler.finish(sequence_id)
        del self.runner[sequence_id]
        if owner is not None:
            request_id, index = owner
            self.live[request_id].remove(index)
            if not self.live[request_id]:
                del self.live[request_id]

    @rule(request_id=consumes(requests))
    def cancel(self, request_id):
        assert self.scheduler.cancel(request_id) == (request_id in self.live)
        self.live.pop(request_id, None)

    @rule(seconds=st.integers(1, 3))
    def expire(self, seconds):
        self.now += seconds
        for request_id in self.scheduler.expired(self.now):
            assert request_id in self.live
            self.cancel(request_id)

    @invariant()
    def books_agree(self):
        self.scheduler.check_integrity()
        assert set(self.scheduler.request_ids) == set(self.live)
        assert self.scheduler.waiting_tokens <= 300
        assert set(self.admitted.values()) <= {1}

    def teardown(self):
        for _ in range(1000):
            if self.scheduler.is_idle:
                break
            self.step()
            for sequence_id in list(self.runner):
                self.scheduler.finish(sequence_id)
                del self.runner[sequence_id]
            self.live = {name: self.live[name] for name in self.scheduler.request_ids}
        assert self.scheduler.is_idle
        self.scheduler.check_integrity()
        assert (self.scheduler.slots.free_rows, self.scheduler.slots.free_cache_bytes) == (6, 400)


AnyHistory.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestAnyHistory = AnyHistory.TestCase
