import asyncio
import time
from contextlib import aclosing

import pytest

from service.engine.async_engine import AsyncEngine
from service.engine.errors import (
    DeadlineExceeded,
    DuplicateRequestId,
    EngineDead,
    EngineStopping,
    QueueFull,
    RequestAborted,
)
from service.engine.interface import EngineState
from service.engine.request import RequestDoneEvent, TokensEvent
from service.engine.work import piece_of_work
from tests.service.engine.helpers import (
    INFO,
    WAIT_SECONDS,
    ScriptedRunner,
    assert_all_is_free,
    make_limits,
    make_request,
    running_engine,
)


def run(scenario):
    async def with_time_limit():
        async with asyncio.timeout(WAIT_SECONDS):
            await scenario()

    asyncio.run(with_time_limit())


async def in_step(runner):
    """Returns when the engine is in the midst of a step."""
    while not runner.in_step.is_set():
        await asyncio.sleep(0.001)


async def next_step(runner):
    """Lets the present step go on, and returns when the engine is in the midst of the next."""
    count = len(runner.steps)
    runner.allow_steps()
    while len(runner.steps) == count or not runner.in_step.is_set():
        await asyncio.sleep(0.001)


def test_life_of_an_engine():
    async def scenario():
        runner = ScriptedRunner()
        engine = AsyncEngine(lambda: runner, make_limits())
        assert (engine.state, engine.is_ready) == (EngineState.NEW, False)
        assert engine.not_ready_reason == "the engine has not started"
        assert engine.models() == ()
        with pytest.raises(EngineStopping, match="has not started"):
            await engine.submit(make_request())

        starting = asyncio.create_task(engine.start())
        await asyncio.sleep(0)
        assert engine.not_ready_reason == "the engine is loading its models"
        await starting
        assert engine.is_ready
        assert engine.not_ready_reason is None
        assert engine.models() == (INFO,)
        with pytest.raises(RuntimeError, match="starts once"):
            await engine.start()
        result = await engine.submit(make_request(lengths=(4,)))
        assert result.sequences[0].num_target_tokens == 4

        waiting = asyncio.create_task(engine.wait_closed())
        await engine.stop(0)
        assert await waiting is None
        assert (engine.state, engine.is_ready) == (EngineState.STOPPED, False)
        with pytest.raises(EngineStopping, match="has stopped"):
            await engine.submit(make_request())
        await engine.stop(0)
        assert_all_is_free(engine)

    run(scenario)


def test_engine_that_never_started_can_be_stopped():
    async def scenario():
        engine = AsyncEngine(ScriptedRunner, make_limits())
        await engine.stop(1)
        assert engine.state is EngineState.STOPPED
        assert await engine.wait_closed() is None

    run(scenario)


def test_many_requests_at_once_all_come_back_to_their_own_callers():
    async def scenario():
        async with running_engine(ScriptedRunner()) as engine:
            lengths = [1 + i * 7 % 23 for i in range(60)]
            requests = [make_request(f"r{i}", (length, 3)) for i, length in enumerate(lengths)]
            results = await asyncio.gather(*map(engine.submit, requests))
            for request, result in zip(requests, results, strict=True):
                assert result.request_id == request.request_id
                for sequence, sequence_result in zip(request.sequences, result.sequences, strict=True):
                    assert sequence_result.hypotheses[0].tokens == sequence.source_ids

    run(scenario)


def test_stream_joined_is_the_final_result():
    async def scenario():
        async with running_engine(ScriptedRunner()) as engine:
            tokens = {0: (), 1: ()}
            async for event in engine.stream(make_request(lengths=(6, 4))):
                if isinstance(event, TokensEvent):
                    tokens[event.sequence_index] += event.token_ids
            assert isinstance(event, RequestDoneEvent)
            for index, sequence in enumerate(event.result.sequences):
                assert tokens[index] == sequence.hypotheses[0].tokens_without_eos

    run(scenario)


