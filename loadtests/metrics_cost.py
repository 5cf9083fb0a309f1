"""What counting costs: the share of a server's work that its metrics take.

    python -m loadtests.metrics_cost                   # the bundled model, half a minute

Every call that counts is timed where it is made, in processor time, while the engine translates as fast as it can, and
set against what the whole process takes: what others do on the machine does not count. A comparison of two runs, with
and without, would drown one per cent in the noise of the machine. What a timer itself takes counts as theirs, so the
figure is an upper bound. A scrape is timed apart.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import json
import statistics
import time
from collections.abc import Callable
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


class Stopwatch:
    """Adds up the time in the functions it wraps."""

    def __init__(self) -> None:
        """Starts at nothing."""
        self.seconds = 0.0
        self.calls = 0

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, timed."""

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            started = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds += time.thread_time() - started
                self.calls += 1

        return run


async def measure(seconds: float, num_clients: int, beam_size: int) -> dict[str, Any]:
    """Translates single sentences from some clients at once for a while."""
    # Before the app is made: it hands one of them to the engine.
    from service.observability.metrics import Metrics

    watch = Stopwatch()
    with contextlib.ExitStack() as patches:
        for name in ("count_step", "count_result", "count_outcome", "count_request"):
            patches.enter_context(patch.object(Metrics, name, watch.timed(getattr(Metrics, name))))
        return await _measure_app(watch, seconds, num_clients, beam_size)


async def _measure_app(watch: Stopwatch, seconds: float, num_clients: int, beam_size: int) -> dict[str, Any]:
    from model.decoding import DecodingOptions

    app = create_app(Settings(log_level="error", models=(BUNDLED_MODELS / "en-fr",)))
    translator, metrics = app.state.services.translator, app.state.services.metrics
    async with app.router.lifespan_context(app):
        while not app.state.services.engine.is_ready:
            await asyncio.sleep(0.05)
        model = translator.find_model()
        done = 0
        deadline = time.monotonic() + seconds
        watch.seconds = watch.calls = 0
        started, cpu_started = time.perf_counter(), time.process_time()

        async def client(number: int) -> None:
            nonlocal done
            while time.monotonic() < deadline:
                text = SENTENCES[(number + done) % len(SENTENCES)]
                begun = time.monotonic()
                result = await translator.translate(Job((text,), model, DecodingOptions(beam_size=beam_size)))
                facts = RequestFacts("0" * 32, model=model.name, source_tokens=result.source_tokens)
                metrics.count_request("/v1/translate", "ok", time.monotonic() - begun, facts)
                done += 1

        await asyncio.gather(*(client(number) for number in range(num_clients)))
        elapsed, cpu = time.perf_counter() - started, time.process_time() - cpu_started
        scrapes = []
        for _ in range(20):
            begun = time.perf_counter()
            generate_latest(metrics.registry)
            scrapes.append(time.perf_counter() - begun)
    return {
        "clients": num_clients,
        "beam_size": beam_size,
        "requests_per_second": round(done / elapsed, 1),
        "calls_per_request": round(watch.calls / done, 2),
        "microseconds_per_call": round(1e6 * watch.seconds / watch.calls, 2),
        "share_of_time_percent": round(100 * watch.seconds / elapsed, 3),
        "share_of_cpu_percent": round(100 * watch.seconds / cpu, 3),
        "scrape_milliseconds": round(1e3 * statistics.median(scrapes), 2),
    }


def main() -> None:
    """Prints one JSON line for each number of clients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0)
    options = parser.parse_args()
    for num_clients, beam_size in ((1, 1), (32, 1), (16, 4)):
        print(json.dumps(asyncio.run(measure(options.seconds, num_clients, beam_size))))  # noqa: T201  # the result


if __name__ == "__main__":
    main()
