"""What users do, by name: each scenario against our server and against its peers, and the rate that each can bear.

    python -m loadtests.scenarios                                   # all of them, all systems: see --list
    python -m loadtests.scenarios --scenario chat --scenario cancel --system ours --seconds 5
    python -m loadtests.scenarios --scenario sustained              # requests per second at p99 <= 1 s, nothing else
    python -m loadtests.scenarios --form opus --scenario sustained  # the same of a model of OPUS-MT's shape
    python -m loadtests.scenarios --output runs/scenarios.json      # for loadtests.report

All but two are an open loop (loadtests/arrivals.py): requests come on a schedule that does not look at the server, and
times run from when a request was due. The same seed asks the same texts at the same times of every system; systems take
turns within each scenario. CPU is the processor time of a server's process for each request. Systems and forms
are those of loadtests/peers/http_load.py: the bundled model on held-out sentences, or a random one of OPUS-MT's shape,
each of whose targets is as long as its source; all search greedily. Run it on an idle machine.

- `sustained`: the rate of the mix is doubled until the 99th percentile is over a second, or a request fails, then
  halved in between three times: the highest rate that passed, within some 9 %. A step asks at least 40 requests and at
  least --seconds long.
- `arrays` besides the open loop: an array of 100 sentences alone against 20 of them one after the other (closed loop).
- `attention` asks as fast as nobody answers, twice in turns: with and without attention for 5 % of requests; its figure
  is the ratio of throughputs. Ours only: no peer can show it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from loadtests.arrivals import Seen, open_loop, percentile, percentiles, poisson_times
from loadtests.machine import machine, versions
from loadtests.peers import libretranslate
from loadtests.peers.http_load import (
    LIBRETRANSLATE,
    Form,
    System,
    bundled_form,
    opus_form,
    start,
    system_names,
)
from loadtests.servers import ServerFailed, end_in_order
from loadtests.texts import Texts, held_out_sentences

_BOUND_SECONDS = 1.0
_START_RATE, _MAX_RATE, _HALVINGS, _MIN_REQUESTS = 2.0, 1_024.0, 3, 40
_BURST, _BURST_SECONDS = 24, 3.0
_ARRAY, _SINGLES, _ARRAY_ROUNDS = 100, 20, 3
_ATTENTION_REQUESTS, _ATTENTION_SHARE, _ATTENTION_ROUNDS = 200, 0.05, 5
_PAUSE_SECONDS = 0.3


@dataclass(frozen=True)
class Ask:
    """One request of a scenario.

    Attributes:
        text: A text, or some.
        num_tokens: How many to write, of a form with fixed lengths.
        upload_seconds: Its body takes so long to be sent; its time runs from then on.
        cancel_seconds: The client leaves so long after it was due; such requests are not counted.
    """

    text: str | list[str]
    num_tokens: int | None = None
    upload_seconds: float = 0.0
    cancel_seconds: float | None = None


class Source:
    """Draws texts for a form; the same seed draws the same."""

    def __init__(self, form: Form, seed: int) -> None:
        """Take the form's texts."""
        self._texts, self._has_fixed_lengths = form.texts(seed), form.fixed_lengths

    def sentence(self, num_tokens: int) -> Ask:
        """One sentence of so many tokens."""
        return Ask(self._texts.sentence(num_tokens), num_tokens if self._has_fixed_lengths else None)

    def sentences(self, num_tokens: int) -> Ask:
        """Natural sentences of so many tokens together; where lengths are fixed there are none, and it is one."""
        if self._has_fixed_lengths:
            return self.sentence(num_tokens)
        return Ask(self._texts.sentences(num_tokens))


@dataclass(frozen=True)
class Scenario:
    """What users do.

    Attributes:
        what: For people.
        rate: Requests a second.
        make: Draws one request.
        times: Rate, number and seed -> when each request is due.
        needs_held_out: Whether it draws held-out sentences, which only the bundled form reads.
    """

    what: str
    rate: float
    make: Callable[[Source, random.Random], Ask]
    times: Callable[[float, int, int], list[float]] = poisson_times
    needs_held_out: bool = False


def _chat(source: Source, generator: random.Random) -> Ask:
    return source.sentence(generator.randint(4, 16))


def _mix(source: Source, generator: random.Random) -> Ask:
    return source.sentences(round(math.exp(generator.uniform(math.log(4), math.log(400)))))