def test_cancelled_task_frees_its_rows_within_a_step_and_its_rest_never_starts():
    async def scenario():
        runner = ScriptedRunner(is_gated=True)
        async with running_engine(runner, make_limits(max_rows=2)) as engine:
            array = asyncio.create_task(engine.submit(make_request("array", (9,) * 30)))
            await in_step(runner)
            other = asyncio.create_task(engine.submit(make_request("other", (3,))))
            await next_step(runner)
            assert [len(source) for source in runner.steps[-1]] == [9, 9]
            array.cancel()
            with pytest.raises(asyncio.CancelledError):
                await array
            await next_step(runner)
            assert [len(source) for source in runner.steps[-1]] == [3]
            runner.open_gate()
            assert (await other).sequences[0].num_target_tokens == 3
            assert [len(source) for step in runner.steps[2:] for source in step] == [3, 3, 3]

    run(scenario)


def test_closed_stream_frees_its_rows():
    async def scenario():
        runner = ScriptedRunner(is_gated=True)
        async with running_engine(runner) as engine:
            runner.allow_steps()
            async with aclosing(engine.stream(make_request(lengths=(9, 9)))) as events:
                async for event in events:
                    assert isinstance(event, TokensEvent)
                    break
            later = asyncio.create_task(engine.submit(make_request("later", (2,))))
            await asyncio.sleep(0)
            await in_step(runner)
            await next_step(runner)
            assert [len(source) for source in runner.steps[-1]] == [2]
            runner.open_gate()
            await later

    run(scenario)


def test_abort_ends_a_request_for_its_caller_and_frees_its_id():
    async def scenario():
        runner = ScriptedRunner(is_gated=True)
        async with running_engine(runner) as engine:
            held = asyncio.create_task(engine.submit(make_request("a", (9,))))
            await in_step(runner)
            with pytest.raises(DuplicateRequestId):
                await engine.submit(make_request("a"))
            engine.abort("a")
            engine.abort("a")
            engine.abort("unknown")
            again = asyncio.create_task(engine.submit(make_request("a", (2,))))
            with pytest.raises(RequestAborted):
                await held
            runner.open_gate()
            assert (await again).num_target_tokens == 2

    run(scenario)


def test_message_on_its_way_to_an_aborted_request_does_not_reach_its_successor():
    async def scenario():
        runner = ScriptedRunner(is_gated=True)
        async with running_engine(runner) as engine:
            old = asyncio.create_task(engine.submit(make_request("a", (1,))))
            await in_step(runner)
            runner.allow_steps()
            time.sleep(0.2)  # The loop is kept busy: the result of the old one is on its way, and not yet told.
            engine.abort("a")
            runner.open_gate()
            assert (await engine.submit(make_request("a", (5,)))).num_target_tokens == 5
            with pytest.raises(RequestAborted):
                await old

    run(scenario)


def test_deadline_ends_a_running_and_a_waiting_request():
    async def scenario():
        runner = ScriptedRunner(is_gated=True)
        async with running_engine(runner, make_limits(max_rows=1)) as engine:
            passed = 0
            engine._core._clock = lambda: time.monotonic() + passed
            soon = time.monotonic() + 30
            running = asyncio.create_task(engine.submit(make_request("a", (9,), deadline=soon)))
            await in_step(runner)
            waiting = asyncio.create_task(engine.submit(make_request("b", (9,), deadline=soon)))
            patient = asyncio.create_task(engine.submit(make_request("c", (2,), deadline=soon + 300)))
            await asyncio.sleep(0)
            passed = 31
            await next_step(runner)
            assert [len(source) for source in runner.steps[-1]] == [2]
            with pytest.raises(DeadlineExceeded):
                await running
            with pytest.raises(DeadlineExceeded):
                await waiting
            runner.open_gate()
            assert (await patient).num_target_tokens == 2

    run(scenario)


def test_deadline_that_has_passed_costs_no_step():
    async def scenario():
        runner = ScriptedRunner()
        async with running_engine(runner) as engine:
            with pytest.raises(DeadlineExceeded):
                await engine.submit(make_request(deadline=time.monotonic() - 1))
            assert runner.steps == []

    run(scenario)


def test_full_queue_is_refused_at_once_and_leaves_nothing_behind():
    async def scenario():
        runner = ScriptedRunner(is_gated=True)
        async with running_engine(runner, make_limits(max_rows=1, max_waiting_tokens=100)) as engine:
            running = asyncio.create_task(engine.submit(make_request("a", (2,))))
            await in_step(runner)
            waiting = asyncio.create_task(engine.submit(make_request("b", (100,))))
            await asyncio.sleep(0)
            with pytest.raises(QueueFull):
                await engine.submit(make_request("c", (1,)))
            waiting.cancel()
            runner.open_gate()
            await running
            while engine.stats().waiting_sequences:  # The end of `b` may still be on its way to the engine's thread.
                await asyncio.sleep(0.001)
            await engine.submit(make_request("c", (100,)))  # Neither its id nor the tokens of `b` are still held.

    run(scenario)


