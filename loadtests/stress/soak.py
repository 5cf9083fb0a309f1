"""Half an hour of everything that clients do, and do wrong: does the server stay as it was?

    python -m loadtests.stress.soak                            # 30 minutes
    python -m loadtests.stress.soak --minutes 2
    python -m loadtests.stress.soak --pause 1                  # beside other work: a pause after each request

All routes, streams, attention, files and documents, glossaries, both dialects, bad input of many kinds, requests that
are given up in the midst. After a warm-up of a third of the time, the server's resident memory is read every few
seconds, and its open files, threads and sequences when all is quiet, before and after. Bounds: memory grows by less
than 2 % (from the mean of the first fifth of the readings to that of the last), no file stays behind, no more threads
than pools may have, nothing runs that nobody waits for, no answer is a 500, none is missing, and there is no error in
the log.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loadtests.client import Answer, Client
from loadtests.servers import ServerProcess, end_in_order, gossamer_server
from loadtests.texts import held_out_sentences

NUM_CLIENTS = 12
MAX_GROWTH = 0.02
MOST_NEW_THREADS = 8
"""Pools get their threads when they are first needed; one that stayed behind with each request would be more."""
_READ_SECONDS = 2.0
_QUIET_SECONDS = 6.0
"""After the last answer: idle connections are closed, and what was cancelled has ended."""

ALLOWED = frozenset((200, 201, 204, 400, 404, 405, 406, 408, 413, 415, 422, 429, 503, 504))
Draw = Callable[[random.Random], str]


@dataclass(frozen=True, slots=True)
class Reading:
    """Of the server's process."""

    seconds: float
    resident_bytes: int
    num_files: int
    num_threads: int


@dataclass(frozen=True, slots=True)
class Soak:
    """What was seen.

    Attributes:
        statuses: By route; "gone" are requests that were given up.
        growth: Of resident memory, as a share.
        resident_bytes: After the warm-up, the mean of each fifth of the time.
        files: Open before, and after, when all was quiet.
        threads: Likewise.
        running: What the server itself counts as running or waiting, when all was quiet.
        log: Lines of the server's log at level error.
    """

    statuses: dict[str, dict[str, int]]
    growth: float
    resident_bytes: tuple[int, ...]
    files: tuple[int, int]
    threads: tuple[int, int]
    running: float
    log: list[str]

    def faults(self, max_growth: float = MAX_GROWTH) -> list[str]:
        """Every bound that was missed."""
        found = []
        for route, statuses in self.statuses.items():
            bad = {
                status: count for status, count in statuses.items() if status != "gone" and int(status) not in ALLOWED
            }
            if bad:
                found.append(f"{route}: {bad}")
        if self.growth > max_growth:
            found.append(
                f"memory grew by {self.growth:.1%}, from {self.resident_bytes[0]} to {self.resident_bytes[-1]} bytes"
            )
        if self.files[1] > self.files[0]:
            found.append(f"{self.files[1] - self.files[0]} files stayed open")
        if self.threads[1] > self.threads[0] + MOST_NEW_THREADS:
            found.append(f"{self.threads[1] - self.threads[0]} threads stayed")
        if self.running:
            found.append(f"{self.running:.0f} sequences stayed with nobody waiting for them")
        if self.log:
            found.append(f"errors in the log: {self.log[:3]}")
        return found


def read_process(pid: int, since: float) -> Reading:
    """What the system says of a process."""
    status = dict(
        line.split(":", 1)
        for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines()
    )
    return Reading(
        time.monotonic() - since,
        int(status["VmRSS"].split()[0]) * 1024,
        len(os.listdir(f"/proc/{pid}/fd")),
        int(status["Threads"]),
    )


