"""An HTTP client that costs next to nothing: on two cores a heavier one would measure itself.

    client = Client("127.0.0.1", port)
    answer = await client.post("/v1/translate", {"text": "Good morning."})
    answer.status, answer.json()

It knows what the servers here need: HTTP/1.1, connections that are kept, bodies with a length or in chunks.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

_PARTS = 8  # of a body that is sent slowly
_MAX_IDLE_SECONDS = 3.0  # uvicorn closes what was idle for 5


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back.

    Attributes:
        status: Of the answer; 0 if there was none.
        body: All of it; with status 0 what went wrong.
    """

    status: int
    body: bytes

    def json(self) -> Any:
        """The body, parsed."""
        return json.loads(self.body)


@dataclass(slots=True)
class _Connection:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    idle_since: float = 0.0


class Client:
    """As many connections as there are requests at once; idle ones are used again."""

    def __init__(self, host: str, port: int) -> None:
        """Opens nothing yet."""
        self.host, self.port = host, port
        self._idle: list[_Connection] = []

    async def get(self, path: str) -> Answer:
        """GET."""
        return await self.request("GET", path, b"")

    async def post(
        self,
        path: str,
        body: object,
        on_chunk: Callable[[bytes], None] | None = None,
        *,
        upload_seconds: float = 0.0,
    ) -> Answer:
        """POST an object as JSON.

        Args:
            path: Of the resource.
            body: Anything that JSON can hold.
            on_chunk: Gets every chunk of a chunked answer when it comes.
            upload_seconds: How long the body takes to be sent, as over a slow line.
        """
        return await self.request("POST", path, json.dumps(body).encode(), on_chunk, upload_seconds=upload_seconds)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes,
        on_chunk: Callable[[bytes], None] | None = None,
        *,
        upload_seconds: float = 0.0,
        content_type: str = "application/json",
    ) -> Answer:
        """One request. What goes wrong below HTTP is an answer with status 0."""
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nContent-Length: {len(body)}\r\n"
        head += f"Content-Type: {content_type}\r\n\r\n" if body else "\r\n"
        try:
            connection = await self._connection()
            try:
                if upload_seconds:
                    connection.writer.write(head.encode())
                    for part in range(_PARTS):
                        await asyncio.sleep(upload_seconds / _PARTS)
                        connection.writer.write(body[len(body) * part // _PARTS : len(body) * (part + 1) // _PARTS])
                else:
                    connection.writer.write(head.encode() + body)
                answer, keep = await _read_answer(connection.reader, on_chunk)
            except BaseException:
                connection.writer.close()
                raise
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            return Answer(0, repr(error).encode())
        if keep:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        else:
            connection.writer.close()
        return answer

    async def _connection(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if time.monotonic() - connection.idle_since < _MAX_IDLE_SECONDS and not connection.reader.at_eof():
                return connection
            connection.writer.close()
        reader, writer = await asyncio.open_connection(self.host, self.port)
        return _Connection(reader, writer)

    async def close(self) -> None:
        """Close what is idle."""
        while self._idle:
            self._idle.pop().writer.close()
        await asyncio.sleep(0)


async def _read_answer(reader: asyncio.StreamReader, on_chunk: Callable[[bytes], None] | None) -> tuple[Answer, bool]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(head[0].split(" ", 2)[1])
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    keep = headers.get("connection", "").lower() != "close"
    if headers.get("transfer-encoding", "").lower() == "chunked":
        chunks = []
        while size := int(await reader.readuntil(b"\r\n"), 16):
            chunks.append(await reader.readexactly(size))
            await reader.readexactly(2)
            if on_chunk is not None:
                on_chunk(chunks[-1])
        await reader.readexactly(2)
        return Answer(status, b"".join(chunks)), keep
    return Answer(status, await reader.readexactly(int(headers.get("content-length", 0)))), keep