def test_stop_lets_what_was_accepted_run_to_its_end():
    async def scenario():
        runner = ScriptedRunner(is_gated=True)
        engine = AsyncEngine(lambda: runner, make_limits(max_rows=1))
        await engine.start()
        tasks = [asyncio.create_task(engine.submit(make_request(f"r{i}", (5,)))) for i in range(3)]
        await in_step(runner)
        stopping = asyncio.create_task(engine.stop(grace_seconds=WAIT_SECONDS))
        await asyncio.sleep(0)
        assert engine.not_ready_reason == "the engine is stopping"
        with pytest.raises(EngineStopping):
            await engine.submit(make_request("late"))
        runner.open_gate()
        for result in await asyncio.gather(*tasks):
            assert result.num_target_tokens == 5
        await stopping
        assert_all_is_free(engine)

    run(scenario)


def test_stop_ends_what_outlives_the_grace():
    async def scenario():
        runner = ScriptedRunner(is_gated=True)
        engine = AsyncEngine(lambda: runner, make_limits(max_rows=1))
        await engine.start()
        tasks = [asyncio.create_task(engine.submit(make_request(f"r{i}", (100,)))) for i in range(3)]
        await in_step(runner)
        stopping = asyncio.create_task(engine.stop(grace_seconds=0.02))
        await asyncio.sleep(0.04)
        runner.allow_steps()
        await stopping
        for task in tasks:
            with pytest.raises(EngineStopping):
                await task
        assert len(runner.steps) == 1
        assert_all_is_free(engine)

    run(scenario)


def test_death_turns_readiness_off_and_ends_all_who_wait():
    async def scenario():
        runner = ScriptedRunner(is_gated=True)
        async with running_engine(runner, make_limits(max_rows=1)) as engine:
            waiting = asyncio.create_task(engine.wait_closed())
            tasks = [asyncio.create_task(engine.submit(make_request(f"r{i}"))) for i in range(3)]
            await in_step(runner)
            await next_step(runner)
            assert engine.stats().reserved_rows == 1
            runner.fault = MemoryError("no room")
            runner.open_gate()
            for task in tasks:
                with pytest.raises(EngineDead, match="MemoryError: no room"):
                    await task
            error = await waiting
            assert isinstance(error, EngineDead)
            assert (engine.state, engine.is_ready) == (EngineState.DEAD, False)
            assert engine.not_ready_reason == "the engine died: MemoryError: no room"
            with pytest.raises(EngineDead):
                await engine.submit(make_request())
            await engine.stop(0)
            assert engine.state is EngineState.DEAD

    run(scenario)


@pytest.mark.parametrize("where", ["load", "warm_up"])
def test_models_that_cannot_be_loaded_fail_the_start(where):
    async def scenario():
        runner = ScriptedRunner()
        runner.warm_up_fault = ValueError("bad weights")

        def load():
            if where == "load":
                raise ValueError("bad weights")
            return runner

        engine = AsyncEngine(load, make_limits())
        with pytest.raises(EngineDead, match="ValueError: bad weights"):
            await engine.start()
        assert engine.state is EngineState.DEAD
        assert_all_is_free(engine)

    run(scenario)


def test_start_that_is_cancelled_leaves_no_thread():
    async def scenario():
        def load():
            time.sleep(0.05)
            return ScriptedRunner()

        engine = AsyncEngine(load, make_limits())
        starting = asyncio.create_task(engine.start())
        await asyncio.sleep(0.01)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert engine.state is EngineState.STOPPED
        assert_all_is_free(engine)

    run(scenario)