class Visitor:
    """Asks for everything, rightly and wrongly."""

    def __init__(self, server: ServerProcess, seed: int = 1) -> None:
        self._port = server.port
        self._client = Client("127.0.0.1", server.port)
        self._random = random.Random(seed)
        self._sentences = held_out_sentences()
        self.statuses: dict[str, Counter[str]] = {}

    def _text(self, most: int = 6) -> str:
        return " ".join(self._random.choices(self._sentences, k=self._random.randint(1, most)))

    async def visit(self) -> None:
        """One request of some kind."""
        kinds = (self._good, self._bad, self._broken, self._give_up, self._file, self._document, self._glossary)
        await self._random.choices(kinds, (16, 6, 2, 4, 1, 1, 1))[0]()

    async def _good(self) -> None:
        text = self._text()
        path, body = self._random.choice(
            [
                ("/v1/translate", {"text": text, "target": "fr"}),
                (
                    "/v1/translate",
                    {"text": [text, self._text(2), ""], "decoding": {"beam_size": 1}, "return": ["segments"]},
                ),
                ("/v1/translate", {"text": text, "stream": True}),
                ("/v1/translate", {"text": f"<p>{text} <b>Bold</b> <a href='/x'>link</a></p>", "format": "html"}),
                (
                    "/v1/translate",
                    {"text": f"See https://example.org/{self._random.random()} for 12.5 kg.", "source": "en"},
                ),
                ("/v1/translate", {"text": self._text(1), "return": ["alignment", "scores", "tokens"]}),
                ("/v1/detect", {"text": text}),
                ("/v1/attention", {"text": self._text(1), "target": "fr"}),
                ("/v1/alignment", {"text": self._text(1)}),
                ("/v1/trace", {"text": "Good morning."}),
                ("/v1/score", {"text": "Good morning.", "target_text": "Bonjour."}),
                ("/v1/next", {"text": "Good morning.", "prefix": "Bon"}),
                ("/translate", {"q": text, "source": "en", "target": "fr", "format": "text"}),
                ("/detect", {"q": text}),
                ("/v2/translate", {"text": [text], "target_lang": "FR"}),
                ("/v1/models", None),
                ("/languages", None),
                ("/v2/usage", None),
                ("/metrics", None),
                ("/healthz", None),
                ("/readyz", None),
                ("/startupz", None),
                ("/health", None),
                ("/frontend/settings", None),
                ("/", None),
                ("/docs", None),
                ("/openapi.json", None),
            ]
        )
        await self._ask(path, body)

    async def _file(self) -> None:
        """A file, and its translation; one of five is no text."""
        answer = await self._upload("/translate_file", "source", "target", "fr")
        if answer.status == 200:
            path = "/" + str(answer.json()["translatedFileUrl"]).split("/", 3)[3]
            self._count("/download_file", str((await self._client.get(path)).status))

    async def _document(self) -> None:
        """A document, waited for and fetched; some are left there."""
        answer = await self._upload("/v2/document", "source_lang", "target_lang", "FR")
        if answer.status != 200 or self._random.random() < 0.2:
            return
        ticket = answer.json()
        path = f"/v2/document/{ticket['document_id']}"
        for _ in range(300):
            status = await self._client.post(path, {"document_key": ticket["document_key"]})
            if status.status != 200 or status.json()["status"] in ("done", "error"):
                break
            await asyncio.sleep(0.2)
        self._count("/v2/document/{id}", str(status.status))
        fetched = await self._client.post(f"{path}/result", {"document_key": ticket["document_key"]})
        self._count("/v2/document/{id}/result", str(fetched.status))

    async def _upload(self, path: str, source_name: str, target_name: str, target: str) -> Answer:
        content = self._text().encode() if self._random.random() < 0.8 else self._random.randbytes(300)
        boundary = "a-boundary"
        parts = [
            f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
            for name, value in ((source_name, "en"), (target_name, target))
        ]
        disposition = 'Content-Disposition: form-data; name="file"; filename="a.txt"'
        parts.append(f"--{boundary}\r\n{disposition}\r\n\r\n".encode() + content + b"\r\n")
        body = b"".join(parts) + f"--{boundary}--\r\n".encode()
        answer = await self._client.request(
            "POST", path, body, content_type=f"multipart/form-data; boundary={boundary}"
        )
        self._count(path, str(answer.status))
        return answer

    async def _glossary(self) -> None:
        """A glossary made, read and taken away."""
        body = {"name": "g", "source_lang": "en", "target_lang": "fr", "entries": "web\ttoile", "entries_format": "tsv"}
        made = await self._client.post("/v2/glossaries", body)
        self._count("/v2/glossaries", str(made.status))
        if made.status == 201:
            path = f"/v2/glossaries/{made.json()['glossary_id']}"
            self._count("/v2/glossaries/{id}", str((await self._client.get(path)).status))
            self._count("/v2/glossaries/{id}", str((await self._client.request("DELETE", path, b"")).status))

    async def _bad(self) -> None:
        path, body = self._random.choice(
            [
                ("/v1/translate", {"text": 5}),
                ("/v1/translate", {"text": self._text(1), "target": "xx"}),
                ("/v1/translate", {"text": self._text(1), "decoding": {"beam_size": 99}}),
                ("/v1/translate", {"text": "a" * 200_000}),
                ("/v1/translate", {"text": ["a"] * 2_000}),
                ("/v1/translate", {}),
                ("/v1/attention", {"text": self._text(), "layers": [77]}),
                ("/translate", {"q": "x"}),
                ("/v2/translate", {"text": "x"}),
                ("/v1/translate", None),
                ("/no/such/page", None),
                ("/v1/next", {"text": ""}),
            ]
        )
        await self._ask(path, body)

    async def _broken(self) -> None:
        """Bytes that are no request, or half of one."""
        raw = self._random.choice(
            [
                b"GET",
                b"\x00\xff\r\n\r\n",
                _post(b"", -5),
                _post(b"{", 100),
                _post(b"\xff\xfe{}"),
                _post(b"[" * 2000),
                b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-Many: 1\r\n" * 200 + b"\r\n",
            ]
        )
        await self._half(raw, wait=self._random.random() < 0.5)

    async def _give_up(self) -> None:
        """A good request whose client goes away in the midst."""
        stream = self._random.random() < 0.5
        body = json.dumps({"text": self._text(20), "stream": stream}).encode()
        await self._half(_post(body), wait=False, seconds=self._random.random() * 0.3)

    async def _half(self, raw: bytes, *, wait: bool, seconds: float = 0.0) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                writer.write(raw)
                await asyncio.sleep(seconds)
                if wait:
                    async with asyncio.timeout(1):
                        await reader.read(1000)
            finally:
                writer.close()
        self._count("(given up, or broken)", "gone")

    async def _ask(self, path: str, body: Any) -> None:
        answer = await (self._client.get(path) if body is None else self._client.post(path, body))
        self._count(path, str(answer.status))

    def _count(self, route: str, status: str) -> None:
        self.statuses.setdefault(route, Counter())[status] += 1

    async def close(self) -> None:
        """Closes connections."""
        await self._client.close()


