"""The largest requests hold up nobody: neither the event loop, nor, for long, Python's lock.

What counts is the processor time of one thread between two moments at which others have their turn, so that it does
not matter how busy the machine is. The engine is none: its steps let go of the lock. The collector of cycles counts.
"""

import asyncio
import gc
import threading
import time
from collections import defaultdict

import pytest
from starlette.testclient import TestClient

from model.tokenizer import Tokenizer
from service import aside, heap
from service.app import create_app
from service.engine.request import RequestResult
from service.settings import BUNDLED_MODELS, Settings
from service.text.detection import warm_up
from tests.service.fakes import FakeEngine

SIZE = 16_384
"""An eighth of what a request may hold: a piece of work is as long as with all of it."""

MAX_SECONDS = 0.25
"""Far above what there is (0.12 on a slow processor), and below what it was."""

SENTENCE = "The spider feels the web, and number {} does not. "


def fill(pattern):
    text = "".join(pattern.format(number) for number in range(SIZE // len(pattern)))
    return text[:SIZE]


REQUESTS = {
    "lines": {"text": "a\n" * (SIZE // 2), "source": "en"},
    "lines that differ": {"text": fill("a {}\n"), "source": "en"},
    "sentences": {"text": fill(SENTENCE), "source": "en"},
    "a language to find": {"text": fill(SENTENCE), "source": "auto"},
    "a stream": {"text": "a\n" * (SIZE // 8), "source": "en", "stream": True},
    "a list": {"text": [SENTENCE.format(number) for number in range(256)], "return": ["segments", "tokens", "scores"]},
    "elements": {"text": fill("<p>a <b>b</b></p>"), "source": "en", "format": "html"},
    "inline elements": {"text": fill("word <b>b {}</b> "), "source": "en", "format": "html"},
    "no space": {"text": "a" * SIZE, "source": "en"},
}


class _AsideEngine(FakeEngine):
    """A fake engine that is in nobody's way, as the real one."""

    async def submit(self, request):
        results = await asyncio.to_thread(lambda: tuple(map(self._result, request.sequences)))
        return RequestResult(request.request_id, results)

    async def stream(self, request):
        async for event in super().stream(request):
            yield event
            await asyncio.sleep(0)


@pytest.fixture(scope="module")
def client():
    warm_up()
    tokenizer = Tokenizer(BUNDLED_MODELS / "en-fr" / "tokenizer.model")
    engine = _AsideEngine()
    app = create_app(Settings(request_timeout_seconds=600), engine, {"en-fr": tokenizer})
    thresholds = gc.get_threshold()
    with TestClient(app) as client:
        client.post("/v1/translate", json={"text": "Hello.", "source": "en"})
        heap.settle()
        yield client
    gc.unfreeze()
    gc.set_threshold(*thresholds)


@pytest.fixture
def held(monkeypatch):
    """By kind of work the processor seconds for which it held the loop, or Python's lock, without a break."""
    found = defaultdict(list)
    run = asyncio.events.Handle._run
    pace = aside._pacing
    since = threading.local()

    def run_measured(self):
        started = time.thread_time()
        try:
            run(self)
        finally:
            found["loop"].append(time.thread_time() - started)

    def cut():
        found["thread"].append(time.thread_time() - since.moment)
        since.moment = time.thread_time()

    def pace_measured(call):
        since.moment = time.thread_time()
        try:
            return pace(call)
        finally:
            cut()

    class Clock:
        perf_counter = staticmethod(time.perf_counter)
        thread_time = staticmethod(lambda: 0.0)  # others want the lock all the time

        @staticmethod
        def sleep(seconds):
            cut()
            time.sleep(seconds)
            since.moment = time.thread_time()

    monkeypatch.setattr(asyncio.events.Handle, "_run", run_measured)
    monkeypatch.setattr(aside, "_pacing", pace_measured)
    monkeypatch.setattr(aside, "time", Clock)
    return found


@pytest.mark.parametrize("kind", REQUESTS)
def test_the_largest_requests_are_cut_into_small_pieces(client, held, kind):
    answer = client.post("/v1/translate", json=REQUESTS[kind])
    assert answer.status_code == 200, answer.text[:300]
    assert len(held["thread"]) >= 2, "nothing was long"
    assert max(held["loop"]) < MAX_SECONDS
    assert max(held["thread"]) < MAX_SECONDS
