import logging

import pytest

from service.api.auth import presented_key
from service.keys import KeyFile
from tests.service.api.test_operations import _operations

OPEN = {"/", "/docs", "/openapi.json", "/healthz", "/startupz", "/readyz", "/metrics", "/assets/{name}"}
"""What needs no key: pages, probes, metrics."""
# A translated file is fetched by its name alone, which cannot be guessed: clients of LibreTranslate send no key there.
OPEN_DIALECT = {"/languages", "/frontend/settings", "/health", "/suggest", "/download_file/{name}"}
"""What LibreTranslate's pages ask before they have a key; it translates nothing."""

BODY = {"text": "Hello.", "source": "en", "target": "fr"}


@pytest.fixture
def file(tmp_path):
    return KeyFile(tmp_path / "keys.json")


@pytest.fixture
def keyed(make_client, file):
    """A client of a server that needs keys, and a function that makes one."""

    def make_key(*scopes, **limits):
        return file.create("name", scopes, **limits)[1]

    make_key("translate")
    client = make_client(keys_file=file.path)
    file.path.touch()
    return client, make_key


@pytest.fixture(autouse=True)
def _keys_are_read_again_at_once(monkeypatch):
    monkeypatch.setattr("service.keys._CHECK_SECONDS", 0.0)


def bearer(key):
    return {"Authorization": f"Bearer {key}"}


def test_without_a_key_nothing_is_translated(keyed):
    client, make_key = keyed
    response = client.post("/v1/translate", json=BODY)
    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["type"] == "urn:gossamer:problem:unauthenticated"
    wrong = client.post("/v1/translate", json=BODY, headers=bearer(make_key("translate")[:-2] + "xx"))
    assert wrong.status_code == 401
    assert "does not hold" in wrong.json()["detail"]


def test_the_page_without_scripts_translates_nothing_without_a_key(keyed):
    client, make_key = keyed
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    response = client.post("/", content="text=Good+morning.", headers=form)
    assert response.status_code == 401
    assert "key" in response.text.split('role="alert"><p>')[1].split("</p>")[0]
    allowed = client.post("/", content="text=Good+morning.", headers=form | bearer(make_key("translate")))
    assert allowed.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        lambda key: {"Authorization": f"Bearer {key}"},
        lambda key: {"Authorization": f"bearer   {key} "},
        lambda key: {"X-API-Key": key},
        lambda key: {"Authorization": f"DeepL-Auth-Key {key}"},
    ],
)
def test_a_key_is_taken_from_each_header_that_clients_use(keyed, headers):
    client, make_key = keyed
    assert client.post("/v1/translate", json=BODY, headers=headers(make_key("translate"))).status_code == 200


def test_each_dialect_takes_its_own_key_and_those_of_all(keyed):
    client, make_key = keyed
    key = make_key("translate")
    libre = {"q": "Hello.", "source": "en", "target": "fr"}
    deepl = {"text": ["Hello."], "target_lang": "FR"}
    assert client.post("/translate", json=libre | {"api_key": key}).status_code == 200
    assert client.post("/translate", json=libre, headers=bearer(key)).status_code == 200
    assert (
        client.post("/v2/translate", json=deepl, headers={"Authorization": f"DeepL-Auth-Key {key}"}).status_code == 200
    )
    assert client.post("/v2/translate", json=deepl | {"auth_key": key}).status_code == 200
    assert client.post("/translate", json=libre | {"api_key": "x"}).status_code in (401, 403)
    assert client.post("/v2/translate", json=deepl).status_code == 403  # DeepL's status for it
    assert client.get("/frontend/settings").json()["keyRequired"] is True


def test_a_key_is_good_for_its_scopes_only(keyed):
    client, make_key = keyed
    translate, inspect, admin = (bearer(make_key(scope)) for scope in ("translate", "inspect", "admin"))
    for headers, statuses in ((translate, (200, 403)), (inspect, (403, 404)), (admin, (200, 404))):
        assert client.post("/v1/translate", json=BODY, headers=headers).status_code == statuses[0]
        # No such route: what guards it is asked first.
        assert client.get("/v1/something", headers=headers).status_code == statuses[1]
    refusal = client.get("/v1/something", headers=translate).json()
    assert refusal["type"] == "urn:gossamer:problem:forbidden"
    assert "translate; this needs inspect" in refusal["detail"]


def test_every_route_needs_a_key_but_for_a_few(keyed):
    """So that a new one is not forgotten: it is guarded, or stands in the lists above."""
    client, _ = keyed
    answers = {
        (method, path): client.request(method, path, json={"q": "a", "text": ["a"], "source": "en", "target": "fr"})
        for method, path in _operations(client.app) | {("GET", "/metrics")}
    }
    allowed = {path for (_, path), answer in answers.items() if answer.status_code not in (401, 403)}
    assert allowed <= OPEN | OPEN_DIALECT
    assert len(answers) > len(allowed) + 5


def test_metrics_need_a_key_if_the_settings_say_so(make_client, file):
    key, admin = file.create("a", ["translate"])[1], file.create("b", ["admin"])[1]
    client = make_client(keys_file=file.path, metrics_need_key=True)
    assert [client.get("/metrics", headers=headers).status_code for headers in ({}, bearer(key), bearer(admin))] == [
        401,
        403,
        200,
    ]


def test_a_revoked_key_is_refused_at_once(keyed, file):
    client, make_key = keyed
    key = make_key("translate")
    assert client.post("/v1/translate", json=BODY, headers=bearer(key)).status_code == 200
    file.revoke(key.split("_")[1])
    assert client.post("/v1/translate", json=BODY, headers=bearer(key)).status_code == 401


def test_keys_are_in_no_line_of_the_log_and_in_no_metric(keyed, caplog):
    client, make_key = keyed
    key = make_key("translate")
    with caplog.at_level(logging.DEBUG):
        client.post("/v1/translate", json=BODY, headers=bearer(key))
        client.post("/v1/translate", json=BODY, headers=bearer("gossamer_secret"))
        client.post("/translate", json={"q": "a", "source": "en", "target": "fr", "api_key": key})
    lines = [record for record in caplog.records if record.name.startswith("service.api")]
    assert [record.key for record in lines if hasattr(record, "key")] == [key.split("_")[1]] * 2
    text = "".join(str(record.__dict__) for record in caplog.records) + client.get("/metrics").text
    assert key not in text
    assert "gossamer_secret" not in text
    assert 'gossamer_rejections_total{reason="unauthenticated"} 1.0' in text
    assert 'gossamer_requests_total{outcome="client_error",route="/v1/translate"} 1.0' in text


def test_pages_of_chosen_origins_may_use_the_api(make_client, file):
    client = make_client(keys_file=file.create("a", ["translate"]) and file.path, cors_origins=("https://a.org",))
    asking = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    answer = client.options("/v1/translate", headers={"Origin": "https://a.org", **asking})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == "https://a.org"
    assert client.options("/v1/translate", headers={"Origin": "https://b.org", **asking}).status_code == 400
    # An error can be read by the page too.
    refused = client.post("/v1/translate", json=BODY, headers={"Origin": "https://a.org"})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://a.org"
    assert refused.headers["x-content-type-options"] == "nosniff"


def test_by_default_no_other_origin_may(client):
    answer = client.post("/v1/translate", json=BODY, headers={"Origin": "https://a.org"})
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "headers", [{}, {"authorization": "Basic abc"}, {"authorization": "Bearer "}, {"x-api-key": " "}]
)
def test_no_key_is_none(headers):
    assert presented_key(headers) is None