def _post(body: bytes, announced: int | None = None) -> bytes:
    length = len(body) if announced is None else announced
    head = f"Host: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    return b"POST /v1/translate HTTP/1.1\r\n" + head.encode() + body


async def run(server: ServerProcess, seconds: float, pause_seconds: float = 0.0) -> Soak:
    """Soaks a server; each client waits for `pause_seconds` after each request."""
    await server.wait_until_ready()
    visitors = [Visitor(server, seed) for seed in range(NUM_CLIENTS)]
    start = time.monotonic()
    readings: list[Reading] = []

    async def visit(visitor: Visitor, until: float) -> None:
        while time.monotonic() < until:
            await visitor.visit()
            await asyncio.sleep(pause_seconds)

    async def read() -> None:
        while True:
            readings.append(read_process(server.pid, start))
            await asyncio.sleep(_READ_SECONDS)

    async def load(until: float) -> None:
        await asyncio.gather(*(visit(visitor, until) for visitor in visitors))

    # Everything once, so that what is made when first needed is there; then quiet, for what counts as nothing.
    await load(start + seconds / 3)
    await asyncio.sleep(_QUIET_SECONDS)
    before = read_process(server.pid, start)
    begun = time.monotonic() - start
    reader = asyncio.ensure_future(read())
    await load(start + begun + seconds * 2 / 3)
    reader.cancel()
    for visitor in visitors:
        await visitor.close()
    await asyncio.sleep(_QUIET_SECONDS)
    after = read_process(server.pid, start)
    metrics = (await server.client.get("/metrics")).body.decode()
    await server.client.close()
    running = sum(
        float(line.split()[1])
        for line in metrics.splitlines()
        if line.startswith(("gossamer_running_sequences ", "gossamer_waiting_sequences "))
    )
    edges = [len(readings) * part // 5 for part in range(6)]
    fifths = tuple(
        round(statistics.fmean(reading.resident_bytes for reading in readings[start : max(end, start + 1)]))
        for start, end in itertools.pairwise(edges)
    )
    statuses: dict[str, Counter[str]] = {}
    for route, counts in itertools.chain.from_iterable(visitor.statuses.items() for visitor in visitors):
        statuses.setdefault(route, Counter()).update(counts)
    return Soak(
        {route: dict(counts) for route, counts in sorted(statuses.items())},
        fifths[-1] / fifths[0] - 1,
        fifths,
        (before.num_files, after.num_files),
        (before.num_threads, after.num_threads),
        running,
        [line for line in server.log_end().splitlines() if " error " in line or "Traceback" in line],
    )


def main() -> None:
    """Start, soak, stop, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--pause", type=float, default=0.0, metavar="SECONDS", help="of each client after each request")
    parser.add_argument("--model", type=Path, help="default: the bundled one from English")
    arguments = parser.parse_args()
    end_in_order()
    server = gossamer_server(arguments.model)
    try:
        soak = asyncio.run(run(server, 60 * arguments.minutes, arguments.pause))
    finally:
        server.stop()
    faults = soak.faults()
    for route, counts in soak.statuses.items():
        print(f"{route:24} {counts}")
    memory = " ".join(f"{num_bytes / 2**20:.0f}" for num_bytes in soak.resident_bytes)
    print(f"memory in each fifth of the time {memory} MiB ({soak.growth:+.1%})")
    for fault in faults:
        print(f"MISSED {fault}")
    print(json.dumps(asdict(soak) | {"missed": faults}))
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
