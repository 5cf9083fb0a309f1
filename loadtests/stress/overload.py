"""More than it can do: what becomes of a server that is asked two and five times as much as it has capacity for.

    python -m loadtests.stress.overload                        # three minutes at each, as the report has it
    python -m loadtests.stress.overload --seconds 20 --model tests/data/tiny_checkpoint

1. *Peak*: a closed loop of many clients; answers a second.
2. For each factor, an open loop of Poisson arrivals at that multiple of the peak. *Goodput* is answers (200) a second
   while it lasts; whatever else comes must be a refusal (503 with `Retry-After`), and come fast.
3. *Recovery*: from the last arrival until a small request is again answered about as fast as when nothing else ran.

Times are the client's, from when a request was sent; client and server share the machine, so the figures are upper
bounds. The exit status is 1 if a bound is missed (`--lenient` only shows them).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import random
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from loadtests.arrivals import closed_loop, percentile, poisson_times
from loadtests.client import Client
from loadtests.servers import ServerProcess, end_in_order, gossamer_server
from loadtests.texts import held_out_sentences

FACTORS = (2.0, 5.0)
NUM_CLIENTS = 16
"""Of the closed loop; with ten sentences each enough for full batches."""

_LEAST_ROUNDS = 3
"""Answers for each client of the closed loop, besides the first, which are not counted: batches fill."""

_PAUSE_SECONDS = 0.05
_PEAK_PATIENCE_SECONDS = 120.0

_RAMP_SHARE = 0.25
"""Of an overload's time that does not count for the goodput: the queue fills, first answers are on their way."""

_RECOVERY_PATIENCE_SECONDS = 120.0


class NoPeak(RuntimeError):
    """The server, or the machine, is too slow to be measured; the message has what came."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is promised.

    Attributes:
        goodput: Least share of the peak.
        refusal_seconds: Most that a refusal takes, at the 99th percentile.
        accepted_seconds: Most that an answer takes, at the 99th percentile.
        recovery_seconds: Most until all is as before.
    """

    goodput: float = 0.9
    refusal_seconds: float = 0.1
    accepted_seconds: float = 15.0
    recovery_seconds: float = 5.0


@dataclass(frozen=True, slots=True)
class Overload:
    """What was seen at one multiple of the peak.

    Attributes:
        factor: Of the peak.
        offered: Requests a second.
        goodput: Answers a second, as a share of the peak.
        statuses: How many of each; 0 is a connection that failed.
        accepted_p50: Seconds of an answer, the median.
        accepted_p99: Likewise, the 99th percentile.
        refusal_p50: Seconds of a refusal, the median.
        refusal_p99: Likewise, the 99th percentile.
        recovery_seconds: From the last arrival until a small request was fast again.
    """

    factor: float
    offered: float
    goodput: float
    statuses: dict[int, int]
    accepted_p50: float
    accepted_p99: float
    refusal_p50: float
    refusal_p99: float
    recovery_seconds: float

    def faults(self, bounds: Bounds) -> list[str]:
        """Every bound that was missed."""
        found = []
        strange = {status: count for status, count in self.statuses.items() if status not in (200, 503)}
        if strange:
            found.append(f"statuses that are neither 200 nor 503: {strange}")
        for name, value, most in (
            ("the goodput's share that is missing", 1 - self.goodput, 1 - bounds.goodput),
            ("a refusal, 99th percentile", self.refusal_p99, bounds.refusal_seconds),
            ("an answer, 99th percentile", self.accepted_p99, bounds.accepted_seconds),
            ("the recovery", self.recovery_seconds, bounds.recovery_seconds),
        ):
            if value > most:
                found.append(f"{name} is {value:.3f}, more than {most:.3f}")
        return [f"at {self.factor:g}x: {fault}" for fault in found]


class Asker:
    """Asks a server for texts of some sentences, no two alike."""

    def __init__(self, server: ServerProcess, sentences_each: int, seed: int = 1) -> None:
        self._client = Client("127.0.0.1", server.port)
        self._sentences = held_out_sentences()
        self._each = sentences_each
        self._random = random.Random(seed)
        self._number = itertools.count()
        self.seen: list[tuple[int, float, float]] = []
        """Of each request: its status, when it was sent, and the seconds to its answer."""

    async def ask(self, *_: object) -> int:
        """One request; its status."""
        text = " ".join(self._random.choices(self._sentences, k=self._each)) + f" {next(self._number)}"
        return await self._send(text)

    async def ask_little(self) -> tuple[int, float]:
        """A single short sentence: its status and seconds."""
        started = time.perf_counter()
        status = await self._send("Good morning.")
        return status, time.perf_counter() - started

    async def _send(self, text: str) -> int:
        started = time.perf_counter()
        answer = await self._client.post("/v1/translate", {"text": text, "source": "en", "decoding": {"beam_size": 1}})
        self.seen.append((answer.status, started, time.perf_counter() - started))
        return answer.status

    async def close(self) -> None:
        """Closes connections."""
        await self._client.close()


