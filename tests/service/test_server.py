"""The real server, in a process of its own, with a tiny model."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import torch
import uvicorn

from loadtests.quality.local import translate_text
from model.checkpoint import load_checkpoint
from model.decoding import DecodingOptions
from service.server import _listen, _Server

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "tests/data/tiny_checkpoint"

# Nothing here takes more than seconds, unless others have the machine's processors.
_PATIENCE_SECONDS = 240
STOPPED = {"the engine is stopping", "the engine has stopped"}
"""What a request is told of which some was still to be submitted: that depends on how far the engine was."""


class Server:
    def __init__(self, *arguments, **variables):
        environ = {name: value for name, value in os.environ.items() if not name.startswith("GOSSAMER_")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "service", "serve", "--port", "0", *map(str, arguments)],
            cwd=ROOT,
            env=environ | {"PYTHONUNBUFFERED": "1", "GOSSAMER_TORCH_THREADS": "1"} | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.errors = []
        self._reader = threading.Thread(target=lambda: self.errors.extend(self.process.stderr), daemon=True)
        self._reader.start()
        self.welcome = [self.process.stdout.readline() for _ in range(5)]
        self.address = self.welcome[1].split()[-1].rstrip("/")

    def get(self, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS) as response:
                return response.status, json.loads(response.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def wait_until_ready(self):
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while self.get("/readyz")[0] != 200:
            assert time.monotonic() < deadline, self.errors
            time.sleep(0.05)

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.wait()

    def wait(self):
        try:
            code = self.process.wait(_PATIENCE_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)
        self.process.stdout.close()
        self.process.stderr.close()
        return code


@pytest.fixture(scope="module")
def server():
    server = Server("-m", TINY)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def best():
    """What the model says of a sentence, without a server."""
    checkpoint = load_checkpoint(TINY)
    checkpoint.model.set_precision("auto")
    return lambda text, beam_size=4: translate_text(
        checkpoint, text, DecodingOptions(beam_size), max_segment_tokens=128
    )


def test_it_says_what_to_open_and_answers_there(server, best):
    assert server.get("/healthz") == (200, {"status": "ok"})
    server.wait_until_ready()
    assert "page" in server.welcome[1]
    assert "/docs" in server.welcome[2]
    curl = server.welcome[3].split(maxsplit=1)[1]
    if shutil.which("curl"):
        output = subprocess.run(["bash", "-c", curl.replace("curl", "curl -s", 1)], capture_output=True, text=True)
        assert json.loads(output.stdout)["translations"][0]["text"] == best("Where is the train station?")


def test_a_string_and_a_list_are_translated(server, best):
    server.wait_until_ready()
    status, answer = server.get("/v1/translate", {"text": "The spider feels the web."})
    assert status == 200
    assert answer["translations"][0]["text"] == best("The spider feels the web.")
    assert answer["model"]["name"] == "tiny"

    texts = ["Hello.", "", "How many trains leave on Sunday?", "🙂"] * 10
    status, answer = server.get("/v1/translate", {"text": texts})
    expected = {text: best(text) if text.strip("🙂") else text for text in set(texts)}
    assert [item["text"] for item in answer["translations"]] == [expected[text] for text in texts]


def test_paragraphs_keep_their_line_breaks(server, best):
    server.wait_until_ready()
    _, answer = server.get("/v1/translate", {"text": "Hello. Hello.\r\n\r\n\t- The web.\n"})
    assert answer["translations"][0]["text"] == f"{best('Hello.')} {best('Hello.')}\r\n\r\n\t- {best('The web.')}\n"


def test_beams_scores_and_tokens_are_the_model_s(server):
    server.wait_until_ready()
    recorded = json.loads((ROOT / "tests/data/tiny_checkpoint_output.json").read_text())
    source = recorded["sources"][1]
    body = {
        "text": source,
        "decoding": {"beam_size": 4, "num_hypotheses": 2},
        "return": ["segments", "scores", "tokens"],
    }
    _, answer = server.get("/v1/translate", body)
    (segment,) = answer["translations"][0]["segments"]
    assert [token["id"] for token in segment["source_tokens"]] == recorded["source_ids"][1]
    first, second = segment["hypotheses"]
    assert first["score"] >= second["score"]
    for hypothesis in (first, second):
        assert sum(token["log_prob"] for token in hypothesis["tokens"]) == pytest.approx(hypothesis["log_prob"])
    assert answer["translations"][0]["alternatives"] == [second["text"]]


def test_a_stream_ends_with_the_whole(server, best):
    server.wait_until_ready()
    body = json.dumps({"text": "Hello. The web.", "stream": True}).encode()
    request = urllib.request.Request(server.address + "/v1/translate", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_PATIENCE_SECONDS) as response:
        events = response.read().decode().strip().split("\n\n")
    name, data = events[-1].split("\n")
    assert name == "event: done"
    text = json.loads(data.removeprefix("data: "))["translations"][0]["text"]
    assert text == f"{best('Hello.', beam_size=1)} {best('The web.', beam_size=1)}"


def test_bad_input_is_refused_and_the_server_goes_on(server):
    server.wait_until_ready()
    assert server.get("/v1/translate", {"text": 5})[0] == 422
    assert server.get("/v1/translate", {"text": "a" * 1_000_000})[0] == 413
    for raw in (b"GET", b"\x00\xff\r\n\r\n", b"POST /v1/translate HTTP/1.1\r\nContent-Length: -5\r\n\r\n"):
        with socket.create_connection(server.address.removeprefix("http://").split(":"), timeout=10) as connection:
            connection.sendall(raw)
    assert server.get("/healthz")[0] == 200


@pytest.mark.parametrize(
    ("raw", "status", "kind", "detail"),
    [
        (b"\x00\xff\r\n\r\n", 400, "malformed-request", 'the request\'s line is "\\u0000ÿ"; allowed is METHOD'),
        (b"GET\r\n\r\n", 400, "malformed-request", 'the request\'s line is "GET"; allowed is METHOD'),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "malformed-request", "Host is missing; allowed is one"),
        (b"GET / HTTP/9.9\r\nHost: a\r\n\r\n", 505, "http-version", 'the version is "HTTP/9.9"; allowed is HTTP/1.1'),
        (b"GET / HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n", 400, "malformed-request", 'a header is "bad header"'),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n", 400, "malformed-request", 'Length is "-5"'),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            501,
            "transfer-coding",
            'Transfer-Encoding is "gzip, chunked"; allowed is only chunked',
        ),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nExpect: nonsense\r\n\r\n",
            417,
            "expectation-failed",
            'Expect is "nonsense"; allowed is only 100-continue',
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 300_000,
            431,
            "headers-too-large",
            "have more than 65536 bytes; at most 65536 are allowed",
        ),
        (
            b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
            431,
            "headers-too-large",
            "bytes; at most 65536 are allowed",
        ),
        (
            b"POST /v1/translate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
            400,
            "malformed-request",
            'a chunk\'s line is "zz"; allowed is its size',
        ),
    ],
)
def test_what_is_no_http_is_answered_with_a_problem_and_the_connection_closed(server, raw, status, kind, detail):
    host, port = server.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=_PATIENCE_SECONDS) as connection:
        connection.sendall(raw)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while received := connection.recv(65_536):  # to the end: the server closes it
            answer += received
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *headers = head.decode().lower().split("\r\n")
    assert first.startswith(f"http/1.1 {status} ")
    assert {"content-type: application/problem+json", "connection: close", f"content-length: {len(body)}"} <= {*headers}
    assert any(header.startswith("date: ") for header in headers)
    problem = json.loads(body)
    assert problem["type"] == f"urn:gossamer:problem:{kind}"
    assert (problem["status"], len(problem["request_id"])) == (status, 32)
    assert detail in problem["detail"]
    assert "bytearray" not in problem["detail"]
    (fault,) = problem["errors"]
    assert set(fault) == {"field", "given", "allowed"} and fault["allowed"]


def _send(server, raw):
    """The answer to bytes, to the end of the connection."""
    host, port = server.address.removeprefix("http://").split(":")
    answer = b""
    with socket.create_connection((host, int(port)), timeout=_PATIENCE_SECONDS) as connection:
        connection.sendall(raw)
        while received := connection.recv(65_536):
            answer += received
    return answer


@pytest.mark.parametrize(
    ("line", "status", "part"),
    [
        ("GET {address}/healthz", "200", '{"status":"ok"}'),
        ("GET http://other.example/healthz?a=b", "200", '{"status":"ok"}'),
        ("OPTIONS *", "204", "allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS"),
        ("OPTIONS {address}/v1/translate", "204", "allow: POST, OPTIONS"),
        ("GET {address}/v1/models/", "307", "location: {address}/v1/models\r\n"),
    ],
)
def test_requests_are_served_whatever_the_form_of_their_target(server, line, status, part):
    line, part = (text.replace("{address}", server.address) for text in (line, part))
    answer = _send(server, f"{line} HTTP/1.1\r\nHost: given\r\nConnection: close\r\n\r\n".encode()).decode()
    assert answer.startswith(f"HTTP/1.1 {status} ")
    assert part in answer


def test_what_follows_a_last_request_does_not_end_it(server):
    server.wait_until_ready()
    body = b'{"text": "Hello."}'
    head = b"POST /v1/detect HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 18\r\n"
    answer = _send(server, head + b"Connection: close\r\n\r\n" + body + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ") and b'"detections"' in answer


def test_a_request_whose_body_has_two_ends_is_refused_and_nothing_behind_it_is_read(server):
    host, port = server.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=_PATIENCE_SECONDS) as connection:
        head = "POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n".encode())
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while received := connection.recv(65_536):  # to the end: the server closes it
                answer += received
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 200") == 0
    assert answer.count(b"HTTP/1.1 400") == 1


def test_a_refused_body_that_is_still_being_sent_is_answered_and_not_reset(server):
    """A client reads the answer only when it has sent all; a connection closed before that is a reset to it."""
    host, port = server.address.removeprefix("http://").split(":")
    for framing in ("chunked", "length"):
        with socket.create_connection((host, int(port)), timeout=_PATIENCE_SECONDS) as connection:
            is_chunked = framing == "chunked"
            length = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {8 * 1024**2}"
            head = f"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{length}\r\n\r\n"
            connection.sendall(head.encode())
            part = b" " * 65_536
            for _ in range(128):
                connection.sendall(b"10000\r\n" + part + b"\r\n" if is_chunked else part)
                time.sleep(0.001)
            if is_chunked:
                connection.sendall(b"0\r\n\r\n")
            answer = b""
            while received := connection.recv(65_536):  # to the end: the server closes it
                answer += received
        assert answer.startswith(b"HTTP/1.1 413 "), framing
        assert b"at most 2097152 are allowed" in answer


@pytest.mark.parametrize("length", [9_999_999, 2**64 - 1, 10**20 - 1])
def test_a_body_that_is_announced_as_too_long_is_refused_at_once(server, length):
    host, port = server.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=9) as connection:  # a body has 30 s to arrive
        head = f"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"
        connection.sendall(head.encode())
        answer = connection.recv(65_536)
    assert answer.startswith(b"HTTP/1.1 413 Content Too Large\r\n")


def test_who_waits_for_a_go_ahead_is_refused_before_sending(server):
    host, port = server.address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=_PATIENCE_SECONDS) as connection:
        connection.sendall(
            b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
            b"Content-Length: 9999999\r\nExpect: 100-continue\r\n\r\n"
        )
        started = time.monotonic()
        answer = b""
        while received := connection.recv(65_536):
            answer += received
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert time.monotonic() - started < 9  # it does not wait for a body that will not come


def test_requests_that_arrive_too_slowly_are_given_up():
    server = Server("-m", TINY, GOSSAMER_RECEIVE_TIMEOUT_SECONDS="1")
    host, port = server.address.removeprefix("http://").split(":")
    try:
        with (
            socket.create_connection((host, int(port)), timeout=_PATIENCE_SECONDS) as silent,
            socket.create_connection((host, int(port)), timeout=_PATIENCE_SECONDS) as slow_head,
            socket.create_connection((host, int(port)), timeout=_PATIENCE_SECONDS) as slow_body,
        ):
            slow_head.sendall(b"GET /healthz HTTP/1.1\r\nHost:")
            slow_body.sendall(
                b"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: 100\r\n\r\n{"
            )
            assert silent.recv(100) == b""
            assert slow_head.recv(100) == b""
            assert slow_body.recv(100).startswith(b"HTTP/1.1 408 ")
    finally:
        assert server.stop() == 0


def _with_much_to_do(server, ending=""):
    """A thread that asks for a thousand translations, of which some are being made, and where it puts the answer."""
    results = []
    texts = [f"They would rather walk than wait {number} hours{ending}." for number in range(1000)]
    body = {"text": texts, "decoding": {"beam_size": 16}}
    asking = threading.Thread(target=lambda: results.append(server.get("/v1/translate", body)))
    asking.start()
    while "gossamer_running_sequences 0.0" in _metrics(server):
        assert asking.is_alive(), "it was over before it was seen"
        time.sleep(0.01)
    return asking, results


@pytest.mark.alone  # its questions have to arrive within the grace
def test_while_it_stops_the_port_is_open_and_says_so():
    server = Server("-m", TINY, GOSSAMER_STOP_GRACE_SECONDS="8")
    server.wait_until_ready()
    asking, results = _with_much_to_do(server)
    server.process.send_signal(signal.SIGTERM)
    while (probe := server.get("/readyz"))[0] == 200:
        time.sleep(0.01)
    assert (probe[0], probe[1]["detail"]) == (503, "the engine is stopping")
    assert server.get("/healthz")[0] == 200
    refused, problem = server.get("/v1/translate", {"text": "Hello."})
    assert (refused, problem["detail"]) == (503, "the engine is stopping")
    assert server.stop() == 0
    asking.join()
    assert results[0][0] in (200, 503)


def test_it_is_live_and_ready_under_full_load(server):
    server.wait_until_ready()
    texts = [f"They would rather walk than wait {number} hours for the next bus." for number in range(40)]
    body = {"text": texts, "decoding": {"beam_size": 4, "max_target_tokens": 40}}
    is_enough = threading.Event()

    def ask():
        while not is_enough.is_set():
            server.get("/v1/translate", body)

    asking = [threading.Thread(target=ask) for _ in range(20)]
    for thread in asking:
        thread.start()
    try:
        while "gossamer_waiting_sequences 0.0" in _metrics(server):
            time.sleep(0.01)
        started = time.monotonic()
        for _ in range(10):
            assert server.get("/healthz")[0] == 200
            assert server.get("/readyz")[0] == 200
        seconds = time.monotonic() - started
    finally:
        is_enough.set()
        for thread in asking:
            thread.join()
    assert seconds < 20  # ten times what Kubernetes waits for one of them by default; in fact tenths of a second


def test_sigterm_finishes_what_runs_and_exits_with_0():
    server = Server("-m", TINY, GOSSAMER_LOG_FORMAT="json")
    server.wait_until_ready()
    results = []
    texts = [f"They would rather walk than wait {number} hours for the next bus." for number in range(60)]
    body = {"text": texts, "decoding": {"beam_size": 4, "max_target_tokens": 40}}
    asking = threading.Thread(target=lambda: results.append(server.get("/v1/translate", body)))
    asking.start()
    while "gossamer_running_sequences 0.0" in _metrics(server):
        assert asking.is_alive(), "it was over before it was seen"
        time.sleep(0.01)
    assert server.stop() == 0
    asking.join()
    ((status, answer),) = results
    assert status in (200, 503)  # done within the grace, or told to come again
    if status == 200:
        assert len(answer["translations"]) == len(texts)
    else:
        assert answer["detail"] in STOPPED
    lines = [json.loads(line) for line in server.errors]
    assert any(line["message"].startswith("POST /v1/translate") and line["request_id"] != "-" for line in lines)
    assert "bus" not in "".join(server.errors)


@pytest.mark.parametrize(
    ("text", "num_texts", "beam_size"),  # enough that most of the time is the engine's, and many wait for it
    [
        ("They would rather walk than wait {number} hours for the bus.", 4, 8),
        # The tiny model loses what has to be kept, so that its segments are tried again, and in pieces.
        ("Mail ${number}.50 to a@b.example: see https://example.org/x?y=1.", 8, 4),
    ],
)
def test_sigterm_with_200_requests_in_flight_gives_each_its_answer_or_a_refusal(text, num_texts, beam_size):
    names = ("STOP_GRACE", "MAX_WAIT", "REQUEST_TIMEOUT")
    patience = {f"GOSSAMER_{name}_SECONDS": "200" for name in names}
    server = Server("-m", TINY, GOSSAMER_LOG_LEVEL="warning", **patience)
    body = {
        "text": [text.format(number=number) for number in range(num_texts)],
        "source": "en",
        "decoding": {"beam_size": beam_size},
    }
    answers = []
    asking = [threading.Thread(target=lambda: answers.append(server.get("/v1/translate", body))) for _ in range(200)]
    try:
        server.wait_until_ready()
        for thread in asking:
            thread.start()
        while (
            num_begun := sum(_number(server, f"gossamer_{state}_requests") for state in ("running", "waiting"))
        ) < 30:
            assert len(answers) < 100, "they were too fast to be in flight together"
        assert server.stop() == 0
    finally:
        server.stop()
    for thread in asking:
        thread.join()
    assert len(answers) == 200
    done = [answer for status, answer in answers if status == 200]
    assert all(len(answer["translations"]) == num_texts for answer in done)
    refused = {(status, answer["detail"]) for status, answer in answers if status != 200}
    assert refused <= {(503, detail) for detail in STOPPED}
    assert len(done) >= min(num_begun, 200)  # two looks, between which a waiting one may have begun to run


def _number(server, name):
    lines = [line for line in _metrics(server).splitlines() if line.startswith(name + " ")]
    return float(lines[0].split()[1]) if lines else 0.0


def _metrics(server):
    with urllib.request.urlopen(server.address + "/metrics", timeout=_PATIENCE_SECONDS) as response:
        return response.read().decode()


def test_sigterm_while_loading_exits_with_0():
    server = Server("-m", TINY)
    assert server.stop() == 0


def test_a_damaged_model_ends_the_server_with_1_and_names_the_file(tmp_path):
    shutil.copytree(TINY, tmp_path / "damaged")
    weights = tmp_path / "damaged/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    server = Server("-m", tmp_path / "damaged")
    assert server.wait() == 1
    assert "model.safetensors" in "".join(server.errors)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_asked_for_and_missing_ends_the_server_and_says_why():
    server = Server("-m", TINY, GOSSAMER_DEVICE="cuda")
    assert server.wait() == 1
    assert "device is cuda, but torch" in "".join(server.errors)


def test_the_body_of_an_answer_does_not_wait_until_its_head_is_acknowledged():
    with _listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()[:2]):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_port_in_use_is_2_and_says_so():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = subprocess.run(
            [sys.executable, "-m", "service", "serve", "-m", str(TINY), "--port", str(port)],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
        )
    assert result.returncode == 2
    assert f"cannot listen on 127.0.0.1, port {port}: Address already in use" in result.stderr


def test_a_second_signal_ends_at_once_what_the_grace_would_have_finished():
    server = Server("-m", TINY, GOSSAMER_STOP_GRACE_SECONDS="200", GOSSAMER_LOG_FORMAT="json")
    server.wait_until_ready()
    asking, results = _with_much_to_do(server, " for the next bus")
    for _ in range(2):  # a terminal's Ctrl-C may come twice, which is one
        server.process.send_signal(signal.SIGINT)
        time.sleep(0.02)
    time.sleep(0.5)
    assert asking.is_alive() and server.process.poll() is None
    server.process.send_signal(signal.SIGTERM)
    assert server.wait() == 0
    asking.join()
    ((status, answer),) = results
    assert status == 503 and answer["detail"] in STOPPED
    assert any("told a second time" in line for line in server.errors)
    assert not any('"level": "error"' in line.lower() or "Traceback" in line for line in server.errors)


def test_a_third_signal_waits_for_nobody(monkeypatch):
    async def stop():
        stopping = _Server(uvicorn.Config(lambda: None), grace_seconds=1.0, on_listening=lambda: None)
        forced = []
        for number in range(3):
            monkeypatch.setattr("service.server.time.monotonic", lambda number=number: 10.0 * number)
            stopping.handle_exit(signal.SIGTERM, None)
            await asyncio.sleep(0)
            forced.append((stopping.should_exit, stopping._is_hurried.is_set(), stopping.force_exit))
        return forced

    assert asyncio.run(stop()) == [(True, False, False), (True, True, False), (True, True, True)]
