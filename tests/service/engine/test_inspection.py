import asyncio
import threading
import time

import pytest

from model.words import TokenText
from service.aside import breathe
from service.engine import inspection as inspection_module
from service.engine.errors import DeadlineExceeded, EngineStopping, InspectionBusy
from service.engine.inspection import AlignmentPair, Inspection


class FakeReplayer:
    """Work is whatever a test hands in; alignments tell in which thread they were made."""

    def __init__(self):
        self.threads = []

    def facts(self):
        return {"en-fr": "facts"}

    def enter_thread(self):
        self.threads.append(threading.current_thread().name)

    def align(self, model, pairs, recipe=None):
        return [(model, pair.source_ids, threading.current_thread().name) for pair in pairs]


class Gate:
    """Work that waits until it is let go on."""

    def __init__(self):
        self.has_begun = threading.Event()
        self.may_end = threading.Event()

    def __call__(self, _replayer):
        self.has_begun.set()
        assert self.may_end.wait(60)
        return "done"


@pytest.fixture
def replayer():
    return FakeReplayer()


def run(scenario, replayer, max_waiting=2):
    """Runs an async scenario with an opened inspection, which is closed at the end."""

    async def main():
        inspection = Inspection(max_waiting)
        if replayer is not None:
            inspection.open(replayer)
        try:
            return await scenario(inspection)
        finally:
            await inspection.close()

    return asyncio.run(main())


async def begun(gate):
    while not gate.has_begun.is_set():
        await asyncio.sleep(0.001)


def test_work_runs_in_one_thread_one_after_the_other(replayer):
    def look(_replayer):
        return threading.current_thread().name

    async def scenario(inspection):
        return await asyncio.gather(*(inspection.run(look) for _ in range(3)))

    names = set(run(scenario, replayer))
    assert len(names) == 1
    assert replayer.threads == list(names)
    assert names.pop().startswith("gossamer-inspection")


def test_each_piece_of_work_waits_for_a_gap_between_translations(replayer, monkeypatch):
    monkeypatch.setattr(inspection_module, "MAX_REST_SECONDS", 60)
    monkeypatch.setattr(inspection_module, "REST_RATIO", float("inf"))
    decoding = [True] * 4
    looks = []

    def is_decoding():
        looks.append(threading.current_thread().name)
        return decoding.pop() if decoding else False

    def look(_replayer):
        assert decoding == []  # the first piece waited
        decoding.extend([True] * 3)
        breathe()
        assert decoding == []  # so did the next
        return "done"

    async def main():
        inspection = Inspection(2, is_decoding)
        inspection.open(replayer)
        assert await inspection.run(look) == "done"
        num_looks = len(looks)
        decoding.extend([True] * 3)
        await inspection.align("en-fr", [])
        breathe()  # of the other thread, whose work a translation waits for
        await inspection.close()
        return num_looks

    assert asyncio.run(main()) == len(looks) == 4 + 1 + 3 + 1


def test_a_busy_engine_keeps_no_replay_out_for_ever(replayer, monkeypatch):
    monkeypatch.setattr(inspection_module, "MAX_REST_SECONDS", 0.02)

    async def main():
        inspection = Inspection(2, lambda: True)
        inspection.open(replayer)
        assert await inspection.run(lambda _: "done") == "done"
        await inspection.close()

    asyncio.run(main())


def test_a_busy_engine_leaves_a_replay_a_share_of_its_time(replayer):
    async def main():
        inspection = Inspection(2, lambda: True)
        inspection.open(replayer)

        def look(_replayer):
            took = []
            for _ in range(3):
                worked = time.monotonic()
                time.sleep(0.01)
                rested = time.monotonic()
                breathe()
                took.append((rested - worked, time.monotonic() - rested))
            return took

        took = await inspection.run(look)
        await inspection.close()
        return took

    for worked, rested in asyncio.run(main()):
        assert rested >= 0.9 * inspection_module.REST_RATIO * worked


