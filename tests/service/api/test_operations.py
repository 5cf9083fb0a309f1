import asyncio
import functools
import re
import time
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from service.app import create_app
from service.engine.core import StepMessage
from service.engine.errors import (
    DeadlineExceeded,
    EngineStopping,
    QueueFull,
    RequestAborted,
    RequestTooLarge,
    SequenceFailed,
)
from service.engine.interface import EngineState
from service.observability.metrics import outcomes
from service.settings import Settings
from tests.service.fake_tokenizer import FakeTokenizer
from tests.service.fakes import FAKE_MODEL, FakeEngine

DOCS = Path(__file__).resolve().parents[3] / "docs"
TINY = Path(__file__).resolve().parents[2] / "data/tiny_checkpoint"


class SlowEngine(FakeEngine):
    """Is loading until `loaded` is set."""

    async def start(self):
        self.state, self.reason = EngineState.STARTING, "the engine is loading its models"
        self.loaded = asyncio.Event()
        await self.loaded.wait()
        await super().start()

    async def stop(self, grace_seconds):
        self.loaded.set()
        await super().stop(grace_seconds)

    def models(self):
        return self.model_infos if self.is_ready else ()


def statuses(client):
    return [client.get(path).status_code for path in ("/healthz", "/startupz", "/readyz", "/v1/models")]


def test_probes_tell_loading_from_ready_from_dead():
    engine = SlowEngine()
    with TestClient(create_app(Settings(), engine, {})) as client:
        assert statuses(client) == [200, 503, 503, 503]
        response = client.get("/readyz")
        assert response.json()["detail"] == "the engine is loading its models"
        assert response.headers["retry-after"] == "1"
        client.portal.call(engine.loaded.set)
        client.portal.call(asyncio.sleep, 0.01)
        assert statuses(client) == [200, 200, 200, 200]
        client.portal.call(engine.die, "broken")
        assert statuses(client)[:3] == [200, 200, 503]
        assert client.get("/readyz").json()["detail"] == "the engine died: broken"


def test_it_is_ready_only_when_it_can_find_out_languages(monkeypatch):
    app = create_app(Settings(models=(TINY,), self_check=False))
    seen = []

    def warm_up():
        for _ in range(20):
            seen.append(app.state.services.engine.is_ready)
            time.sleep(0.05)

    monkeypatch.setattr("service.text.detection.warm_up", warm_up)
    with TestClient(app) as client:
        deadline = time.monotonic() + 120
        while client.get("/readyz").status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert seen == [False] * 20


def test_translations_are_refused_while_loading():
    with TestClient(create_app(Settings(), SlowEngine(), {})) as client:
        response = client.post("/v1/translate", json={"text": "a"})
        assert response.status_code == 503
        assert "retry-after" in response.headers


def test_the_engine_is_stopped_with_the_grace_of_the_settings():
    engine = FakeEngine()
    with TestClient(create_app(Settings(stop_grace_seconds=7), engine, {})):
        assert engine.stopped_with_grace_seconds is None
    assert engine.stopped_with_grace_seconds == 7


def test_the_owner_of_the_process_hears_that_the_engine_died():
    deaths = []
    engine = FakeEngine()
    with TestClient(create_app(Settings(), engine, {}, on_engine_dead=deaths.append)) as client:
        client.portal.call(asyncio.sleep, 0.01)
        client.portal.call(engine.die, "broken")
        client.portal.call(asyncio.sleep, 0.01)
    assert [death.reason for death in deaths] == ["broken"]


def test_an_engine_that_cannot_be_started_is_told_to_the_owner_too():
    class Broken(FakeEngine):
        async def start(self):
            raise ZeroDivisionError

    deaths = []
    with TestClient(create_app(Settings(), Broken(), {}, on_engine_dead=deaths.append)) as client:
        assert client.get("/readyz").status_code == 503
    assert "ZeroDivisionError" in deaths[0].reason


def test_models_are_listed(make_client, engine):
    engine.model_infos = (FAKE_MODEL, replace(FAKE_MODEL, name="en-de", target_language="de"))
    assert make_client().get("/v1/models").json() == {
        "models": [
            {
                "name": name,
                "revision": "fake",
                "source": "en",
                "target": target,
                "precision": "float32",
                "max_source_tokens": 512,
                "max_target_tokens": 512,
            }
            for name, target in (("en-fr", "fr"), ("en-de", "de"))
        ]
    }


def series(client):
    return [line for line in client.get("/metrics").text.splitlines() if not line.startswith("#")]


def test_requests_are_counted_by_route_template_and_outcome(client):
    client.post("/v1/translate", json={"text": "a"})
    client.post("/v1/translate", json={"text": 5})
    client.get("/nobody/knows/this?text=secret")
    client.get("/assets/secret")
    lines = series(client)
    for labels in (
        'outcome="ok",route="/v1/translate"',
        'outcome="client_error",route="/v1/translate"',
        'outcome="client_error",route="unmatched"',
        'outcome="client_error",route="/assets/{name}"',
    ):
        assert f"gossamer_requests_total{{{labels}}} 1.0" in lines
    assert 'gossamer_model_requests_total{model="en-fr",outcome="ok"} 1.0' in lines
    assert 'gossamer_rejections_total{reason="invalid-request"} 1.0' in lines
    assert 'gossamer_rejections_total{reason="not-found"} 2.0' in lines
    assert 'gossamer_request_duration_seconds_count{source_length="1-32"} 1.0' in lines
    assert not any("secret" in line or "nobody" in line for line in lines)


def test_the_engine_s_numbers_are_read_at_each_scrape(client, engine):
    engine.current_stats = replace(engine.current_stats, running_sequences=3, waiting_sequences=4)
    assert {"gossamer_running_sequences 3.0", "gossamer_waiting_sequences 4.0"} <= set(series(client))


