import asyncio
import logging

import pytest
from fastapi import Request
from starlette.responses import Response
from starlette.testclient import TestClient

from service.api.middleware import SECURITY_HEADERS, outcome_of
from service.api.responses import EventStream
from service.app import create_app
from service.settings import Settings
from tests.service.fake_tokenizer import FakeTokenizer
from tests.service.fakes import FakeEngine


def test_a_request_gets_an_id_of_its_own(client):
    first, second = (client.get("/healthz").headers["x-request-id"] for _ in range(2))
    assert first != second


def test_the_client_s_request_id_is_kept_if_it_is_plain(client):
    assert client.get("/healthz", headers={"X-Request-ID": "job-7.a"}).headers["x-request-id"] == "job-7.a"


@pytest.mark.parametrize("given", ["", "a b", "x" * 65, "é", "<script>", 'a"b'])
def test_any_other_request_id_is_replaced(client, given):
    response = client.get("/healthz", headers={"X-Request-ID": given.encode()})
    assert response.headers["x-request-id"] != given
    assert len(response.headers["x-request-id"]) == 32


@pytest.mark.parametrize("path", ["/healthz", "/v1/models", "/nope", "/metrics", "/"])
def test_every_answer_has_the_security_headers(client, path):
    headers = client.get(path).headers
    assert set(map(str.lower, SECURITY_HEADERS)) <= set(headers)


@pytest.mark.parametrize(("method", "path", "status"), [("GET", "/nope", 404), ("GET", "/v1/translate", 405)])
def test_what_the_framework_refuses_is_a_problem_document_too(client, method, path, status):
    response = client.request(method, path)
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["status"] == status


def test_a_wrong_method_is_told_which_are_right(client):
    response = client.get("/v1/translate")
    assert response.headers["allow"] == "POST, OPTIONS"
    assert response.json()["detail"] == 'GET is not allowed for "/v1/translate"; allowed is POST, OPTIONS'
    response = client.delete("/healthz")
    assert response.headers["allow"] == "GET, HEAD, OPTIONS"
    assert response.json()["detail"] == 'DELETE is not allowed for "/healthz"; allowed is GET, HEAD, OPTIONS'


def test_a_path_with_routes_for_several_methods_allows_them_all(engine):
    app = create_app(Settings(), engine, {})
    app.add_api_route("/two", lambda: None, methods=["GET"])
    app.add_api_route("/two", lambda: None, methods=["DELETE", "PUT"])
    with TestClient(app) as client:
        assert client.post("/two").headers["allow"] == "GET, HEAD, PUT, DELETE, OPTIONS"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/translate", "POST, OPTIONS"),
        ("/healthz", "GET, HEAD, OPTIONS"),
        ("/translate", "GET, HEAD, POST, OPTIONS"),
        ("/v2/glossaries/x", "GET, HEAD, DELETE, OPTIONS"),
    ],
)
def test_options_are_told_for_each_path(client, path, allowed):
    response = client.options(path)
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["allow"] == allowed


def test_there_are_no_options_where_there_is_nothing(client):
    assert client.options("/nope").status_code == 404


def test_an_unknown_path_is_repeated_shortened_with_where_to_look(client):
    detail = client.get("/nope").json()["detail"]
    assert detail == 'there is nothing at "/nope"; /docs lists what there is'
    assert len(client.get("/" + "n" * 10_000).content) < 1_000


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/startupz", "/metrics", "/v1/models", "/", "/docs", "/nope"])
def test_head_is_answered_as_get_without_the_body(client, path):
    if path != "/nope":
        client.portal.call(asyncio.sleep, 0.01)  # the engine starts beside the app
    head, get = client.head(path), client.get(path)
    assert head.status_code == get.status_code
    assert head.content == b""
    assert head.headers["content-type"] == get.headers["content-type"]


def test_a_body_that_does_not_arrive_in_time_is_answered_with_408(engine):
    async def scenario():
        app = create_app(Settings(receive_timeout_seconds=0.05), engine, {"en-fr": FakeTokenizer()})
        sent, parts = [], [{"type": "http.request", "body": b'{"text":', "more_body": True}]

        async def receive():
            if parts:
                return parts.pop()
            await asyncio.Event().wait()

        async def send(message):
            sent.append(message)

        async with app.router.lifespan_context(app):
            await asyncio.wait_for(app(post_scope(), receive, send), 5)
        assert sent[0]["status"] == 408
        assert (b"connection", b"close") in sent[0]["headers"]
        assert b"after 0.05 s: 8 bytes came" in sent[1]["body"]

    asyncio.run(scenario())


def test_a_body_that_has_arrived_has_no_such_limit(engine):
    async def scenario():
        engine.hold = asyncio.Event()
        app = create_app(Settings(receive_timeout_seconds=0.05), engine, {"en-fr": FakeTokenizer()})
        async with app.router.lifespan_context(app):
            await asyncio.sleep(0)
            asyncio.get_running_loop().call_later(0.2, engine.hold.set)
            sent = await call(app, b'{"text": "Hello."}', gone=asyncio.Event())
            assert sent[0]["status"] == 200

    asyncio.run(scenario())