def test_who_does_not_replay_has_no_need_to_rest():
    started = time.monotonic()
    breathe()
    assert time.monotonic() - started < inspection_module.MAX_REST_SECONDS


def test_what_more_would_wait_is_refused_at_once_with_a_time(replayer):
    async def scenario(inspection):
        gate = Gate()
        running = asyncio.create_task(inspection.run(gate))
        await begun(gate)
        waiting = [asyncio.create_task(inspection.run(lambda _: "waited")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(InspectionBusy) as refusal:
            await inspection.run(lambda _: "never")
        assert (refusal.value.num_pending, refusal.value.max_waiting) == (3, 2)
        assert refusal.value.retry_after_seconds >= 1
        gate.may_end.set()
        assert await running == "done"
        assert await asyncio.gather(*waiting) == ["waited", "waited"]
        assert await inspection.run(lambda _: "again") == "again"

    run(scenario, replayer)


def test_alignment_waits_for_nobody_who_looks(replayer):
    pair = AlignmentPair((1, 3), TokenText("a", ("a", "</s>"), ((0, 1), (1, 1)), (False, True)), (2, 3))

    async def scenario(inspection):
        gate = Gate()
        running = asyncio.create_task(inspection.run(gate))
        await begun(gate)
        for _ in range(5):
            ((model, source_ids, thread),) = await inspection.align("en-fr", [pair], time.monotonic() + 60)
        gate.may_end.set()
        await running
        return model, source_ids, thread

    model, source_ids, thread = run(scenario, replayer)
    assert (model, source_ids) == ("en-fr", (1, 3))
    assert thread.startswith("gossamer-alignment")


def test_a_deadline_ends_waiting_and_frees_the_place(replayer):
    async def scenario(inspection):
        gate = Gate()
        running = asyncio.create_task(inspection.run(gate))
        await begun(gate)
        with pytest.raises(DeadlineExceeded):
            await inspection.run(lambda _: "late", time.monotonic() + 0.01)
        gate.may_end.set()
        await running
        assert await asyncio.gather(*(inspection.run(lambda _: "on time") for _ in range(3)))

    run(scenario, replayer)


def test_a_caller_who_left_takes_the_waiting_work_along(replayer):
    async def scenario(inspection):
        gate, ran = Gate(), []
        running = asyncio.create_task(inspection.run(gate))
        await begun(gate)
        waiting = asyncio.create_task(inspection.run(ran.append))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.may_end.set()
        await running
        await inspection.run(lambda _: None)
        assert ran == []

    run(scenario, replayer)


def test_an_error_reaches_the_caller_and_the_next_one_is_served(replayer):
    def fail(_replayer):
        raise ZeroDivisionError("of the work")

    async def scenario(inspection):
        for _ in range(5):
            with pytest.raises(ZeroDivisionError):
                await inspection.run(fail)
        assert await inspection.run(lambda _: "well") == "well"

    run(scenario, replayer)


def test_nothing_is_taken_before_the_models_are_loaded():
    async def scenario(inspection):
        with pytest.raises(EngineStopping, match="loading"):
            await inspection.run(lambda _: None)
        with pytest.raises(EngineStopping, match="loading"):
            await inspection.align("en-fr", [])
        with pytest.raises(EngineStopping, match="loading"):
            inspection.facts("en-fr")

    run(scenario, None)


def test_closing_ends_what_waits_and_takes_nothing_more(replayer):
    async def main():
        inspection = Inspection(2)
        inspection.open(replayer)
        gate = Gate()
        running = asyncio.create_task(inspection.run(gate))
        await begun(gate)
        waiting = asyncio.create_task(inspection.run(lambda _: None))
        await asyncio.sleep(0.01)
        closing = asyncio.create_task(inspection.close())
        with pytest.raises(EngineStopping):
            await waiting
        gate.may_end.set()
        assert await running == "done"
        await closing
        with pytest.raises(EngineStopping):
            await inspection.run(lambda _: None)

    asyncio.run(main())
