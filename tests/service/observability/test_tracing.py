"""Spans, in memory; and once from a real server to a receiver that speaks OpenTelemetry's own protocol."""

import contextlib
import gzip
import http.server
import json
import logging
import subprocess
import sys
import threading
import urllib.request

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from starlette.testclient import TestClient

from service.app import create_app, open_tracing
from service.engine.errors import QueueFull
from service.settings import Settings, SettingsError
from tests.service.fake_tokenizer import FakeTokenizer
from tests.service.test_server import ROOT, TINY, Server

TRACE, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
HEADERS = {"traceparent": f"00-{TRACE}-{CALLER}-01", "X-Request-ID": "seven"}


@pytest.fixture
def traced(engine):
    """Runs an app with tracing, and gives what was exported when it has ended."""

    @contextlib.contextmanager
    def run(**settings):
        exporter, spans = InMemorySpanExporter(), []
        tokenizers = {info.name: FakeTokenizer() for info in engine.model_infos}
        app = create_app(Settings(tracing=True, **settings), engine, tokenizers, span_exporter=exporter)
        with TestClient(app) as client:
            yield client, spans
        spans += sorted(exporter.get_finished_spans(), key=lambda span: span.start_time)

    return run


def id_of(context):
    return f"{context.span_id:016x}"


def test_a_request_is_a_tree_of_spans_in_the_trace_of_its_caller(traced):
    with traced() as (client, spans):
        assert client.post("/v1/translate", json={"text": "a secret"}, headers=HEADERS).status_code == 200
    assert {f"{span.context.trace_id:032x}" for span in spans} == {TRACE}
    by_name = {span.name: span for span in spans}
    root = by_name["POST /v1/translate"]
    assert (id_of(root.parent), root.kind) == (CALLER, SpanKind.SERVER)
    parents = {name: id_of(span.parent) for name, span in by_name.items()}
    in_engine = id_of(by_name["translate"].context)
    assert parents == {
        "POST /v1/translate": CALLER,
        "tokenize": id_of(root.context),
        "translate": id_of(root.context),
        "detokenize": id_of(root.context),
        "queue": in_engine,
        "encode": in_engine,
        "decode": in_engine,
    }
    assert root.attributes["http.response.status_code"] == 200
    assert root.attributes["gossamer.request_id"] == "seven"
    assert root.attributes["gossamer.model"] == by_name["translate"].attributes["gossamer.model"] == "en-fr"
    milliseconds = {
        name: round((by_name[name].end_time - by_name[name].start_time) / 1e6) for name in ("queue", "encode", "decode")
    }
    assert milliseconds == {"queue": 1, "encode": 2, "decode": 3}  # as the fake engine tells
    assert by_name["queue"].end_time == by_name["encode"].start_time
    assert "secret" not in "".join(span.to_json() for span in spans)
    assert root.resource.attributes["service.name"] == "gossamer"


def test_a_stream_has_the_same_spans(traced):
    with traced() as (client, spans):
        assert client.post("/v1/translate", json={"text": "a", "stream": True}, headers=HEADERS).status_code == 200
    names = sorted(span.name for span in spans)
    assert names == ["POST /v1/translate", "decode", "detokenize", "encode", "queue", "tokenize", "translate"]
    assert {f"{span.context.trace_id:032x}" for span in spans} == {TRACE}


def test_without_a_caller_s_trace_one_begins_here_and_stands_in_log_and_exemplar(traced, caplog):
    caplog.set_level(logging.INFO)
    with traced() as (client, spans):
        client.post("/v1/translate", json={"text": "a"})
        shown = client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"}).text
    root = next(span for span in spans if span.name == "POST /v1/translate")
    assert root.parent is None
    trace_id = f"{root.context.trace_id:032x}"
    assert f'trace_id="{trace_id}"' in shown
    assert [record.trace_id for record in caplog.records if hasattr(record, "trace_id")] == [trace_id]