def test_two_apps_have_metrics_of_their_own(client):
    with TestClient(create_app(Settings(), FakeEngine(), {})) as other:
        client.get("/v1/models")
        assert any("/v1/models" in line for line in series(client))
        assert not any("/v1/models" in line for line in series(other))


def test_what_reaches_the_engine_is_counted_by_model(client, engine):
    client.post("/v1/translate", json={"text": "abc", "decoding": {"beam_size": 1}})
    client.post("/v1/translate", json={"text": "abc", "stream": True})
    engine.error = QueueFull(9, 10, 7)
    client.post("/v1/translate", json={"text": "abc"})
    lines = set(series(client))
    assert {
        'gossamer_source_tokens_total{model="en-fr"} 8.0',
        'gossamer_target_tokens_total{model="en-fr"} 8.0',
        'gossamer_queue_duration_seconds_count{source_length="1-32"} 2.0',
        'gossamer_time_to_first_token_seconds_count{source_length="1-32"} 2.0',
        'gossamer_time_per_output_token_seconds_count{source_length="1-32"} 2.0',
        'gossamer_model_requests_total{model="en-fr",outcome="rejected"} 1.0',
        'gossamer_rejections_total{reason="queue-full"} 1.0',
        "gossamer_cancellations_total 0.0",
    } <= lines


def test_a_request_and_its_trace_are_exemplars_of_openmetrics_only(client):
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = {"X-Request-ID": "seven", "traceparent": f"00-{trace}-b7ad6b7169203331-01"}
    client.post("/v1/translate", json={"text": "a"}, headers=headers)
    openmetrics = client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"}).text
    (line,) = [line for line in openmetrics.splitlines() if "seven" in line]
    assert line.startswith("gossamer_request_duration_seconds_bucket")
    assert f'# {{request_id="seven",trace_id="{trace}"}}' in line
    assert "seven" not in client.get("/metrics").text


MODELS = tuple(replace(FAKE_MODEL, name=name) for name in ("a-very-long-name-of-a-model", "en-fr", "tiny"))
ERRORS = (
    lambda: None,
    lambda: QueueFull(9, 10, 7),
    lambda: DeadlineExceeded("id"),
    lambda: SequenceFailed(0, "a reason"),
    lambda: EngineStopping(),
    lambda: RequestAborted("id"),
    lambda: RequestTooLarge(9, 8),
    lambda: ZeroDivisionError(),
)
TEXTS = ("a", "b" * 60, "c" * 400)
GARBAGE = ({}, {"text": 5, "q": 5, "nope": 1}, "no json", {"text": "a", "q": "a", "model": "no such model"})


def test_all_kinds_of_traffic_to_three_models_make_fewer_than_500_series():
    """Every route of the app gets good and bad requests, and every failure of the engine, for each model."""
    engine = FakeEngine(model_infos=MODELS)
    app = create_app(Settings(), engine, {info.name: FakeTokenizer() for info in MODELS})
    engine.current_stats = replace(engine.current_stats, gpu_memory_used_bytes=1, gpu_memory_total_bytes=2)
    for seconds in (0.0, 100.0):
        app.state.services.metrics.count_step(StepMessage(8, seconds, seconds, 9, 3))
    with TestClient(app) as client:
        client.portal.call(asyncio.sleep, 0.01)
        sent = 0
        for method, path in sorted(_operations(app)):
            ask = functools.partial(client.request, method, re.sub(r"\{\w+\}", "1", path))
            for make_error in ERRORS:
                for name in [info.name for info in MODELS] if method == "POST" else [None]:
                    for text in TEXTS if make_error is ERRORS[0] else TEXTS[:1]:
                        common = {"source": "en", "target": "fr", "model": name}
                        for body in ({"text": text} | common, {"q": text} | common, {"text": [text]} | common):
                            engine.error = make_error()
                            ask(json=body if method == "POST" else None)
                            sent += 1
            for garbage in GARBAGE:
                ask(json=garbage)
            ask(content=b"x" * 3_000_000)
        for number in range(20):
            client.get(f"/nope/{number}")
            client.request("DELETE", f"/v1/translate/{number}")
        engine.error = None
        client.post("/v1/translate", json={"text": "a", "model": "en-fr"})
        lines = series(client)
    assert sent > 100
    assert len([line for line in lines if line.startswith("gossamer_requests_total")]) > 14
    assert 200 < len(lines) < 500


def _operations(app):
    """Methods and paths of all routes, those that are included by routers too."""
    found, routes = set(), list(app.routes)
    while routes:
        route = routes.pop()
        routes += getattr(route, "routes", None) or getattr(getattr(route, "original_router", None), "routes", [])
        found |= {(method, route.path) for method in getattr(route, "methods", None) or ()}
    return found - {("GET", "/metrics")}


def test_every_metric_is_documented_and_every_documented_one_is_there(client, engine):
    client.post("/v1/translate", json={"text": "a"})
    engine.current_stats = replace(engine.current_stats, gpu_memory_used_bytes=1, gpu_memory_total_bytes=2)
    there = set(re.findall(r"^# TYPE (\w+)", client.get("/metrics").text, re.MULTILINE))
    documented = set(
        re.findall(r"^\| `((?:gossamer|process)_\w+)`", (DOCS / "metrics.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert documented == there


@pytest.mark.parametrize("outcome", outcomes())
def test_every_outcome_is_documented(outcome):
    assert f"`{outcome}`" in (DOCS / "metrics.md").read_text(encoding="utf-8")


def test_openmetrics_is_given_when_asked_for(client):
    response = client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")
