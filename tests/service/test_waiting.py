"""What would wait too long is refused, before anything is done for it."""

import asyncio
import re

import pytest

from service.engine.errors import QueueFull, WaitTooLong
from service.engine.interface import EngineStats
from service.engine.work import current_work, piece_of_work
from service.translator import Translator
from tests.service.engine.helpers import ScriptedRunner, make_limits, make_request, running_engine
from tests.service.fake_tokenizer import FakeTokenizer
from tests.service.fakes import FakeEngine

BUSY = EngineStats(
    max_rows=64,
    waiting_tokens=30_000,
    max_waiting_tokens=65_536,
    promised_tokens=5_000,
    source_tokens_per_second=2_000.0,
)


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
    told = re.search("this would wait about ([45]) s, and at most 3 s are allowed", answer.text)
    assert int(answer.headers["Retry-After"]) in (2, 3), told  # half of that
    assert engine.requests == []


def test_what_waits_shortly_is_taken(make_client, engine):
    client = make_client()
    engine.current_stats = BUSY
    assert client.post("/v1/translate", json={"text": "word " * 10}).status_code == 200


def test_the_limit_is_a_setting(make_client, engine):
    client = make_client(max_wait_seconds=5)
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


@pytest.mark.parametrize(
    ("path", "headers", "body"),
    [
        ("/v1/translate", {}, b"{" + 900 * b" "),  # no JSON; nobody looks
        ("/v1/translate", {}, 9_000 * b"x"),
        ("/translate", {}, b"q=" + 500 * b"word+"),
        ("/v2/translate", {}, b"text=" + 500 * b"word+"),
    ],
)
def test_a_full_server_refuses_by_the_size_of_a_body_alone(make_client, engine, monkeypatch, path, headers, body):
    client = make_client()
    engine.current_stats = BUSY
    for reader in ("requests.read_json", "dialects.libretranslate.read_fields", "dialects.deepl.read_fields"):
        monkeypatch.setattr(f"service.api.{reader}", _never)
    answer = client.post(path, content=body, headers=headers)
    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) in (2, 3)


def _never(*_):
    raise AssertionError("the body was parsed")


def test_what_is_large_is_refused_before_it_is_read(make_client, engine):
    client = make_client()
    engine.current_stats = BUSY
    assert client.portal is not None
    received = []

    async def ask():
        async def receive():
            received.append(1)
            return {"type": "http.request", "body": b"x" * 9_000, "more_body": False}

        sent = []

        async def send(message):
            sent.append(message)

        headers = [(b"content-type", b"application/json"), (b"content-length", b"9000")]
        scope = {"type": "http", "method": "POST", "path": "/v1/translate", "headers": headers, "query_string": b""}
        await client.app(scope, receive, send)
        return sent[0]["status"]

    assert client.portal.call(ask) == 503
    assert received == []


def test_escapes_do_not_count_as_text(make_client, engine):
    client = make_client()
    engine.current_stats = BUSY
    # 60 characters of two bytes each, escaped as six; or as many letters as those have bytes.
    assert client.post("/v1/translate", content=b'{"text": "' + 60 * b"\\u0431" + b'"}').status_code != 503
    assert client.post("/v1/translate", json={"text": "b" * 360}).status_code == 503


def test_a_body_in_parts_comes_whole_to_a_route_that_takes_it(make_client, engine):
    client = make_client()
    engine.current_stats = BUSY

    def parts():
        yield b'{"text": '
        yield b'"one two"}'

    answer = client.post("/v1/translate", content=parts(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 200
    assert answer.json()["translations"][0]["text"] == "one two"


def test_too_long_a_body_is_still_refused_as_that(make_client, engine):
    client = make_client(max_body_bytes=1024, max_text_bytes=1024)
    engine.current_stats = BUSY
    assert client.post("/v1/translate", content=b"x" * 2_000).status_code == 413
    assert client.post("/v1/translate", content=iter([b"x" * 2_000])).status_code == 413


def test_what_was_let_in_and_is_not_yet_with_the_engine_counts(engine):
    stats = EngineStats(promised_tokens=100, source_tokens_per_second=100.0)
    engine.current_stats = stats
    translator = Translator(engine, {"en-fr": FakeTokenizer()}, max_segment_tokens=128, max_wait_seconds=3.0)
    translator.check_wait(70)
    with translator.preparing(["word " * 14] * 2):
        with pytest.raises(QueueFull):
            translator.check_wait(700)
        with pytest.raises(QueueFull), translator.preparing(["word " * 140]):
            pass
    translator.check_wait(70)
    assert translator._preparing_tokens == 0


async def _refused_by_the_engine():
    runner = ScriptedRunner(is_gated=True)
    limits = make_limits(max_rows=1, max_wait_seconds=3.0)
    async with running_engine(runner, limits) as engine:
        engine._core._speed.note(64, 4.0)  # 16 tokens a second
        first = asyncio.ensure_future(engine.submit(make_request("a", (30,))))
        await asyncio.to_thread(runner.in_step.wait, 30)
        waiting = asyncio.ensure_future(engine.submit(make_request("b", (30,))))
        await asyncio.sleep(0)
        assert engine.stats().promised_tokens == 30  # in the midst of a step
        with pytest.raises(WaitTooLong, match="about 4 s"):
            await engine.submit(make_request("c", (30,)))
        with piece_of_work():
            small = asyncio.ensure_future(engine.submit(make_request("d", (4,))))
            await asyncio.sleep(0)
        runner.open_gate()
        results = await asyncio.gather(first, waiting, small)
        assert all(result.sequences[0].failure is None for result in results)


def test_the_engine_refuses_by_what_waits_at_that_moment():
    asyncio.run(_refused_by_the_engine())
