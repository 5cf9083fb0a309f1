"""Requests that arrive when they arrive: an open loop, and figures from what it saw.

Terms. In a *closed loop* each of a number of clients sends its next request when the last one is answered; a slow
server is then asked less, and its bad moments are seen by few: *coordinated omission*. In an *open loop* arrivals
follow a schedule that does not look at the server, and a request's time runs from the moment it was *due*, not from
when somebody got round to sending it. Here arrivals are a Poisson process: independent users.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Seen:
    """One request, as its sender saw it.

    Attributes:
        due: When it was to be sent, in seconds after the start.
        seconds: From then to its answer.
        ok: Whether it was answered as hoped.
        result: What the sender made of it.
    """

    due: float
    seconds: float
    ok: bool
    result: Any = None


def poisson_times(rate: float, count: int, seed: int) -> list[float]:
    """Arrival times in seconds from 0: gaps are exponential with a mean of 1 / `rate`."""
    generator = random.Random(seed)
    times, now = [], 0.0
    for _ in range(count):
        times.append(now)
        now += generator.expovariate(rate)
    return times


async def open_loop(
    times: Sequence[float], send: Callable[[int], Awaitable[tuple[bool, Any]]]
) -> tuple[list[Seen], float]:
    """Send request i at `times[i]`, whatever became of those before.

    Returns:
        What was seen of each, in order, and the seconds from the first arrival to the last answer.
    """
    start = time.perf_counter()

    async def one(index: int) -> Seen:
        await asyncio.sleep(max(0.0, start + times[index] - time.perf_counter()))
        ok, result = await send(index)
        return Seen(times[index], time.perf_counter() - start - times[index], ok, result)

    seen = await asyncio.gather(*(one(index) for index in range(len(times))))
    return list(seen), time.perf_counter() - start - times[0]


async def closed_loop(num_clients: int, until: asyncio.Event, send: Callable[[int], Awaitable[Any]]) -> None:
    """Keep `num_clients` requests running until the event is set; the last ones are waited for."""
    number = 0

    async def client() -> None:
        nonlocal number
        while not until.is_set():
            number += 1
            await send(number)

    await asyncio.gather(*(client() for _ in range(num_clients)))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that `share` of all do not exceed (nearest rank); NaN of nothing.

    Of fewer than 100 values the 99th percentile is the largest.
    """
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """The median, the 95th and the 99th percentile."""
    return {name: percentile(values, share) for name, share in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))}
