import asyncio
import email.utils
import json
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from gossamer import (
    Answer,
    ApiError,
    AsyncClient,
    Client,
    ConnectionFailed,
    DeadlineExceeded,
    Delta,
    SegmentDone,
)
from service.engine.errors import QueueFull, SequenceFailed
from tests.service.conftest import engine as _engine
from tests.service.conftest import make_client as _make_client
from tests.service.fake_tokenizer import upper

ROOT = Path(__file__).resolve().parents[2]

engine, make_client = _engine, _make_client
ANSWER = {"translations": [{"text": "Bonjour."}], "source": "en", "target": "fr"}


@pytest.fixture
def client(make_client, engine):
    """On the real app, with an engine that writes capital letters."""
    engine.translate = upper
    app = make_client()

    def pass_on(request):
        headers = dict(request.headers.items())
        answer = app.request(request.method, str(request.url), content=request.read(), headers=headers)
        return httpx.Response(answer.status_code, headers=dict(answer.headers), content=answer.content)

    with Client("http://testserver", transport=httpx.MockTransport(pass_on)) as client:
        yield client


class Script:
    """A server that answers as it is told, and remembers what it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.requests = []
        self.times = []

    def __call__(self, request):
        self.requests.append(request)
        self.times.append(time.monotonic())
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, headers, content = answer
        return httpx.Response(status, headers=headers, json=content)

    @property
    def bodies(self):
        return [json.loads(request.content) for request in self.requests]


OK = (200, {}, ANSWER)
BUSY = (503, {"Retry-After": "0"}, {"type": "urn:gossamer:problem:queue-full", "detail": "full", "status": 503})


def scripted(*answers, **options):
    script = Script(*answers)
    return script, Client("http://server", transport=httpx.MockTransport(script), **options)


# --- on the real app --------------------------------------------------------------------------------------------------


def test_a_text_is_translated(client):
    answer = client.translate("Good morning.", source="en", target="fr")
    assert (answer.text, answer.source, answer.target) == ("GOOD MORNING.", "en", "fr")
    assert answer.raw["usage"]["source_tokens"] == 14


def test_several_texts_come_back_in_order_with_all_that_was_asked(client):
    answer = client.translate(
        ["One.", "", "Two."], return_=["segments", "scores"], decoding={"beam_size": 2, "num_hypotheses": 2}
    )
    assert answer.texts == ["ONE.", "", "TWO."]
    first = answer.translations[0]
    # The fake engine's hypotheses are all alike, and what is the same is given once.
    assert (first.alternatives, first.score, first.truncated, first.windowed) == ((), -0.5, False, False)
    assert first.raw["segments"][0]["source"] == "One."


def test_html_and_detection(client):
    answer = client.translate("<p>Where is the <b>train station</b>?</p>", source="auto", format="html")
    assert answer.text == "<p>WHERE IS THE <b>TRAIN STATION</b>?</p>"
    assert answer.translations[0].detected.language == "en"
    english, german = client.detect(["Where is the train station?", "Wo ist der nächste Bahnhof?"], target="fr")
    assert (english.language, english.confidence > 0.9) == ("en", True)
    assert (german.language, german.looks_like) == ("unknown", "de")


def test_models_are_listed(client):
    assert [model["name"] for model in client.models()] == ["en-fr"]


def test_a_stream_ends_with_the_answer(client):
    events = list(client.stream("One. Two."))
    written = ["", ""]
    for event in events:
        if isinstance(event, Delta):
            written[event.segment] += event.text
    assert written == ["ONE.", "TWO."]
    assert [event.text for event in events if isinstance(event, SegmentDone)] == ["ONE.", "TWO."]
    assert isinstance(events[-1], Answer)
    assert events[-1].text == "ONE. TWO."


def test_what_is_wrong_with_a_request_is_told_with_its_fields(client):
    with pytest.raises(ApiError) as caught:
        client.translate("a", decoding={"beam_size": 99})
    error = caught.value
    assert (error.status, error.kind) == (422, "invalid-request")
    assert error.faults[0]["field"] == "decoding.beam_size"
    assert "beam_size" in str(error)
    assert len(error.request_id) == 32


def test_an_error_within_a_stream_is_raised(client, engine):
    inner = type(engine).stream

    async def broken(request):
        async for event in inner(engine, request):
            yield event
            raise SequenceFailed(0, "NaN")

    engine.stream = broken
    with pytest.raises(ApiError) as caught:
        list(client.stream("One."))
    assert caught.value.kind == "model-failed"


def test_the_real_server_s_refusal_is_tried_again(client, engine):
    engine.error = QueueFull(65_000, 65_536, 0.01)
    with pytest.raises(ApiError) as caught:
        client.translate("a", timeout_seconds=1.5)
    assert (caught.value.status, caught.value.kind) == (503, "queue-full")
    assert len(engine.requests) >= 1


def test_asyncio_has_the_same(make_client, engine):
    engine.translate = upper
    app = make_client().app

    async def use():
        async with AsyncClient("http://testserver", transport=httpx.ASGITransport(app)) as client:
            answer = await client.translate("One.")
            events = [event async for event in client.stream("One.")]
            (found,) = await client.detect("Where is the train station?")
            return answer, events, found, await client.models()

    answer, events, found, models = asyncio.run(use())
    assert answer.text == events[-1].text == "ONE."
    assert found.language == "en"
    assert models[0]["name"] == "en-fr"


# --- retries and deadlines --------------------------------------------------------------------------------------------


def test_a_busy_server_is_asked_again():
    script, client = scripted(BUSY, BUSY, OK)
    assert client.translate("Good morning.").text == "Bonjour."
    assert len(script.requests) == 3


@pytest.mark.parametrize("date", [False, True])
def test_retry_after_is_heeded(date):
    wait = email.utils.formatdate(time.time() + 3, usegmt=True) if date else "1"
    script, client = scripted((429, {"Retry-After": wait}, {}), OK)
    client.translate("a")
    # A date has whole seconds.
    assert script.times[1] - script.times[0] >= 0.95


def test_a_wait_that_is_longer_than_the_time_left_is_not_begun():
    started = time.monotonic()
    script, client = scripted((503, {"Retry-After": "100"}, BUSY[2]))
    with pytest.raises(ApiError) as caught:
        client.translate("a", timeout_seconds=5)
    assert caught.value.kind == "queue-full"
    assert len(script.requests) == 1
    assert time.monotonic() - started < 3


def test_tries_can_be_counted():
    script, client = scripted(httpx.ConnectError("refused"), max_retries=1)
    with pytest.raises(ConnectionFailed, match="http://server cannot be reached: refused"):
        client.translate("a")
    assert len(script.requests) == 2
    script, client = scripted(httpx.RemoteProtocolError("hung up"), OK)
    assert client.translate("a").text == "Bonjour."


class Clock:
    """Time that passes only while a client waits."""

    def __init__(self, monkeypatch):
        self.now = 1000.0
        monkeypatch.setattr("gossamer.client.time", self)

    def time(self):
        return self.now

    monotonic = time

    def sleep(self, seconds):
        self.now += seconds


class Restarting:
    """A server that answers, then stops, is away and loads its models for some seconds."""

    def __init__(self, clock, *, down_at, seconds):
        self.clock, self.down_at, self.up_at = clock, down_at, down_at + seconds
        self.num_requests = 0

    def __call__(self, request):
        self.num_requests += 1
        since = self.clock.now - self.down_at
        if since < 0 or self.clock.now >= self.up_at:
            return httpx.Response(200, json=ANSWER)
        if since < 1:
            return httpx.Response(503, headers={"Retry-After": "1"}, json={"type": "urn:gossamer:problem:stopping"})
        if since < (self.up_at - self.down_at) / 2:
            raise httpx.ConnectError("refused")
        if since < (self.up_at - self.down_at) / 2 + 0.5:
            raise httpx.ReadError("reset")
        return httpx.Response(503, headers={"Retry-After": "2"}, json={"type": "urn:gossamer:problem:not-ready"})


@pytest.mark.parametrize("seconds", [2, 8, 25])
@pytest.mark.parametrize("began", [0.0, 0.3, 0.9, 2.5, 7.0])
def test_a_restart_of_the_server_is_not_noticed(monkeypatch, seconds, began):
    clock = Clock(monkeypatch)
    server = Restarting(clock, down_at=1001.0, seconds=seconds)
    client = Client("http://server", transport=httpx.MockTransport(server))
    assert client.translate("a").text == "Bonjour."
    clock.now = 1001.0 + began
    assert client.translate("a").text == "Bonjour."
    assert clock.now < server.up_at + 5 or began >= seconds
    assert server.num_requests < 20
    if began < seconds:
        clock.now = 1001.0 + began
        with pytest.raises((ApiError, ConnectionFailed)):
            Client("http://server", patience_seconds=0, transport=httpx.MockTransport(server)).translate("a")


def test_patience_ends_and_is_bounded_by_the_deadline(monkeypatch):
    clock = Clock(monkeypatch)
    script, client = scripted(OK, httpx.ConnectError("refused"))
    client.translate("a")
    for timeout_seconds, longest in ((600, 36), (10, 10)):
        started = clock.now
        with pytest.raises(ConnectionFailed, match="cannot be reached: refused"):
            client.translate("a", timeout_seconds=timeout_seconds)
        assert 0.6 * longest < clock.now - started <= longest
    script, client = scripted(BUSY)
    started = clock.now
    with pytest.raises(ApiError, match="full"):
        client.translate("a", timeout_seconds=600)
    assert 30 <= clock.now - started <= 36


@pytest.mark.parametrize("fault", [httpx.ConnectError("refused"), httpx.ConnectTimeout("")])
def test_an_address_where_nothing_ever_answered_is_soon_given_up(monkeypatch, fault):
    clock = Clock(monkeypatch)
    script, client = scripted(fault)
    with pytest.raises(ConnectionFailed, match="http://server cannot be reached: "):
        client.translate("a")
    assert 3 <= clock.now - 1000.0 < 7
    assert len(script.requests) > 3


def test_a_connection_is_not_waited_for_as_long_as_an_answer():
    script, client = scripted(OK)
    client.translate("a")
    timeout = script.requests[0].extensions["timeout"]
    assert timeout["connect"] == 5
    assert 59 < timeout["read"] <= 60


def test_a_long_wait_that_the_server_asks_for_is_heeded_within_the_deadline(monkeypatch):
    clock = Clock(monkeypatch)
    script, client = scripted((429, {"Retry-After": "45"}, {}), OK)
    assert client.translate("a").text == "Bonjour."
    assert clock.now - 1000.0 == pytest.approx(45)


@pytest.mark.parametrize("status", [400, 401, 413, 422, 500, 502, 504])
def test_other_errors_are_not_tried_again(status):
    script, client = scripted((status, {}, {"type": "urn:gossamer:problem:some-kind", "detail": "so"}))
    with pytest.raises(ApiError, match=r"so \(\d+ some-kind\)"):
        client.translate("a")
    assert len(script.requests) == 1


def test_an_error_that_is_no_problem_document_has_its_status():
    transport = httpx.MockTransport(lambda request: httpx.Response(502, text="<html>Bad gateway"))
    with pytest.raises(ApiError) as caught:
        Client(transport=transport).translate("a")
    assert (caught.value.status, caught.value.detail) == (502, "status 502")


def test_the_server_is_told_how_much_time_is_left():
    script, client = scripted(BUSY, OK)
    client.translate("a", timeout_seconds=10)
    first, second = [body["deadline_seconds"] for body in script.bodies]
    assert 9 < first <= 10
    assert second < first - 0.1


def test_a_deadline_that_the_server_does_not_allow_is_left_out():
    refusal = (422, {}, {"errors": [{"field": "deadline_seconds"}]})
    script, client = scripted(refusal, OK)
    assert client.translate("a", timeout_seconds=900).text == "Bonjour."
    assert "deadline_seconds" in script.bodies[0]
    assert "deadline_seconds" not in script.bodies[1]


def test_no_time_is_an_error_and_not_a_request():
    script, client = scripted(OK)
    with pytest.raises(DeadlineExceeded):
        client.translate("a", timeout_seconds=0)
    assert script.requests == []


def test_a_server_that_does_not_answer_in_time_is_a_deadline():
    _, client = scripted(httpx.ReadTimeout("slow"))
    with pytest.raises(DeadlineExceeded, match="no answer in"):
        client.translate("a")
    with pytest.raises(DeadlineExceeded):
        list(client.stream("a"))


def test_a_stream_is_tried_again_until_it_begins():
    script, client = scripted(BUSY, (200, {}, {}))
    with pytest.raises(ConnectionFailed, match="ended before the answer"):
        list(client.stream("a"))
    assert len(script.requests) == 2


def test_a_stream_that_breaks_off_is_an_error():
    class Broken(httpx.SyncByteStream):
        def __iter__(self):
            yield b'event: token\ndata: {"translation": 0, "segment": 0, "text": "AB", "delta": "B"}\n\n'
            raise httpx.ReadError("reset")

    client = Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, stream=Broken())))
    events = client.stream("a")
    assert next(events) == Delta(0, 0, "B", "AB")
    with pytest.raises(ConnectionFailed, match="broke off"):
        next(events)


def test_the_key_is_sent():
    script, client = scripted(OK, api_key="secret")
    client.translate("a")
    assert script.requests[0].headers["authorization"] == "Bearer secret"


def test_asyncio_tries_again_too():
    script = Script(BUSY, httpx.ConnectError("refused"), OK)

    async def use():
        async with AsyncClient("http://server", transport=httpx.MockTransport(script)) as client:
            return await client.translate("a")

    assert asyncio.run(use()).text == "Bonjour."
    assert len(script.requests) == 3


def test_the_client_needs_nothing_of_the_server():
    code = "import sys, gossamer; sys.exit(bool({'model', 'service', 'torch', 'fastapi'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


@pytest.mark.parametrize("address", ["localhost:8000", "", "http://", "ftp://host", "http://[::"])
def test_what_is_no_address_is_told_before_anything_is_asked(address):
    for kind in (Client, AsyncClient):
        with pytest.raises(ValueError, match="base_url is "):
            kind(address)


def test_a_key_that_cannot_be_sent_is_not_tried_again():
    script, client = scripted(httpx.LocalProtocolError("Illegal header value"), api_key="a\nb")
    with pytest.raises(ConnectionFailed, match="Illegal header value"):
        client.translate("a")
    assert len(script.requests) == 1


@pytest.mark.parametrize("content", [b"<html>Hello", b"[]", b"{}", b'{"translations": 5}', b"null", b"\xff"])
def test_an_answer_that_is_none_is_an_error_of_ours(content):
    with Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, content=content))) as client:
        for call in (lambda: client.translate("a"), lambda: client.detect("a"), client.models):
            with pytest.raises(ApiError, match="what answers here is no Gossamer server"):
                call()


@pytest.mark.parametrize("content", [b"", b"event: token\n", b": nothing\n\n", b"<html>\n"])
def test_a_stream_that_ends_without_its_answer_is_an_error(content):
    with Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, content=content))) as client:
        with pytest.raises(ConnectionFailed, match="the stream ended before the answer"):
            list(client.stream("a"))


def test_a_stream_is_parted_at_line_feeds_only_and_wherever_its_bytes_were_cut(client):
    text = "One\u2028two.\x85Three.\x0bFour\x1cfive.\x0cSix\u2029é🎉."
    assert list(client.stream(text, source="en"))[-1].texts == client.translate(text, source="en").texts
    data = json.dumps({**ANSWER, "translations": [{"text": text}]}, ensure_ascii=False)
    content = f"event: done\ndata: {data}\n\n".encode()

    class Bytes(httpx.SyncByteStream):
        def __iter__(self):
            yield from (content[place : place + 1] for place in range(len(content)))

    with Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, stream=Bytes()))) as other:
        assert [event.text for event in other.stream("a")] == [text]