def test_an_unexpected_error_is_answered_and_logged_without_its_message(engine, caplog):
    app = create_app(Settings(), engine, {"en-fr": FakeTokenizer()})

    @app.get("/broken")
    async def broken():
        raise ZeroDivisionError("the user's text")

    with TestClient(app) as client, caplog.at_level(logging.ERROR):
        response = client.get("/broken", headers={"X-Request-ID": "seven"})
    assert response.status_code == 500
    assert response.json()["request_id"] == "seven"
    assert "user's text" not in response.text + caplog.text
    assert "ZeroDivisionError at " in caplog.text
    assert "in broken" in caplog.text or "broken" in caplog.text


def test_no_line_of_the_log_holds_text_or_paths(client, caplog):
    with caplog.at_level(logging.DEBUG):
        client.post("/v1/translate", json={"text": "a secret text"})
        client.get("/secret?text=secret")
    assert "POST /v1/translate 200 ok" in caplog.text
    assert "secret" not in "".join(
        record.getMessage() for record in caplog.records if not record.name.startswith("httpx")
    )


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, "ok"),
        (304, "ok"),
        (404, "client_error"),
        (499, "cancelled"),
        (500, "error"),
        (502, "error"),
        (429, "rejected"),
        (503, "rejected"),
        (504, "deadline"),
        (None, "error"),
    ],
)
def test_outcomes(status, outcome):
    assert outcome_of(status) == outcome


# --- clients that go away ---------------------------------------------------------------------------------------------


async def call(app, body, *, gone, state=None, is_slow=False):
    """Posts to the app as a server would; the client goes away when `gone` is set, and a slow one reads nothing."""
    sent, parts = [], [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        if parts:
            return parts.pop()
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)
        if is_slow and message["type"] == "http.response.body":
            await asyncio.Event().wait()

    await asyncio.wait_for(app(post_scope(state), receive, send), 5)
    return sent


def post_scope(state=None):
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/v1/translate",
        "raw_path": b"/v1/translate",
        "query_string": b"",
        "root_path": "",
        "headers": [(b"content-type", b"application/json"), (b"host", b"test")],
        "client": ("test", 1),
        "server": ("test", 80),
        "state": {} if state is None else state,
    }


@pytest.mark.parametrize("body", [b'{"text": "Hello."}', b'{"text": "Hello.", "stream": true}'])
def test_a_client_that_goes_away_frees_the_engine(body):
    async def scenario():
        engine = FakeEngine(hold=asyncio.Event())
        app = create_app(Settings(), engine, {"en-fr": FakeTokenizer()})
        async with app.router.lifespan_context(app):
            await asyncio.sleep(0)
            gone = asyncio.Event()
            asyncio.get_running_loop().call_later(0.05, gone.set)
            await call(app, body, gone=gone)
            assert engine.aborted == [engine.requests[0].request_id]
            metrics = app.state.services.metrics
            assert (
                metrics.registry.get_sample_value(
                    "gossamer_requests_total", {"route": "/v1/translate", "outcome": "cancelled"}
                )
                == 1
            )

    asyncio.run(scenario())


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_client_that_goes_away_in_the_midst_of_a_stream_ends_it(is_slow):
    closed, state = [], {}

    async def endless():
        try:
            while True:
                yield b"x"
                await asyncio.sleep(0.01)
        finally:
            closed.append(True)

    async def scenario():
        gone = asyncio.Event()
        asyncio.get_running_loop().call_later(0.05, gone.set)
        sent = await call(EventStream(endless()), b"", gone=gone, state=state, is_slow=is_slow)
        assert sent[0]["type"] == "http.response.start"
        assert len(sent) > 1
        assert closed == [True]

    asyncio.run(scenario())
    assert state == {"outcome": "cancelled"}


def test_a_client_that_goes_away_while_it_sends_is_no_error(engine):
    async def scenario():
        app = create_app(Settings(), engine, {"en-fr": FakeTokenizer()})
        async with app.router.lifespan_context(app):

            async def receive():
                return {"type": "http.disconnect"}

            async def send(message):
                assert message.get("status", 499) == 499

            scope = {
                "type": "http",
                "method": "POST",
                "path": "/v1/translate",
                "query_string": b"",
                "headers": [(b"content-type", b"application/json")],
            }
            await app(scope, receive, send)

    asyncio.run(scenario())


def test_an_answer_that_breaks_off_does_not_raise():
    engine = FakeEngine()
    app = create_app(Settings(), engine, {})

    @app.get("/half")
    async def half(request: Request) -> Response:
        class Half(Response):
            async def __call__(self, scope, receive, send):
                await send({"type": "http.response.start", "status": 200, "headers": []})
                raise ZeroDivisionError

        return Half()

    async def scenario():
        sent = []

        async def send(message):
            sent.append(message)

        async def receive():
            await asyncio.Event().wait()

        scope = {"type": "http", "method": "GET", "path": "/half", "query_string": b"", "headers": []}
        async with app.router.lifespan_context(app):
            await app(scope, receive, send)
        assert [message["type"] for message in sent] == ["http.response.start"]

    asyncio.run(scenario())