def test_who_does_not_sample_is_not_sampled_here(traced):
    with traced() as (client, spans):
        client.post("/v1/translate", json={"text": "a"}, headers={"traceparent": f"00-{TRACE}-{CALLER}-00"})
    assert spans == []


def test_probes_and_scrapes_make_no_spans(traced):
    with traced() as (client, spans):
        for path in ("/healthz", "/readyz", "/startupz", "/metrics"):
            client.get(path, headers=HEADERS)
    assert spans == []


def test_refusals_tell_their_reason_and_faults_are_errors(traced, engine):
    with traced() as (client, spans):
        engine.error = QueueFull(9, 10, 7)
        client.post("/v1/translate", json={"text": "a"})
        engine.error = ZeroDivisionError()
        client.post("/v1/translate", json={"text": "a"})
        client.get("/no/such/path")
    roots = [span for span in spans if span.kind is SpanKind.SERVER]
    assert [span.attributes.get("error.type") for span in roots] == ["queue-full", "internal-error", "not-found"]
    assert [span.status.status_code for span in roots] == [StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET]
    assert roots[2].name == "GET unmatched"


def test_without_tracing_the_library_is_not_even_loaded():
    code = (
        "import sys; from service.app import create_app; from service.settings import Settings; create_app(Settings());"
        "assert not [name for name in sys.modules if name.startswith('opentelemetry.sdk')]"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=120).returncode == 0


def test_a_missing_extra_is_a_fault_of_the_settings(monkeypatch):
    monkeypatch.delitem(sys.modules, "service.observability.tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(SettingsError, match=r"pip install 'gossamer\[tracing\]'"):
        open_tracing(Settings(tracing=True), "1")


@pytest.mark.parametrize(
    ("variable", "value"), [("OTEL_TRACES_EXPORTER", "jaeger"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]
)
def test_variables_that_cannot_be_followed_are_faults(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=rf"{variable} is '{value}'; allowed is"):
        open_tracing(Settings(tracing=True), "1")


def test_variables_name_the_service(monkeypatch, traced):
    monkeypatch.setenv("OTEL_SERVICE_NAME", "web-of-mine")
    with traced() as (client, spans):
        client.post("/v1/detect", json={"text": "a"})
    assert spans[0].resource.attributes["service.name"] == "web-of-mine"


class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Content-Encoding") == "gzip":
            body = gzip.decompress(body)
        self.server.received.append((self.path, ExportTraceServiceRequest.FromString(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *args):
        pass


def test_a_real_server_sends_to_where_the_variables_say():
    receiver = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    receiver.received = []
    threading.Thread(target=receiver.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{receiver.server_address[1]}"
    server = Server("-m", TINY, GOSSAMER_TRACING="true", OTEL_EXPORTER_OTLP_ENDPOINT=address)
    try:
        server.wait_until_ready()
        headers = HEADERS | {"Content-Type": "application/json"}
        body = json.dumps({"text": "Hello.", "source": "en"}).encode()
        urllib.request.urlopen(urllib.request.Request(server.address + "/v1/translate", body, headers), timeout=240)
    finally:
        code = server.stop()
        receiver.shutdown()
        receiver.server_close()
    assert code == 0
    spans = {
        span.name: span
        for path, request in receiver.received
        for resource in request.resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
        if path == "/v1/traces"
    }
    root = spans["POST /v1/translate"]
    assert (root.trace_id.hex(), root.parent_span_id.hex()) == (TRACE, CALLER)
    within = spans["translate"]
    assert root.start_time_unix_nano <= within.start_time_unix_nano <= within.end_time_unix_nano
    for name in ("queue", "encode", "decode"):
        assert spans[name].parent_span_id == within.span_id
        # The engine's clock and the trace's agree to well within a step.
        assert spans[name].start_time_unix_nano >= within.start_time_unix_nano - 20_000_000
        assert spans[name].end_time_unix_nano <= within.end_time_unix_nano
