import asyncio
import re
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from service.app import create_app
from service.engine.interface import EngineState
from service.observability.metrics import outcomes
from service.settings import Settings
from tests.service.fakes import FAKE_MODEL, FakeEngine

DOCS = Path(__file__).resolve().parents[3] / "docs"


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
    assert 'gossamer_request_duration_seconds_count{route="/v1/translate"} 2.0' in lines
    assert not any("secret" in line or "nobody" in line for line in lines)


def test_the_engine_s_numbers_are_read_at_each_scrape(client, engine):
    engine.current_stats = replace(engine.current_stats, running_sequences=3, waiting_sequences=4)
    assert {"gossamer_running_sequences 3.0", "gossamer_waiting_sequences 4.0"} <= set(series(client))


def test_two_apps_have_metrics_of_their_own(client):
    with TestClient(create_app(Settings(), FakeEngine(), {})) as other:
        client.get("/v1/models")
        assert any("/v1/models" in line for line in series(client))
        assert not any("/v1/models" in line for line in series(other))


def test_every_metric_is_documented_and_every_documented_one_is_there(client):
    client.post("/v1/translate", json={"text": "a"})
    there = set(re.findall(r"^# TYPE (\w+)", client.get("/metrics").text, re.MULTILINE))
    documented = set(
        re.findall(r"^\| `(gossamer_\w+)`", (DOCS / "metrics.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    assert documented == there


@pytest.mark.parametrize("outcome", outcomes())
def test_every_outcome_is_documented(outcome):
    assert f"`{outcome}`" in (DOCS / "metrics.md").read_text(encoding="utf-8")


def test_openmetrics_is_given_when_asked_for(client):
    response = client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")