async def measure_peak(asker: Asker, seconds: float) -> float:
    """Answers a second of a closed loop.

    Raises:
        NoPeak: There were too few.
    """
    until = asyncio.Event()
    asker.seen.clear()
    start = time.perf_counter()

    async def ask(_: int) -> None:
        if await asker.ask() != 200:  # a slow machine may not take so many at once
            await asyncio.sleep(_PAUSE_SECONDS)

    running = asyncio.ensure_future(closed_loop(NUM_CLIENTS, until, ask))
    done: list[float] = []
    while time.perf_counter() - start < seconds or len(done) < (1 + _LEAST_ROUNDS) * NUM_CLIENTS:
        if time.perf_counter() - start > seconds + _PEAK_PATIENCE_SECONDS:
            break
        await asyncio.sleep(_PAUSE_SECONDS)
        done = sorted(sent + took for status, sent, took in asker.seen if status == 200)
    until.set()
    await running
    if len(done) <= 2 * NUM_CLIENTS:
        statuses = dict(Counter(status for status, _, _ in asker.seen))
        raise NoPeak(f"{len(done)} answers in {time.perf_counter() - start:.0f} s are too few for a peak: {statuses}")
    return (len(done) - NUM_CLIENTS) / (done[-1] - done[NUM_CLIENTS - 1])


async def measure_overload(asker: Asker, peak: float, factor: float, seconds: float, idle_seconds: float) -> Overload:
    """An open loop at a multiple of the peak, and what follows it."""
    asker.seen.clear()
    times = poisson_times(factor * peak, max(1, round(factor * peak * seconds)), seed=round(factor))
    start = time.perf_counter()
    tasks = []
    for due in times:
        await asyncio.sleep(max(0.0, start + due - time.perf_counter()))
        tasks.append(asyncio.ensure_future(asker.ask()))
    end = time.perf_counter()
    seen = asker.seen
    asker.seen = []
    recovery = await measure_recovery(asker, end, idle_seconds)
    await asyncio.gather(*tasks)
    seen += [entry for entry in asker.seen if entry[1] < end]
    accepted = [took for status, _, took in seen if status == 200]
    refused = [took for status, _, took in seen if status == 503]
    steady = start + _RAMP_SHARE * (end - start)
    in_time = [1 for status, sent, took in seen if status == 200 and steady <= sent + took <= end]
    return Overload(
        factor,
        len(times) / (end - start),
        len(in_time) / (end - steady) / peak,
        dict(Counter(status for status, _, _ in seen)),
        percentile(accepted, 0.5),
        percentile(accepted, 0.99),
        percentile(refused, 0.5),
        percentile(refused, 0.99),
        recovery,
    )


async def measure_recovery(asker: Asker, since: float, idle_seconds: float) -> float:
    """Seconds from `since` until a small request takes no longer than twice its time on an idle server, and 50 ms."""
    while time.perf_counter() - since < _RECOVERY_PATIENCE_SECONDS:
        status, took = await asker.ask_little()
        if status == 200 and took <= 2 * idle_seconds + 0.05:
            break
        await asyncio.sleep(0.05)
    return time.perf_counter() - since


async def run(
    server: ServerProcess, seconds: float, sentences_each: int, factors: tuple[float, ...] = FACTORS
) -> tuple[float, list[Overload]]:
    """The peak, in answers a second, and what was seen at each multiple of it."""
    await server.wait_until_ready()
    asker = Asker(server, sentences_each)
    try:
        await asker.ask()
        idle = percentile([(await asker.ask_little())[1] for _ in range(10)], 0.5)
        peak = await measure_peak(asker, seconds / 4)
        found = []
        for factor in factors:
            found.append(await measure_overload(asker, peak, factor, seconds, idle))
            await asyncio.sleep(1)
        return peak, found
    finally:
        await asker.close()
        await server.client.close()


def main() -> None:
    """Start, measure, stop, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=180.0, help="at each multiple of the peak")
    parser.add_argument("--model", type=Path, help="default: the bundled one from English")
    parser.add_argument("--sentences", type=int, default=10, help="in each request")
    parser.add_argument("--lenient", action="store_true", help="only show which bounds are missed")
    arguments = parser.parse_args()
    end_in_order()
    server = gossamer_server(arguments.model)
    try:
        peak, found = asyncio.run(run(server, arguments.seconds, arguments.sentences))
    except NoPeak as error:
        sys.exit(f"no result: {error}")
    finally:
        server.stop()
    print(f"peak: {peak:.1f} answers a second, {arguments.sentences} sentences each")
    faults = []
    for overload in found:
        print(
            f"{overload.factor:g}x ({overload.offered:.1f}/s): goodput {overload.goodput:.0%} of the peak, "
            f"answers p50 {overload.accepted_p50:.2f} s p99 {overload.accepted_p99:.2f} s, "
            f"refusals p50 {1000 * overload.refusal_p50:.0f} ms p99 {1000 * overload.refusal_p99:.0f} ms, "
            f"recovered after {overload.recovery_seconds:.1f} s, {overload.statuses}"
        )
        faults += overload.faults(Bounds())
    for fault in faults:
        print(f"MISSED {fault}")
    print(json.dumps({"peak": peak, "overload": [asdict(each) for each in found], "missed": faults}))
    sys.exit(1 if faults and not arguments.lenient else 0)


if __name__ == "__main__":
    main()
