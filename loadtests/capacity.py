"""What one replica gives, through HTTP: the numbers of a row of the table in docs/scaling.md.

    python -m loadtests.capacity                       # the bundled model, a minute
    python -m loadtests.capacity --model FOLDER --device cuda

A closed loop: so many clients, each of which asks for another sentence (held-out English) when it has its answer. Each
search is tried: greedy, and the server's default of a beam of 4. Client and server share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from loadtests.arrivals import closed_loop, percentile
from loadtests.client import Client
from loadtests.machine import machine, versions
from loadtests.servers import ServerProcess, end_in_order, gossamer_server
from loadtests.texts import held_out_sentences

CLIENTS = (1, 8, 32)
_WARM_UP_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Capacity:
    """What was seen of one number of clients.

    Attributes:
        beam_size: Of the search.
        num_clients: How many asked at once.
        sentences: Answers a second.
        target_tokens: Target tokens a second.
        source_characters: Characters of the source a second.
        p50: Seconds of an answer, the median.
        memory_bytes: The most that the server has held so far.
    """

    beam_size: int
    num_clients: int
    sentences: float
    target_tokens: float
    source_characters: float
    p50: float
    memory_bytes: int


async def measure(server: ServerProcess, beam_size: int, num_clients: int, seconds: float) -> Capacity:
    """A closed loop; its first quarter does not count."""
    client = Client("127.0.0.1", server.port)
    sentences = itertools.cycle(held_out_sentences())
    seen: list[tuple[float, float, int, int]] = []
    until = asyncio.Event()

    async def ask(*_: object) -> int:
        text, started = next(sentences), time.perf_counter()
        body = {"text": text, "source": "en", "target": "fr", "decoding": {"beam_size": beam_size}}
        answer = await client.post("/v1/translate", body)
        if answer.status != 200:
            raise RuntimeError(f"status {answer.status}: {answer.body[:200]!r}")
        now = time.perf_counter()
        seen.append((now, now - started, answer.json()["usage"]["target_tokens"], len(text)))
        return answer.status

    running = asyncio.ensure_future(closed_loop(num_clients, until, ask))
    await asyncio.sleep(seconds * _WARM_UP_SHARE)
    start = time.perf_counter()
    await asyncio.sleep(seconds * (1 - _WARM_UP_SHARE))
    took = time.perf_counter() - start
    counted = [entry for entry in seen if entry[0] >= start]
    until.set()
    await running
    await client.close()
    return Capacity(
        beam_size,
        num_clients,
        len(counted) / took,
        sum(tokens for _, _, tokens, _ in counted) / took,
        sum(characters for *_, characters in counted) / took,
        percentile([each for _, each, _, _ in counted], 0.5),
        server.peak_memory_bytes() or 0,
    )


async def run(server: ServerProcess, seconds: float) -> list[Capacity]:
    """Every search with every number of clients."""
    await server.wait_until_ready()
    found = []
    for beam_size in (1, 4):
        for num_clients in CLIENTS:
            found.append(await measure(server, beam_size, num_clients, seconds))
            each = found[-1]
            print(  # noqa: T201  # the result
                f"beam {beam_size}, {num_clients:2} clients: {each.sentences:6.1f} sentences/s, "
                f"{each.target_tokens:7.0f} target tokens/s, {each.source_characters:7.0f} characters/s, "
                f"p50 {1000 * each.p50:5.0f} ms, peak memory {each.memory_bytes / 2**20:.0f} MiB",
                flush=True,
            )
    await server.client.close()
    return found


def main() -> None:
    """Start, measure, stop, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each loop")
    parser.add_argument("--model", type=Path, help="default: the bundled one")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    arguments = parser.parse_args()
    end_in_order()
    server = gossamer_server(arguments.model, {"GOSSAMER_DEVICE": arguments.device})
    try:
        found = asyncio.run(run(server, arguments.seconds))
    finally:
        server.stop()
    result = {"machine": machine(), "versions": versions(), "capacity": [asdict(each) for each in found]}
    print(json.dumps(result))  # noqa: T201  # likewise


if __name__ == "__main__":
    main()