def _document(_source: Source, generator: random.Random) -> Ask:
    lines, words, sentences = [], 0, held_out_sentences()
    while words < 2_000:
        lines.append(generator.choice(sentences))
        words += len(lines[-1].split())
    return Ask("\n\n".join(" ".join(lines[first : first + 6]) for first in range(0, len(lines), 6)))


def _array(_source: Source, generator: random.Random) -> Ask:
    return Ask(generator.sample(held_out_sentences(), _ARRAY))


def _slow(source: Source, generator: random.Random) -> Ask:
    ask = _chat(source, generator)
    return replace(ask, upload_seconds=1.5) if generator.random() < 0.3 else ask


def _cancelled(source: Source, generator: random.Random) -> Ask:
    ask = _mix(source, generator)
    return replace(ask, cancel_seconds=generator.uniform(0.01, 0.15)) if generator.random() < 0.3 else ask


def _bursts(_rate: float, count: int, _seed: int) -> list[float]:
    return [_BURST_SECONDS * (index // _BURST) for index in range(count)]


SCENARIOS = {
    "chat": Scenario("short requests, 4-16 tokens", 20.0, _chat),
    "documents": Scenario("texts of 2,000 words", 0.2, _document, needs_held_out=True),
    "arrays": Scenario("arrays of 100 sentences", 0.3, _array, needs_held_out=True),
    "mix": Scenario("4-400 tokens, as many below 40 as above", 6.0, _mix),
    "bursts": Scenario(f"{_BURST} of the mix at once, every 3 s", _BURST / _BURST_SECONDS, _mix, _bursts),
    "slow-clients": Scenario("short requests; 30 % take 1.5 s to send theirs", 20.0, _slow),
    "cancel": Scenario("the mix; 30 % leave after 10-150 ms; times of the others", 8.0, _cancelled),
}  # fmt: skip
FORMS = {"bundled": bundled_form, "opus": opus_form}
SPECIAL = {
    "sustained": "the highest rate of the mix at p99 <= 1 s",
    "attention": "throughput with attention for 5 % of requests, ours only",
}


def needs_bundled(name: str) -> bool:
    """Whether a scenario is one for the bundled form alone."""
    return name == "attention" or (name in SCENARIOS and SCENARIOS[name].needs_held_out)


async def run(system: System, asks: Sequence[Ask], times: Sequence[float]) -> tuple[list[Seen], float]:
    """Open loop; a client that has left is seen as `result` "left"."""

    async def send(index: int) -> tuple[bool, Any]:
        ask = asks[index]
        if ask.cancel_seconds is None:
            return await system.ask(ask.text, ask.num_tokens, upload_seconds=ask.upload_seconds), None
        with suppress(TimeoutError):
            async with asyncio.timeout(ask.cancel_seconds):
                await system.ask(ask.text, ask.num_tokens)
        return True, "left"

    return await open_loop(times, send)


async def measure_scenario(
    scenario: Scenario, systems: Sequence[System], source: Source, seconds: float, seed: int
) -> dict[str, Any]:
    """All systems, one after the other."""
    generator = random.Random(seed)
    count = max(2, round(scenario.rate * seconds))
    asks = [scenario.make(source, generator) for _ in range(count)]
    times = scenario.times(scenario.rate, count, seed)
    found: dict[str, Any] = {}
    for system in systems:
        errors, cpu = len(system.errors), system.server.cpu_seconds()
        seen, span = await run(system, asks, times)
        cpu = system.server.cpu_seconds() - cpu
        stayed = [(one, ask) for one, ask in zip(seen, asks, strict=True) if one.result != "left"]
        # A body that comes slowly is not the server's time.
        counted = [one.seconds - ask.upload_seconds for one, ask in stayed if one.ok]
        patient = [one.seconds for one, ask in stayed if one.ok and not ask.upload_seconds]
        found[system.name] = {
            "requests": len(counted), "span_seconds": span, "requests_per_second": len(counted) / span,
            **percentiles(counted), "mean": statistics.mean(counted) if counted else math.nan,
            "p99_of_normal": percentile(patient, 0.99), "left": len(seen) - len(stayed),
            "errors": len(system.errors) - errors, "cpu_seconds_per_request": cpu / len(seen),
            "seconds": [round(one, 4) for one in counted],
        }  # fmt: skip
        await asyncio.sleep(_PAUSE_SECONDS)
    return {"what": scenario.what, "rate": scenario.rate, "systems": found}


async def sustained_rate(system: System, source: Source, seconds: float, seed: int) -> dict[str, Any]:
    """The highest rate of the mix at which p99 is at most a second, and the steps that were tried."""
    steps: list[dict[str, Any]] = []

    async def passes(rate: float) -> bool:
        count = max(_MIN_REQUESTS, round(seconds * rate))
        generator = random.Random(seed)
        asks = [_mix(source, generator) for _ in range(count)]
        errors = len(system.errors)
        seen, span = await run(system, asks, poisson_times(rate, count, seed))
        del system.errors[errors:]  # a refusal is an answer to too much
        good = [one.seconds for one in seen if one.ok]
        ok = len(good) == len(seen) and percentile(good, 0.99) <= _BOUND_SECONDS
        steps.append({"rate": rate, "passes": ok, "requests_per_second": len(good) / span, **percentiles(good)})
        await asyncio.sleep(_PAUSE_SECONDS)
        return ok

    low, high = 0.0, _START_RATE
    while high <= _MAX_RATE and await passes(high):
        low, high = high, 2 * high
    if low:
        for _ in range(_HALVINGS):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if await passes(middle) else (low, middle)
    return {"requests_per_second": low, "steps": steps}


async def measure_arrays(system: System, seed: int) -> dict[str, float]:
    """Seconds of an array of 100 sentences, and of one sentence, each alone on the server; medians and means."""
    generator = random.Random(seed)
    arrays, singles = [], []
    for _ in range(_ARRAY_ROUNDS):
        chosen = generator.sample(held_out_sentences(), _ARRAY)
        begun = time.perf_counter()
        await system.ask(chosen)
        arrays.append(time.perf_counter() - begun)
        for sentence in chosen[:_SINGLES]:
            begun = time.perf_counter()
            await system.ask(sentence)
            singles.append(time.perf_counter() - begun)
    array, single = statistics.median(arrays), statistics.mean(singles)
    return {"array_seconds": array, "single_seconds": single, "array_against_singles": array / (_ARRAY * single)}


async def measure_attention(system: System, texts: Texts, seed: int) -> dict[str, Any]:
    """What attention for some requests costs all."""
    generator = random.Random(seed)
    asks = [texts.sentence(generator.randint(8, 40)) for _ in range(_ATTENTION_REQUESTS)]
    looks = [generator.random() < _ATTENTION_SHARE for _ in asks]
    wish = {"kinds": ["cross"], "decimals": 4}
    spans: dict[bool, list[float]] = {True: [], False: []}
    errors = len(system.errors)

    async def send(index: int, is_looking: bool) -> tuple[bool, None]:
        return await system.ask(asks[index], attention=wish if is_looking and looks[index] else None), None

    for number in range(2 * _ATTENTION_ROUNDS + 1):
        is_looking = number % 2 == 0
        _, span = await open_loop([0.005 * index for index in range(len(asks))], partial(send, is_looking=is_looking))
        if number:  # the first time warms up
            spans[is_looking].append(span)
        await asyncio.sleep(_PAUSE_SECONDS)
    ratios = sorted(without / looked for without, looked in zip(spans[False], spans[True], strict=True))
    return {
        "requests": len(asks), "with_attention": sum(looks), "errors": len(system.errors) - errors,
        "requests_per_second_without": len(asks) / statistics.median(spans[False]),
        "requests_per_second_with": len(asks) / statistics.median(spans[True]),
        "throughput_ratio": statistics.median(ratios), "throughput_ratios": ratios,
    }  # fmt: skip


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Everything that was asked for."""
    form = FORMS[arguments.form](arguments.folder)
    source = Source(form, arguments.seed)
    systems: list[System] = []
    result: dict[str, Any] = {
        "what": "scenarios", "date": time.strftime("%Y-%m-%d"), "machine": machine(), "versions": versions(),
        "seed": arguments.seed, "seconds": arguments.seconds, "form": form.name, "model": form.checkpoint.name,
        "scenarios": {},
    }  # fmt: skip
    try:
        for name in arguments.system:
            systems.append(start(name, form, arguments.threads))
            await systems[-1].server.wait_until_ready()
            for length in (8, 40, 8):
                ask = source.sentences(length)
                await systems[-1].ask(ask.text, ask.num_tokens)
            _tell(f"{name} is ready")
        for name, scenario in SCENARIOS.items():
            if name in arguments.scenario:
                found = await measure_scenario(scenario, systems, source, arguments.seconds, arguments.seed)
                result["scenarios"][name] = found
                _show(name, found)
        if "arrays" in arguments.scenario:
            result["arrays"] = {system.name: await measure_arrays(system, arguments.seed) for system in systems}
            for name, one in result["arrays"].items():
                sys.stdout.write(
                    f"array of {_ARRAY}: {name} {one['array_seconds']:.2f} s, {one['array_against_singles']:.2f} of "
                    f"{_ARRAY} times one ({1e3 * one['single_seconds']:.0f} ms)\n"
                )
        if "attention" in arguments.scenario:
            for system in (one for one in systems if one.is_ours):
                result["attention"] = await measure_attention(system, form.texts(arguments.seed), arguments.seed)
                sys.stdout.write(
                    f"attention for {100 * _ATTENTION_SHARE:.0f} % of requests: "
                    f"{100 * result['attention']['throughput_ratio']:.1f} % of the throughput without\n"
                )
        if "sustained" in arguments.scenario:
            result["sustained"] = {}
            for system in systems:
                found = await sustained_rate(system, source, arguments.seconds, arguments.seed)
                result["sustained"][system.name] = found
                sys.stdout.write(f"{system.name}: {found['requests_per_second']:.1f} requests/s at p99 <= 1 s\n")
                sys.stdout.flush()
        result["peak_memory_bytes"] = {system.name: system.server.peak_memory_bytes() for system in systems}
        result["errors"] = {system.name: system.errors[:5] for system in systems if system.errors}
    finally:
        for system in systems:
            with suppress(ProcessLookupError):
                system.server.stop()
    return result


def _show(name: str, found: dict[str, Any]) -> None:
    write = sys.stdout.write
    write(f"\n{name}: {found['what']}, {found['rate']:g} a second\n")
    write(f"{'':16}{'req/s':>8}{'p50':>9}{'p95':>9}{'p99':>9}{'CPU ms':>9}{'errors':>8}\n")
    for system, one in found["systems"].items():
        write(f"{system:16}{one['requests_per_second']:8.2f}")
        write("".join(f"{one[share]:9.3f}" for share in ("p50", "p95", "p99")))
        write(f"{1e3 * one['cpu_seconds_per_request']:9.1f}{one['errors']:8}\n")
    sys.stdout.flush()


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def main() -> None:
    """Measure, print, and write JSON where asked to."""
    threads = os.cpu_count() or 1
    known = system_names(threads)
    names = [*SCENARIOS, *SPECIAL]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="tell the scenarios, and end")
    parser.add_argument("--form", choices=FORMS, default="bundled")
    parser.add_argument("--scenario", action="append", choices=names, help="default: all")
    parser.add_argument("--system", action="append", choices=known, help="default: all that are set up")
    parser.add_argument("--seconds", type=float, default=10.0, help="of arrivals in each scenario")
    parser.add_argument("--threads", type=int, default=threads)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("runs/peers"))
    parser.add_argument("--output", type=Path, help="also write the figures to this file, as JSON")
    arguments = parser.parse_args()
    if arguments.list:
        described = {name: scenario.what for name, scenario in SCENARIOS.items()} | SPECIAL
        sys.stdout.writelines(f"{name:14}{what}\n" for name, what in described.items())
        return
    end_in_order()
    is_bundled = arguments.form == "bundled"
    possible = [name for name in names if is_bundled or not needs_bundled(name)]
    if not set(arguments.scenario or ()) <= set(possible):
        parser.error(f"--form {arguments.form} has only the scenarios {', '.join(possible)}")
    if not is_bundled:
        known.remove(LIBRETRANSLATE)
        if LIBRETRANSLATE in (arguments.system or ()):
            parser.error(f"{LIBRETRANSLATE} has only --form bundled")
    arguments.scenario = arguments.scenario or possible
    if arguments.system is None:
        is_there = libretranslate.is_set_up(arguments.folder / LIBRETRANSLATE)
        arguments.system = [name for name in known if name != LIBRETRANSLATE or is_there]
        if is_bundled and not is_there:
            _tell("without libretranslate, which python -m loadtests.peers.libretranslate sets up")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    try:
        result = asyncio.run(measure(arguments))
    except ServerFailed as error:
        raise SystemExit(str(error)) from error
    if arguments.output:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for name, errors in result["errors"].items():
        sys.stdout.write(f"{name}: {errors[0]}\n")
    sys.exit(bool(result["errors"]))


if __name__ == "__main__":
    main()
