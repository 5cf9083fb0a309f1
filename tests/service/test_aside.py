import asyncio
import threading
import time

import pytest

from service import aside as module
from service.aside import PIECE_SECONDS, aside, breathe


@pytest.mark.parametrize(("size", "is_aside"), [(0.0, False), (1.0, False), (1.01, True), (float("inf"), True)])
def test_what_is_long_runs_in_a_thread_and_what_is_short_at_once(size, is_aside):
    def call(one, *, other):
        return one, other, threading.get_ident() != threading.main_thread().ident

    assert asyncio.run(aside(call, size, 1, other=2)) == (1, 2, is_aside)


def test_its_errors_are_the_callers():
    def fail():
        raise KeyError("x")

    with pytest.raises(KeyError):
        asyncio.run(aside(fail, 2))


@pytest.fixture
def rests(monkeypatch):
    """For each rest the thread that took it."""
    found = []

    class Clock:
        perf_counter = staticmethod(time.perf_counter)
        thread_time = staticmethod(lambda: 0.0)  # others have had all the time

        @staticmethod
        def sleep(_seconds):
            found.append(threading.get_ident())

    monkeypatch.setattr(module, "time", Clock)
    return found


def work_for(seconds):
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        breathe()


def test_long_work_rests_after_each_piece_and_only_where_it_is_in_nobodys_way(rests):
    asyncio.run(aside(work_for, 2, 10 * PIECE_SECONDS))
    assert 1 <= len(rests) <= 10
    assert threading.main_thread().ident not in rests
    rests.clear()
    asyncio.run(aside(work_for, 0, 3 * PIECE_SECONDS))
    work_for(3 * PIECE_SECONDS)
    assert rests == []


def test_work_from_which_nobody_takes_time_does_not_rest(rests, monkeypatch):
    monkeypatch.setattr(module.time, "thread_time", time.perf_counter)
    asyncio.run(aside(work_for, 2, 10 * PIECE_SECONDS))
    assert rests == []


def test_little_work_does_not_rest(rests):
    asyncio.run(aside(breathe, 2))
    assert rests == []
