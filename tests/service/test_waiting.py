"""What would wait too long is refused, before anything is done for it."""

import time

import pytest

from service.engine.core import StepMessage
from service.engine.interface import SHARE_TOKENS, EngineStats
from service.engine.work import current_work, piece_of_work
from tests.service.engine.helpers import ScriptedRunner, make_request
from tests.service.engine.test_core import Driver
from tests.service.fakes import FakeEngine

BUSY = EngineStats(
    max_rows=64,
    waiting_tokens=30_000,
    max_waiting_tokens=65_536,
    line_requests=100,
    queued_seconds=2.0,
    start_tokens_per_second=2_000.0,
)


def test_a_newcomer_waits_for_as_much_of_each_as_it_has_itself():
    assert BUSY.wait_seconds(20) == 100 * 20 / 2_000
    assert BUSY.wait_seconds(100_000) == 100 * SHARE_TOKENS / 2_000
    few = EngineStats(waiting_tokens=500, line_requests=100, queued_seconds=2.0, start_tokens_per_second=2_000.0)
    assert few.wait_seconds(20) == 500 / 2_000


def test_nothing_is_said_before_the_speed_is_that_of_full_batches():
    for change in ({"queued_seconds": 0.9}, {"start_tokens_per_second": 0.0}):
        fields = {"waiting_tokens": 30_000, "line_requests": 100, "queued_seconds": 2.0, "start_tokens_per_second": 5.0}
        assert EngineStats(**(fields | change)).wait_seconds(20) == 0.0


def test_the_engine_tells_how_long_some_have_waited_and_how_fast_it_starts_them():
    with Driver(ScriptedRunner(is_gated=True), max_rows=1) as driver:
        for ticket in range(3):
            driver.core.submit(make_request(str(ticket), (4,)), ticket, wants_events=False)
        assert driver.core.stats.queued_seconds == 0
        driver.runner.in_step.wait(30)
        time.sleep(0.2)
        driver.runner.allow_steps()
        driver.wait_for(lambda message: isinstance(message, StepMessage))
        stats = driver.core.stats
        assert (stats.line_requests, stats.waiting_tokens) == (2, 8)
        assert stats.queued_seconds >= 0.2
        assert 0 < stats.start_tokens_per_second <= 4 / 0.2
        driver.runner.open_gate()
        for ticket in range(3):
            driver.wait_for_last(ticket)
    assert (driver.core.stats.line_requests, driver.core.stats.queued_seconds) == (0, 0)


@pytest.fixture
def busy(make_client, engine, monkeypatch):
    """A client of a busy server; nothing may take its text apart."""
    client = make_client()
    engine.current_stats = BUSY

    def refuse(*_args, **_named):
        raise AssertionError("the text was looked at")

    monkeypatch.setattr("service.translator.segment_text", refuse)
    return client


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/translate", {"text": "word " * 100}),
        ("/v1/translate", {"text": "word " * 100, "stream": True}),
        ("/v1/translate", {"text": ["word "] * 100}),
        ("/v1/translate", {"text": "<p>" + "word " * 100, "format": "html"}),
        ("/v1/translate", {"text": "word " * 100, "source": "auto", "target": "fr"}),
        ("/translate", {"q": "word " * 100, "source": "en", "target": "fr"}),
        ("/v2/translate", {"text": ["word " * 100], "target_lang": "FR"}),
    ],
)
def test_every_route_refuses_what_would_wait_too_long_unread(busy, engine, path, body):
    answer = busy.post(path, json=body)
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "4"  # half of 100 * 142 / 2000 s
    assert "this would wait about 7 s, and at most 3 s are allowed" in answer.text
    assert engine.requests == []


def test_what_waits_shortly_is_taken(make_client, engine):
    client = make_client()
    engine.current_stats = BUSY
    assert client.post("/v1/translate", json={"text": "word " * 10}).status_code == 200


def test_the_limit_is_a_setting(make_client, engine):
    client = make_client(max_wait_seconds=8)
    engine.current_stats = BUSY
    assert client.post("/v1/translate", json={"text": "word " * 100}).status_code == 200


def test_work_that_has_begun_is_taken(make_client, engine):
    class BegunEngine(FakeEngine):
        async def submit(self, request):
            engine.current_stats = BUSY  # from the first round on
            current_work.get().has_begun = True
            return await FakeEngine.submit(self, request)

    engine.__class__ = BegunEngine
    client = make_client()
    body = {"text": "<p>" + "word " * 100 + "</p><p>two</p>", "format": "html"}
    assert client.post("/v1/translate", json=body).status_code == 200
    assert client.post("/v1/translate", json=body).status_code == 503


def test_work_begins_with_the_engine_s_consent():
    with piece_of_work():
        assert current_work.get().has_begun is False
    assert current_work.get() is None
