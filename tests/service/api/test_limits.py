import asyncio
import shutil
import socket
import subprocess
import time

import pytest

from service.api import limits as module
from service.api.errors import OverRateLimit, RateLimited
from service.api.limits import Admission, Client, LimitedEngine, RateLimits, address_name, current_admission
from service.engine.request import EngineRequest, SequenceRequest
from service.keys import KeyFile
from tests.service.fakes import FakeEngine

BODY = {"text": "Hello.", "source": "en", "target": "fr", "decoding": {"beam_size": 1}}
TOKENS = 7
"""Source tokens of `BODY`: a character each, and the end of sentence."""


def statuses(client, count, **options):
    return [client.post("/v1/translate", json=BODY, **options).status_code for _ in range(count)]


def test_an_address_has_its_requests_a_minute(make_client):
    client = make_client(address_requests_per_minute=3)
    assert statuses(client, 4) == [200, 200, 200, 429]
    refused = client.post("/v1/translate", json=BODY)
    assert refused.json()["type"] == "urn:gossamer:problem:rate-limited"
    assert "this address may have 3 requests a minute" in refused.json()["detail"]
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    metrics = client.get("/metrics").text
    assert 'gossamer_requests_total{outcome="rejected",route="/v1/translate"} 2.0' in metrics
    assert 'gossamer_rejections_total{reason="rate-limited"} 2.0' in metrics


def test_pages_and_probes_are_not_counted(make_client):
    client = make_client(address_requests_per_minute=1)
    assert {client.get(path).status_code for path in ("/healthz", "/readyz", "/", "/metrics") for _ in range(3)} == {
        200
    }
    assert statuses(client, 2) == [200, 429]


def test_an_address_has_its_tokens_a_minute_on_every_route(make_client, engine):
    client = make_client(address_tokens_per_minute=3 * TOKENS)
    assert statuses(client, 2) == [200, 200]
    assert client.post("/translate", json={"q": "Hello.", "source": "en", "target": "fr"}).status_code == 200
    assert statuses(client, 1) == [429]
    assert client.post("/v2/translate", json={"text": ["Hello."], "target_lang": "FR"}).status_code == 429
    assert client.post("/v1/translate", json=BODY | {"stream": True}).status_code == 429
    assert len(engine.requests) == 3
    # What costs nothing is still done, and what can never be done is said so.
    assert client.post("/v1/translate", json=BODY | {"text": "123"}).status_code == 200
    too_much = client.post("/v1/translate", json=BODY | {"text": "Hello. My. Friend. How. Are. You. Today. "})
    assert too_much.status_code == 413
    assert "may have 21 a minute" in too_much.json()["detail"]


def test_a_list_whose_tokens_are_counted_is_booked_as_a_whole(make_client, engine):
    texts = [f"The dog number {index} sleeps near the old house." for index in range(60)]
    num_tokens = sum(len(text) + 1 for text in texts)
    body = BODY | {"text": texts}
    client = make_client(address_tokens_per_minute=num_tokens)
    assert client.post("/v1/translate", json=body | {"text": [*texts, "Another one."]}).status_code == 413
    assert engine.requests == []
    assert client.post("/v1/translate", json=body).status_code == 200
    assert len(engine.requests[0].sequences) == 60
    assert statuses(client, 1) == [429]


def test_what_has_begun_is_not_refused_halfway():
    async def scenario():
        fake = FakeEngine()
        await fake.start()
        limits = RateLimits("memory://")
        engine, client = LimitedEngine(fake, limits), Client("key", "a", None, 10)
        request = EngineRequest("one", "en-fr", (SequenceRequest((5, 5, 5, 5, 5, 3)),))
        current_admission.set(Admission(client))
        for _ in range(3):  # a sentence and two more attempts at it
            await engine.submit(request)
        current_admission.set(Admission(client))
        with pytest.raises(RateLimited):
            await engine.submit(request)
        assert len(fake.requests) == 3

    asyncio.run(scenario())


def test_keys_have_limits_of_their_own_and_do_not_share_that_of_their_address(make_client, tmp_path):
    file = KeyFile(tmp_path / "keys.json")
    plain, big = file.create("a", ["translate"])[1], file.create("b", ["translate"], requests_per_minute=3)[1]
    client = make_client(keys_file=file.path, key_requests_per_minute=2, address_requests_per_minute=1)
    assert statuses(client, 3, headers={"X-API-Key": plain}) == [200, 200, 429]
    assert statuses(client, 4, headers={"X-API-Key": big}) == [200, 200, 200, 429]
    # Guessing keys is what an address without one is limited in.
    assert statuses(client, 2, headers={"X-API-Key": "x"}) == [401, 429]


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("2001:db8:1:2::9", "2001:db8:1:2::"),
        (None, "unknown"),
        ("testclient", "unknown"),
    ],
)
def test_addresses_are_counted_by_customer(host, name):
    assert address_name(host) == name


def test_waiting_as_long_as_is_said_is_enough(monkeypatch):
    async def scenario():
        limits, client = RateLimits("memory://"), Client("key", "a", None, 60)
        start = now = 1_000_000.0
        monkeypatch.setattr(time, "time", lambda: now)
        await limits.take(client, "tokens", 60)
        with pytest.raises(RateLimited) as caught:
            await limits.take(client, "tokens", 20)
        assert caught.value.retry_after_seconds == 20
        now = start + 121
        await limits.take(client, "tokens", 60)
        with pytest.raises(OverRateLimit):
            await limits.take(client, "tokens", 61)

    asyncio.run(scenario())


def test_a_lost_redis_refuses_nobody_and_is_left_alone_for_a_while(caplog):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    async def scenario():
        limits, client = RateLimits(f"redis://:hunter2@127.0.0.1:{port}"), Client("key", "a", 1, None)
        for _ in range(3):
            await limits.take(client, "requests")
        await limits.close()
        return limits.num_failures

    assert asyncio.run(scenario()) == 1
    assert "hunter2" not in caplog.text


def test_a_redis_that_does_not_answer_holds_nobody_up(monkeypatch):
    monkeypatch.setattr(module, "_STORAGE_PATIENCE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"redis://127.0.0.1:{silent.getsockname()[1]}"

        async def scenario():
            limits = RateLimits(address)
            started = time.monotonic()
            await limits.take(Client("key", "a", 1, None), "requests")
            await limits.close()
            return limits.num_failures, time.monotonic() - started

        failures, seconds = asyncio.run(scenario())
    assert failures == 1
    assert seconds < 5


@pytest.fixture(scope="module")
def redis_address(tmp_path_factory):
    """A real Redis of our own."""
    command = shutil.which("redis-server")
    if command is None:
        pytest.skip("redis-server is not installed")
    path = tmp_path_factory.mktemp("redis") / "socket"
    process = subprocess.Popen(
        [command, "--port", "0", "--unixsocket", str(path), "--save", "", "--appendonly", "no"],
        cwd=path.parent,
        stdout=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + 60
        while not path.exists():
            assert process.poll() is None, "redis-server ended"
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield f"redis+unix://{path}"
    finally:
        process.terminate()
        process.wait()


def test_replicas_count_together_in_redis(make_client, redis_address, engine):
    one, other = (
        make_client(address_requests_per_minute=3, limits_storage=redis_address, address_tokens_per_minute=100)
        for _ in range(2)
    )
    assert [*statuses(one, 2), *statuses(other, 2), *statuses(one, 1)] == [200, 200, 200, 429, 429]
    assert len(engine.requests) == 3
    for client in (one, other):
        assert client.app.state.services.gate._limits.num_failures == 0
