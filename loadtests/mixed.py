"""Short requests beside long ones, on the engine in this process: what long ones cost short ones, and where.

    python -m loadtests.mixed --seconds 20

Eight requests of 400 source tokens run all the time: as one ends, the next comes. Meanwhile, and before, without them,
requests of at most 16 tokens arrive at random times. Told are their latencies, the ratio of the p99 to that without the
long ones, how late the event loop was (what `/healthz` waits for), and what steps took: for a ratio says little on a
machine that does other things, but a step that encodes for 30 ms delays everyone by as much on any.

No HTTP: `loadtests.peers.http_load` has that. The bundled model; ends with one line of JSON.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Sequence

from model.checkpoint import load_checkpoint
from model.decoding import DecodingOptions
from service.engine.async_engine import AsyncEngine
from service.engine.core import StepMessage
from service.engine.limits import EngineLimits
from service.engine.request import EngineRequest, SequenceRequest
from service.engine.runner import Runner
from service.settings import BUNDLED_MODELS

_LONG_TOKENS = 400
_NUM_LONG = 8
_TICK_SECONDS = 0.005


def percentile(values: Sequence[float], part: float) -> float:
    """The value that `part` of the others do not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


class Load:
    """The engine, and what is asked of it."""

    def __init__(self, threads: int | None, beam_size: int) -> None:
        """Load the model."""
        checkpoint = load_checkpoint(BUNDLED_MODELS / "en-fr", precision="auto")
        limits = EngineLimits(max_wait_seconds=math.inf)
        self.engine = AsyncEngine(lambda: Runner([checkpoint], limits, threads), limits, self._note)
        self._name, self._config = checkpoint.name, checkpoint.config
        self._beam_size = beam_size
        self._generator = random.Random(1)
        self._numbers = itertools.count()
        self.steps: list[StepMessage] = []
        self.lateness: list[float] = []

    async def translate(self, num_tokens: int, num_target_tokens: int) -> float:
        """Seconds for one source of so many random tokens; the target's length is fixed, so that it is work."""
        vocabulary = self._config.source_vocab_size
        ids = [self._generator.randrange(200, vocabulary) for _ in range(num_tokens - 1)]
        options = DecodingOptions(
            beam_size=self._beam_size, min_target_tokens=num_target_tokens, max_target_tokens=num_target_tokens
        )
        sequence = SequenceRequest((*ids, self._config.eos_id), options)
        begin = time.perf_counter()
        await self.engine.submit(EngineRequest(str(next(self._numbers)), self._name, (sequence,)))
        return time.perf_counter() - begin

    async def short_ones(self, seconds: float, per_second: float) -> list[float]:
        """Latencies of short requests that arrive at random."""
        end = time.perf_counter() + seconds
        tasks = []
        while time.perf_counter() < end:
            length = self._generator.randint(4, 16)
            tasks.append(asyncio.create_task(self.translate(length, length + 2)))
            await asyncio.sleep(self._generator.expovariate(per_second))
        return list(await asyncio.gather(*tasks))

    async def long_ones(self) -> None:
        """One long request after the other, for ever."""
        while True:
            await self.translate(_LONG_TOKENS, _LONG_TOKENS)

    async def watch(self) -> None:
        """Note how late the event loop is."""
        while True:
            begin = time.perf_counter()
            await asyncio.sleep(_TICK_SECONDS)
            self.lateness.append(time.perf_counter() - begin - _TICK_SECONDS)

    def _note(self, step: StepMessage) -> None:
        self.steps.append(step)


def describe(load: Load, seconds: list[float]) -> dict[str, float]:
    """Print and return what was seen since the last call."""
    decode = [step.decode_seconds for step in load.steps if step.num_rows]
    encode = [step.encode_seconds for step in load.steps if step.encode_seconds]
    found = {
        "requests": len(seconds),
        "p50": statistics.median(seconds),
        "p99": percentile(seconds, 0.99),
        "loop_late_p99": percentile(load.lateness, 0.99),
        "rows_mean": statistics.fmean(step.num_rows for step in load.steps),
        "decode_step_p50": statistics.median(decode),
        "decode_step_p99": percentile(decode, 0.99),
        "encode_step_p50": statistics.median(encode),
        "encode_step_p99": percentile(encode, 0.99),
        "encode_step_max": max(encode),
    }
    load.steps.clear()
    load.lateness.clear()
    parts = [
        f"{name} {value:.1f}" if name in ("requests", "rows_mean") else f"{name} {1000 * value:.1f} ms"
        for name, value in found.items()
    ]
    sys.stdout.write("  ".join(parts) + "\n")
    sys.stdout.flush()
    return found


async def run(arguments: argparse.Namespace) -> None:
    """Without the long ones, then beside them."""
    load = Load(arguments.threads, arguments.beam_size)
    await load.engine.start()
    watching = asyncio.create_task(load.watch())
    await load.short_ones(1.0, 5.0)  # warm
    load.steps.clear()
    alone = describe(load, await load.short_ones(arguments.seconds, arguments.per_second))
    long_ones = [asyncio.create_task(load.long_ones()) for _ in range(_NUM_LONG)]
    beside = describe(load, await load.short_ones(arguments.seconds, arguments.per_second))
    for task in (*long_ones, watching):
        task.cancel()
    await load.engine.stop(0.0)
    ratio = beside["p99"] / alone["p99"]
    sys.stdout.write(f"p99 beside the long ones: {ratio:.2f} times that without them\n")
    sys.stdout.write(json.dumps({"alone": alone, "beside": beside, "p99_ratio": ratio}) + "\n")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each of the two parts")
    parser.add_argument("--per-second", type=float, default=10.0, help="short requests that arrive")
    parser.add_argument("--beam-size", type=int, default=4)
    parser.add_argument("--threads", type=int)
    asyncio.run(run(parser.parse_args()))


if __name__ == "__main__":
    main()