def test_stats_count_what_runs_and_what_waits():
    async def scenario():
        runner = ScriptedRunner(is_gated=True)
        steps = []
        async with running_engine(runner, make_limits(max_rows=2), steps.append) as engine:
            tasks = [
                asyncio.create_task(engine.submit(make_request("a", (4, 4, 4), max_target_tokens=6))),
                asyncio.create_task(engine.submit(make_request("b", (4,), max_target_tokens=6))),
            ]
            await in_step(runner)
            await next_step(runner)
            stats = engine.stats()
            assert stats.running_requests + stats.waiting_requests == 2
            assert (stats.running_sequences, stats.reserved_rows, stats.batch_rows) == (2, 2, 2)
            assert stats.running_sequences + stats.waiting_sequences == 4
            assert stats.kv_cache_total_bytes == 1000
            assert stats.kv_cache_used_bytes == 20
            runner.open_gate()
            await asyncio.gather(*tasks)
            while engine.stats().running_sequences:
                await asyncio.sleep(0.001)
            stats = engine.stats()
            assert stats.source_tokens_total == 16
            assert stats.target_tokens_total == 16
            assert sum(step.num_rows for step in steps) == 16
            assert stats.steps_total == len(steps) == len(runner.steps)

    run(scenario)


def test_what_belongs_to_begun_work_is_taken_while_the_engine_stops():
    """A sentence that is tried again is a new submission: refusing it would throw away what was done."""

    async def scenario():
        runner = ScriptedRunner(is_gated=True)
        async with running_engine(runner) as engine:
            again = asyncio.Event()

            async def in_rounds():
                with piece_of_work():
                    await engine.submit(make_request("first", (3,)))
                    await again.wait()
                    return await engine.submit(make_request("second", (4,)))

            working = asyncio.create_task(in_rounds())
            await in_step(runner)
            stopping = asyncio.create_task(engine.stop(WAIT_SECONDS))
            runner.open_gate()
            while engine.stats().running_sequences:
                await asyncio.sleep(0.001)
            await asyncio.sleep(0.05)  # nothing runs now, and the work is not done
            assert not stopping.done()
            with pytest.raises(EngineStopping), piece_of_work():
                await engine.submit(make_request("other", (3,)))
            with pytest.raises(EngineStopping):
                await engine.submit(make_request("other", (3,)))
            again.set()
            assert (await working).num_target_tokens == 4
            await stopping
            assert engine.state is EngineState.STOPPED
            assert_all_is_free(engine)

    run(scenario)


def test_what_is_still_being_prepared_when_the_engine_stops_is_taken():
    """A long text is taken apart for a while before its first submission."""

    async def scenario():
        async with running_engine(ScriptedRunner()) as engine:
            prepared = asyncio.Event()

            async def prepare_and_submit():
                with piece_of_work():
                    await prepared.wait()
                    return await engine.submit(make_request("late", (4,)))

            working = asyncio.create_task(prepare_and_submit())
            await asyncio.sleep(0)
            stopping = asyncio.create_task(engine.stop(WAIT_SECONDS))
            await asyncio.sleep(0.05)
            assert not stopping.done()
            with pytest.raises(EngineStopping), piece_of_work():
                await engine.submit(make_request("new", (3,)))
            prepared.set()
            assert (await working).num_target_tokens == 4
            await stopping
            assert_all_is_free(engine)

    run(scenario)


def test_work_that_does_not_end_is_ended_with_the_grace():
    async def scenario():
        runner = ScriptedRunner()
        async with running_engine(runner) as engine:
            with piece_of_work():
                await engine.submit(make_request("first", (3,)))
                started = time.monotonic()
                await engine.stop(0.2)
                assert 0.15 < time.monotonic() - started < 5
                with pytest.raises(EngineStopping):
                    await engine.submit(make_request("second", (3,)))

    run(scenario)


def test_begun_work_is_not_refused_for_want_of_room():
    async def scenario():
        runner = ScriptedRunner(is_gated=True)
        async with running_engine(runner, make_limits(max_waiting_tokens=100)) as engine:
            with piece_of_work():
                first = asyncio.create_task(engine.submit(make_request("first", (3,))))
                await in_step(runner)
                full = asyncio.create_task(engine.submit(make_request("full", (60, 40))))
                await asyncio.sleep(0)
                second = asyncio.create_task(engine.submit(make_request("second", (3,))))
                await asyncio.sleep(0)
            with pytest.raises(QueueFull):
                await engine.submit(make_request("other", (3,)))
            runner.open_gate()
            for task in (first, full, second):
                await task

    run(scenario)
