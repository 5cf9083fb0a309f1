"""What happens to servers: does it still serve?

    python -m loadtests.stress.chaos                           # all, some minutes
    python -m loadtests.stress.chaos killed idle-connections

killed            SIGKILL in the midst of work: a server that is started again on the same port serves within seconds
full-disk         its log goes to a device that is full: requests are answered as before
clock             the wall clock jumps, by hours, days and years: deadlines and waits do not care
vanishing         hundreds of clients send a request and go away: their rows are free, and others are served
idle-connections  2,000 connections that say nothing: others are served, and the idle ones are closed in time

The exit status is 1 if it did not serve. What cannot be tried here (too few files allowed) is told.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO

from loadtests.client import Client
from loadtests.servers import ServerProcess, end_in_order, gossamer_server

_LINES = "The spider feels the web. Where is the train station? They would rather walk than wait another hour. " * 5
_PATIENCE_SECONDS = 240.0


class NotHere(Exception):
    """It cannot be tried on this machine; says why."""


class Failed(Exception):
    """It did not serve; says how."""


def check(holds: bool, message: str) -> None:
    """Raises `Failed` unless it holds."""
    if not holds:
        raise Failed(message)


async def ask(server: ServerProcess, text: str = _LINES, seconds: float = _PATIENCE_SECONDS) -> int:
    """The status of a translation by a connection of its own; 0 if there was none in time."""
    client = Client("127.0.0.1", server.port)
    try:
        async with asyncio.timeout(seconds):
            return (await client.post("/v1/translate", {"text": text, "source": "en"})).status
    except TimeoutError:
        return 0
    finally:
        await client.close()


async def metric(server: ServerProcess, name: str) -> float:
    """A number that the server tells."""
    client = Client("127.0.0.1", server.port)
    body = (await client.get("/metrics")).body.decode()
    await client.close()
    return sum(float(line.split()[1]) for line in body.splitlines() if line.startswith(name + " "))


async def until_quiet(server: ServerProcess, seconds: float = _PATIENCE_SECONDS) -> None:
    """Until nothing runs or waits in the server."""
    deadline = time.monotonic() + seconds
    while await metric(server, "gossamer_running_sequences") or await metric(server, "gossamer_waiting_sequences"):
        check(time.monotonic() < deadline, "sequences are still running that nobody waits for")
        await asyncio.sleep(0.1)


@asynccontextmanager
async def serving(
    model: Path | None,
    environment: Mapping[str, str] | None = None,
    *,
    module: str = "service",
    log: IO[bytes] | None = None,
) -> AsyncIterator[ServerProcess]:
    """A server that is ready, and at the end stops in order."""
    server = gossamer_server(model, environment, module=module, log=log)
    try:
        await server.wait_until_ready()
        yield server
    finally:
        await server.client.close()
        code = server.stop()
    check(code == 0, f"it ended with {code}")


async def killed(model: Path | None, _scale: float) -> str:
    """SIGKILL in the midst of work."""
    server = gossamer_server(model)
    is_killed = False

    async def ask_until_killed() -> tuple[bool, int]:
        # Again and again: a quick server would be done before anybody has seen it at work.
        while True:
            was_killed = is_killed
            status = await ask(server)
            if status != 200 or is_killed:
                return was_killed, status

    try:
        await server.wait_until_ready()
        asking = [asyncio.ensure_future(ask_until_killed()) for _ in range(20)]
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while not await metric(server, "gossamer_running_sequences"):
            check(time.monotonic() < deadline, "it was never seen at work")
            await asyncio.sleep(0.01)
        is_killed = True
        os.kill(server.pid, signal.SIGKILL)
        # What was asked before it was killed, and how that ended.
        statuses = [status for was_killed, status in await asyncio.gather(*asking) if not was_killed]
        check(0 in statuses, "nothing was in the midst")
        check(set(statuses) <= {0, 200}, f"half an answer: {statuses}")
    finally:
        await server.client.close()
        server.stop()
    again = gossamer_server(model, port=server.port)
    try:
        started = time.monotonic()
        await again.wait_until_ready()
        seconds = time.monotonic() - started
        check(await ask(again) == 200, "it does not serve")
    finally:
        await again.client.close()
        again.stop()
    return f"{statuses.count(0)} connections were cut; started again, it was ready after {seconds:.1f} s"


async def full_disk(model: Path | None, _scale: float) -> str:
    """A log that cannot be written."""
    if not Path("/dev/full").exists():
        raise NotHere("there is no /dev/full")
    with open("/dev/full", "wb", buffering=0) as full:
        environment = {"GOSSAMER_LOG_LEVEL": "debug", "GOSSAMER_LOG_FORMAT": "json"}
        async with serving(model, environment, log=full) as server:
            statuses = [await ask(server, "Hello.") for _ in range(20)]
            check(set(statuses) == {200}, f"statuses {statuses}")
            check(await metric(server, "gossamer_ready") == 1, "it is not ready")
    return "20 of 20 were answered, and it stopped with 0"


async def clock(model: Path | None, _scale: float) -> str:
    """A wall clock that jumps."""
    environment = {"GOSSAMER_ADDRESS_REQUESTS_PER_MINUTE": "100000"}
    async with serving(model, environment, module="loadtests.stress.jumping") as server:
        statuses = [status for _ in range(6) for status in await asyncio.gather(*(ask(server) for _ in range(4)))]
        check(set(statuses) == {200}, f"statuses {statuses}")
    return f"{len(statuses)} of {len(statuses)} were answered"


async def vanishing(model: Path | None, scale: float) -> str:
    """Clients that go away in the midst."""
    count = max(20, round(500 * scale))
    async with serving(model) as server:
        body = json.dumps({"text": _LINES * 3, "source": "en", "stream": True}).encode()
        length = f"Content-Length: {len(body)}\r\n"
        head = f"POST /v1/translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{length}"

        async def vanish(number: int) -> None:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", server.port)
                writer.write(head.encode() + b"\r\n" + body)
                await asyncio.sleep(0.02 * (number % 10))
                # Half of them with a reset, the others in good order.
                writer.transport.abort() if number % 2 else writer.close()

        for start in range(0, count, 50):
            await asyncio.gather(*(vanish(number) for number in range(start, min(start + 50, count))))
        check(await ask(server, "Hello.") == 200, "it does not serve")
        await until_quiet(server)
        given_up = await metric(server, "gossamer_cancellations_total")
        check(given_up > 0, "nobody went away in the midst")
        check(await ask(server) == 200, "it does not serve")
    return f"{count} clients went away, {given_up:.0f} translations were given up, nothing was left"


async def idle_connections(model: Path | None, scale: float) -> str:
    """Connections that say nothing."""
    count = max(50, round(2000 * scale))
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most < count + 200:
        raise NotHere(f"a process may have {most} files, and {count + 200} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(count + 200, resource.getrlimit(resource.RLIMIT_NOFILE)[0]), most))
    environment = {"GOSSAMER_RECEIVE_TIMEOUT_SECONDS": "15" if scale == 1 else "5"}
    async with serving(model, environment) as server, contextlib.AsyncExitStack() as stack:
        started = time.monotonic()
        for _ in range(count):
            _, writer = await asyncio.open_connection("127.0.0.1", server.port)
            stack.callback(writer.close)
        opened, times = 0, []
        for _ in range(10):
            begun = time.monotonic()
            check(await ask(server, "Hello.", 30) == 200, "it does not serve beside them")
            times.append(time.monotonic() - begun)
            opened = max(opened, len(os.listdir(f"/proc/{server.pid}/fd")))
        if time.monotonic() - started < 4:
            check(opened >= count, f"only {opened} files are open")
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while len(os.listdir(f"/proc/{server.pid}/fd")) > 100:
            check(time.monotonic() < deadline, "they are never closed")
            await asyncio.sleep(0.5)
        check(await ask(server, "Hello.", 30) == 200, "it does not serve afterwards")
    return f"beside {count} idle connections the slowest of ten took {max(times):.2f} s; they were closed in time"


TRIALS: dict[str, Callable[[Path | None, float], Awaitable[str]]] = {
    "killed": killed,
    "full-disk": full_disk,
    "clock": clock,
    "vanishing": vanishing,
    "idle-connections": idle_connections,
}


def main() -> None:
    """Try, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trial", nargs="*", choices=[*TRIALS, []], help="default: all")
    parser.add_argument("--model", type=Path, help="default: the bundled one from English")
    parser.add_argument("--scale", type=float, default=1.0, help="share of clients and connections")
    arguments = parser.parse_args()
    end_in_order()
    failed = False
    for name in arguments.trial or TRIALS:
        try:
            print(f"{name:17} {asyncio.run(TRIALS[name](arguments.model, arguments.scale))}", flush=True)
        except NotHere as reason:
            print(f"{name:17} not tried: {reason}", flush=True)
        except Failed as fault:
            failed = True
            print(f"{name:17} FAILED: {fault}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
