"""What counting costs: the share of a server's processor time that its metrics take.

    python -m loadtests.metrics_cost                   # the bundled model, some minutes

The same requests are translated again and again, in blocks, by turns with counting and without. Each pair of blocks
gives a difference in processor time of the whole process, which what others do on the machine hardly touches; many
pairs give a mean and how sure it is (95 %, by the normal distribution). The calls themselves are timed, too: an upper
bound, for what a timer takes counts as theirs. A scrape is timed apart.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

from prometheus_client import generate_latest

from service.app import create_app
from service.observability.facts import RequestFacts
from service.settings import BUNDLED_MODELS, Settings
from service.translator import Job

SENTENCES = (
    "Ninja moved the plant near the window because it needed more sunlight.",
    "Where is the train station?",
    "They would rather walk than wait another hour for the bus, even if it rains.",
    "Good morning.",
)

COUNTING = ("count_step", "count_result", "count_outcomes", "count_request")


class Switch:
    """Turns calls on and off, and adds up the time in them."""

    def __init__(self) -> None:
        """Begins on."""
        self.is_on = True
        self.seconds = 0.0
        self.calls = 0

    def of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, while it is on."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            if not self.is_on:
                return None
            started = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.thread_time() - started
                self.calls += 1

        return run


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean, and how far to both sides of it the true one may be, at 95 %."""
    return statistics.fmean(values), 1.96 * statistics.stdev(values) / math.sqrt(len(values))


async def measure(rounds: int, num_requests: int, num_clients: int, beam_size: int) -> dict[str, Any]:
    """Translates single sentences from some clients at once, in `rounds` pairs of blocks."""
    # Before the app is made: it hands one of them to the engine.
    from service.observability.metrics import Metrics

    switch = Switch()
    with contextlib.ExitStack() as patches:
        for name in COUNTING:
            patches.enter_context(patch.object(Metrics, name, switch.of(getattr(Metrics, name))))
        return await _measure_app(switch, rounds, num_requests, num_clients, beam_size)


async def _measure_app(
    switch: Switch, rounds: int, num_requests: int, num_clients: int, beam_size: int
) -> dict[str, Any]:
    from model.decoding import DecodingOptions

    app = create_app(Settings(log_level="error", models=(BUNDLED_MODELS / "en-fr",)))
    translator, metrics = app.state.services.translator, app.state.services.metrics
    async with app.router.lifespan_context(app):
        while not app.state.services.engine.is_ready:
            await asyncio.sleep(0.05)
        model = translator.find_model()

        async def client(texts: list[str]) -> None:
            while texts:
                begun = time.monotonic()
                job = Job((texts.pop(),), model, DecodingOptions(beam_size=beam_size))
                result = await translator.translate(job)
                facts = RequestFacts("0" * 32, model=model.name, source_tokens=result.source_tokens)
                metrics.count_request("/v1/translate", "ok", time.monotonic() - begun, facts)

        async def block(is_on: bool) -> float:
            """Seconds of the processor."""
            switch.is_on = is_on
            texts = [SENTENCES[number % len(SENTENCES)] for number in range(num_requests)]
            started = time.process_time()
            await asyncio.gather(*(client(texts) for _ in range(num_clients)))
            return time.process_time() - started

        await block(True)  # caches fill
        switch.seconds = switch.calls = 0
        with_counting, without = [], []
        for number in range(rounds):
            for is_on in (True, False) if number % 2 else (False, True):
                (with_counting if is_on else without).append(await block(is_on))
        scrapes = []
        for _ in range(20):
            begun = time.perf_counter()
            generate_latest(metrics.registry)
            scrapes.append(time.perf_counter() - begun)
    each = statistics.fmean(without)
    difference, doubt = interval([100 * (a - b) / each for a, b in zip(with_counting, without, strict=True)])
    return {
        "clients": num_clients,
        "beam_size": beam_size,
        "milliseconds_per_request": round(1e3 * each / num_requests, 3),
        "calls_per_request": round(switch.calls / rounds / num_requests, 2),
        "microseconds_per_call": round(1e6 * switch.seconds / switch.calls, 2),
        "timed_share_percent": round(100 * switch.seconds / sum(with_counting), 3),
        "difference_percent": round(difference, 3),
        "difference_doubt_percent": round(doubt, 3),
        "scrape_milliseconds": round(1e3 * statistics.median(scrapes), 2),
    }


def main() -> None:
    """Prints one JSON line for each number of clients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100, help="pairs of blocks")
    parser.add_argument("--requests", type=int, default=64, help="in a block")
    options = parser.parse_args()
    for num_clients, beam_size in ((1, 1), (32, 1), (16, 4)):
        found = asyncio.run(measure(options.rounds, options.requests, num_clients, beam_size))
        print(json.dumps(found), flush=True)  # noqa: T201  # the result


if __name__ == "__main__":
    main()
