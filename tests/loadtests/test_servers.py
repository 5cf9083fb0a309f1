import asyncio
import sys
import time

import pytest

from loadtests.client import Client
from loadtests.peers.server import Batcher
from loadtests.servers import ServerFailed, ServerProcess, peak_memory_bytes

ECHO = """
import sys, uvicorn
async def app(scope, receive, send):
    assert scope["type"] == "http"
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message["body"], message["more_body"]
    length = [] if scope["path"] == "/chunks" else [(b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": length})
    if length:
        await send({"type": "http.response.body", "body": body})
    else:
        for part in (body[:3], body[3:]):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
uvicorn.run(app, port=int(sys.argv[1]), lifespan="off", log_level="warning")
"""


def test_the_client_speaks_with_a_real_server_and_keeps_its_connection():
    server = ServerProcess("echo", [sys.executable, "-c", ECHO.replace("{", "{{").replace("}", "}}"), "{port}"])

    async def run():
        await server.wait_until_ready()
        client, chunks = Client("127.0.0.1", server.port), []
        first = await client.post("/x", {"a": "é"})
        second = await client.post("/chunks", {"a": 1}, chunks.append)
        connections = len(client._idle)
        both = await asyncio.gather(client.post("/x", 1), client.post("/x", 2))
        begun = time.perf_counter()
        slow = await client.post("/x", "slowly", upload_seconds=0.2)
        assert slow.json() == "slowly" and time.perf_counter() - begun >= 0.2
        await client.close()
        await server.client.close()
        return first, second, chunks, connections, both

    try:
        first, second, chunks, connections, both = asyncio.run(run())
        assert server.peak_memory_bytes() is None or server.peak_memory_bytes() > 5_000_000
    finally:
        server.stop()
    assert (first.status, first.json()) == (200, {"a": "é"})
    assert (second.status, second.json(), chunks) == (200, {"a": 1}, [b'{"a', b'": 1}'])
    assert connections == 1
    assert [answer.json() for answer in both] == [1, 2]


def test_a_server_that_ends_says_why():
    server = ServerProcess("broken", [sys.executable, "-c", "print('no model')", "{port}"])
    try:
        with pytest.raises(ServerFailed, match="broken did not get ready:\nno model"):
            asyncio.run(server.wait_until_ready())
    finally:
        server.stop()


def test_where_nobody_listens_the_answer_has_status_0():
    answer = asyncio.run(Client("127.0.0.1", 9).get("/"))
    assert answer.status == 0 and b"Error" in answer.body


def test_peak_memory_of_this_process_is_plausible_or_unknown():
    assert peak_memory_bytes() is None or 10_000_000 < peak_memory_bytes() < 10**11
    assert peak_memory_bytes(2**30) is None


def run_batcher(texts, **options):
    calls = []

    def translate(sources, lengths):
        calls.append((len(sources), lengths))
        return [[piece.upper() for piece in source] for source in sources]

    async def run():
        batcher = Batcher(translate, **options)
        work = asyncio.create_task(batcher.run())
        results = await asyncio.gather(*(batcher.submit([[text], [text]], number) for number, text in enumerate(texts)))
        work.cancel()
        return results

    return asyncio.run(run()), calls


def test_the_batcher_runs_what_comes_within_its_wait_together_and_answers_each_its_own():
    results, calls = run_batcher("abc", max_requests=64, max_wait_seconds=0.05, workers=1)
    assert results == [[["A"], ["A"]], [["B"], ["B"]], [["C"], ["C"]]]
    assert calls == [(6, [0, 0, 1, 1, 2, 2])]


def test_a_batch_has_at_most_so_many_requests():
    results, calls = run_batcher("abcde", max_requests=2, max_wait_seconds=0.05, workers=1)
    assert len(results) == 5
    assert [count for count, _ in calls] == [4, 4, 2]
