"""How latency grows with the length of the input, and a report of it.

    python -m loadtests.sweep                             # the bundled model: loadtests/reports/sweep.{html,md,json}
    python -m loadtests.sweep --form opus                 # random weights of OPUS-MT's shape, targets long as sources
    python -m loadtests.sweep --compare old.json          # what got slower since, with confidence

Each length is asked for as one sentence and as natural sentences of as many tokens together; requests are greedy
streams, so that the time to the first text is seen. *Concurrency* c: c clients, each of which asks again when it has
its answer (a closed loop: this is about the server at a given load, not about users; loadtests/peers/http_load.py has
the open loop). The server is one of this checkout, started here, with windows wide enough that one sentence stays one:
by default a sentence of over 128 tokens is translated in windows, side by side as sentences are.

The exponent b of time = a * length^b is a least-squares fit to the logarithms of all times from 16 to 512 tokens; its
interval is that of 1,000 bootstrap samples of the times of each length (2.5 and 97.5 %). Where the quadratic term
starts to matter is read off a fit of a + b * length + c * length^2 to the medians: where it is a tenth of the time.
Times of encoder and decoder are what the server says (`timings`), end to end is what the client sees; what the client
sees more than the engine says, at concurrency 1, is printed as the time around the engine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import random
import re
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from loadtests.arrivals import percentiles
from loadtests.machine import machine, versions
from loadtests.peers.http_load import Form, bundled_form, opus_form
from loadtests.report import compare, write_report
from loadtests.servers import ServerProcess, end_in_order, gossamer_server

LENGTHS = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
KINDS = ("one sentence", "sentences")
_FIT_FROM, _FIT_TO = 16, 512
_BOOTSTRAPS = 1_000
_MIX_SECONDS, _WATCH_SECONDS = 6.0, 0.1
_OVERHEAD_REQUESTS = 30
_REPORTS = Path(__file__).resolve().parent / "reports"
_PARTS = {
    "end to end": "seconds",
    "encoder": "encode_seconds",
    "decoder": "decode_seconds",
    "first text": "first_seconds",
}
_EVENT = re.compile(rb"event: (\w+)\r?\ndata: (.*)")


async def stream(server: ServerProcess, text: str, num_tokens: int) -> dict[str, Any]:
    """One greedy stream.

    Returns:
        `seconds` to the end, `first_seconds` to the first text, `target_tokens`, and the server's `encode_seconds`,
        `decode_seconds` and `total_seconds`; or `error`.
    """
    body = {
        "text": text, "source": "en", "target": "fr", "stream": True,
        "decoding": {"beam_size": 1, "max_target_tokens": num_tokens},
    }  # fmt: skip
    started, first = time.perf_counter(), None

    def on_chunk(chunk: bytes) -> None:
        nonlocal first
        if first is None and b"event: token" in chunk:
            first = time.perf_counter() - started

    answer = await server.client.post("/v1/translate", body, on_chunk)
    seconds = time.perf_counter() - started
    events = _EVENT.findall(answer.body)
    if answer.status != 200 or not events or events[-1][0] != b"done":
        return {"error": f"{answer.status} {answer.body[-300:]!r}"}
    done = json.loads(events[-1][1])
    timings = {name: done["timings"][name] for name in ("encode_seconds", "decode_seconds", "total_seconds")}
    return {
        "seconds": seconds, "first_seconds": seconds if first is None else first,
        "target_tokens": done["usage"]["target_tokens"], **timings,
    }  # fmt: skip


async def measure_point(
    server: ServerProcess, texts: Sequence[str], num_tokens: int, concurrency: int
) -> dict[str, Any]:
    """All the texts, `concurrency` at a time."""
    waiting = list(texts)
    results: list[dict[str, Any]] = []

    async def client() -> None:
        while waiting:
            results.append(await stream(server, waiting.pop(), num_tokens))

    started = time.perf_counter()
    await asyncio.gather(*(client() for _ in range(concurrency)))
    span = time.perf_counter() - started
    good = [result for result in results if "error" not in result]
    per_token = [
        (one["seconds"] - one["first_seconds"]) / (one["target_tokens"] - 1) for one in good if one["target_tokens"] > 1
    ]
    return {
        "concurrency": concurrency, "tokens": num_tokens, "span_seconds": span, "requests": len(results),
        "errors": [result["error"] for result in results if "error" in result],
        "seconds": [one["seconds"] for one in good], "first_seconds": [one["first_seconds"] for one in good],
        "token_seconds": per_token, "target_tokens": [one["target_tokens"] for one in good],
        "encode_seconds": [one["encode_seconds"] for one in good],
        "decode_seconds": [one["decode_seconds"] for one in good],
        "total_seconds": [one["total_seconds"] for one in good],
    }  # fmt: skip


async def measure_attention(server: ServerProcess, texts: Sequence[str], num_tokens: int) -> list[dict[str, Any]]:
    """What looking inside costs: translating alone, with one head, with all heads."""
    points = []
    wishes: dict[str, dict[str, Any] | None] = {
        "off": None,
        "one head": {"kinds": ["cross"], "layers": -1, "heads": 0, "decimals": 4},
        "all heads": {"kinds": ["cross"], "decimals": 4},
    }
    for name, wish in wishes.items():
        seconds, errors = [], []
        for text in texts:
            body: dict[str, Any] = {"text": text, "source": "en", "target": "fr"}
            body["decoding"] = {"beam_size": 1, "max_target_tokens": num_tokens}
            started = time.perf_counter()
            answer = await server.client.post("/v1/translate", body | ({"attention": wish} if wish else {}))
            if answer.status == 200:
                seconds.append(time.perf_counter() - started)
            else:
                errors.append(f"{answer.status} {answer.body[:300]!r}")
        points.append({"attention": name, "tokens": num_tokens, "seconds": seconds, "errors": errors})
    return points


async def measure_overhead(server: ServerProcess, texts: Sequence[str], num_tokens: int) -> dict[str, Any]:
    """What is around the engine at concurrency 1: HTTP, JSON, sentences, tokens, this client; greedy, not streamed.

    Returns:
        `seconds` to the answer, and `overhead_seconds`: without what the engine says it queued, encoded and decoded.
    """
    seconds, overhead = [], []
    for text in texts:
        body = {"text": text, "source": "en", "target": "fr"}
        body |= {"decoding": {"beam_size": 1, "max_target_tokens": num_tokens}}
        started = time.perf_counter()
        answer = await server.client.post("/v1/translate", body)
        if answer.status == 200:
            seconds.append(time.perf_counter() - started)
            timings = answer.json()["timings"]
            overhead.append(seconds[-1] - sum(timings[f"{part}_seconds"] for part in ("queue", "encode", "decode")))
    return {"tokens": num_tokens, "seconds": seconds, "overhead_seconds": overhead}


async def watch(server: ServerProcess, until: asyncio.Event, samples: list[dict[str, float]]) -> None:
    """What runs and what waits, every so often, from /metrics."""
    started = time.monotonic()
    while not until.is_set():
        text = (await server.client.get("/metrics")).body.decode(errors="replace")
        found = {
            name: float(match[1])
            for name in ("running_requests", "waiting_requests")
            if (match := re.search(rf"^gossamer_{name}(?:{{[^}}]*}})? (\S+)", text, re.MULTILINE))
        }
        samples.append({"seconds": time.monotonic() - started, **found})
        await asyncio.sleep(_WATCH_SECONDS)


def fit_exponent(points: Sequence[dict[str, Any]], key: str, seed: int = 1) -> dict[str, float] | None:
    """The exponent of growth over the points' lengths, with its interval; None where there are too few lengths."""
    samples = [
        (point["tokens"], [value for value in point[key] if value > 0])
        for point in points
        if _FIT_FROM <= point["tokens"] <= _FIT_TO
    ]
    samples = [(tokens, values) for tokens, values in samples if values]
    if len(samples) < 3:
        return None
    generator = random.Random(seed)

    def slope(chosen: Sequence[tuple[int, Sequence[float]]]) -> float:
        x = [math.log(tokens) for tokens, values in chosen for _ in values]
        y = [math.log(value) for _, values in chosen for value in values]
        return float(np.polyfit(x, y, 1)[0])

    drawn = sorted(
        slope([(tokens, generator.choices(values, k=len(values))) for tokens, values in samples])
        for _ in range(_BOOTSTRAPS)
    )
    return {
        "exponent": slope(samples),
        "low": drawn[int(0.025 * _BOOTSTRAPS)],
        "high": drawn[int(0.975 * _BOOTSTRAPS) - 1],
    }


async def measure(form: Form, arguments: argparse.Namespace) -> dict[str, Any]:
    """The whole sweep on one server."""
    lengths = [length for length in LENGTHS if length <= arguments.longest]
    settings = {
        "GOSSAMER_MAX_SEGMENT_TOKENS": str(max(lengths)),
        "GOSSAMER_MAX_SOURCE_TOKENS": str(max(lengths)),
        "GOSSAMER_MAX_TARGET_TOKENS": str(max(lengths)),
        "GOSSAMER_TORCH_THREADS": str(arguments.threads),
        # However long it takes, on whatever machine: nothing is refused or given up.
        "GOSSAMER_MAX_WAIT_SECONDS": "3600",
        "GOSSAMER_REQUEST_TIMEOUT_SECONDS": "3600",
    }
    texts = form.texts(arguments.seed)
    server = gossamer_server(form.checkpoint, settings, untrained=form.fixed_lengths)
    points: list[dict[str, Any]] = []
    samples: list[dict[str, float]] = []
    attention: list[dict[str, Any]] = []
    try:
        await server.wait_until_ready()
        for length in (8, 64, 8, 64):
            await stream(server, texts.sentence(length), length)
        until = asyncio.Event()
        for kind in KINDS:
            if kind == "sentences" and form.fixed_lengths:
                continue  # its texts have no full stops
            draw = texts.sentence if kind == "one sentence" else texts.sentences
            for length in lengths:
                for concurrency in arguments.concurrency:
                    chosen = [draw(length) for _ in range(max(arguments.repeat, 2 * concurrency))]
                    points.append({"kind": kind, **await measure_point(server, chosen, length, concurrency)})
                    sys.stdout.write(f"{kind}, {length} tokens, concurrency {concurrency}: ")
                    sys.stdout.write(_line(points[-1]) + "\n")
                    sys.stdout.flush()
        watching = asyncio.create_task(watch(server, until, samples))
        mix = [texts.sentence(length) for length in lengths for _ in range(4) if length <= 256]
        random.Random(arguments.seed).shuffle(mix)
        begun = time.monotonic()
        while time.monotonic() - begun < _MIX_SECONDS:  # quick machines are through before there is a picture
            await measure_point(server, mix, min(256, max(lengths)), max(arguments.concurrency))
        until.set()
        await watching
        for length in (length for length in (16, 64, 128) if length <= max(lengths)):
            attention += await measure_attention(
                server, [texts.sentence(length) for _ in range(arguments.repeat)], length
            )
        overhead = [
            await measure_overhead(server, [texts.sentence(length) for _ in range(_OVERHEAD_REQUESTS)], length)
            for length in (16, 64, 128)
            if length <= max(lengths)
        ]
        memory = server.peak_memory_bytes()
        await server.client.close()
    finally:
        server.stop()
    return {
        "what": "length sweep", "form": form.name, "model": form.checkpoint.name, "date": time.strftime("%Y-%m-%d"),
        "machine": machine(), "versions": versions(),
        "settings": settings, "seed": arguments.seed, "repeat": arguments.repeat, "peak_memory_bytes": memory,
        "arrivals": "closed loop at each concurrency", "points": points, "attention": attention,
        "occupancy": samples, "overhead": overhead, "fits": fits(points), "quadratic": quadratics(points),
    }  # fmt: skip


def quadratic_from(points: Sequence[dict[str, Any]], key: str) -> float | None:
    """From how many tokens on the quadratic term is a tenth of the time; None where there are too few lengths.

    A least-squares fit of a + b * length + c * length^2 to the medians, relative errors weighing alike; infinite where
    c is not positive.
    """
    medians = [(point["tokens"], statistics.median(point[key])) for point in points if point[key]]
    medians = [(tokens, seconds) for tokens, seconds in medians if seconds > 0]
    if len(medians) < 5:
        return None
    tokens, seconds = (np.array(column, dtype=float) for column in zip(*medians, strict=True))
    terms = np.stack([np.ones_like(tokens), tokens, tokens**2], axis=1) / seconds[:, None]
    (constant, linear, square), *_ = np.linalg.lstsq(terms, np.ones_like(tokens), rcond=None)
    if square <= 0:
        return math.inf
    # c n^2 = (a + b n + c n^2) / 10
    roots = np.roots([9 * square, -linear, -constant])
    return float(max([root.real for root in roots if abs(root.imag) < 1e-9 and root.real > 0], default=0.0))


def quadratics(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of one sentence, alone on the server, by part of the time."""
    chosen = [point for point in points if point["kind"] == "one sentence" and point["concurrency"] == 1]
    found = {name: quadratic_from(chosen, key) for name, key in _PARTS.items()}
    return [
        {"part": name, "tokens": None if tokens is None or math.isinf(tokens) else tokens}
        for name, tokens in found.items()
    ]


def fits(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Exponents at concurrency 1, for each kind and each part of the time."""
    found = []
    for kind in KINDS:
        chosen = [point for point in points if point["kind"] == kind and point["concurrency"] == 1]
        for name, key in _PARTS.items():
            if (fit := fit_exponent(chosen, key)) is not None:
                found.append({"kind": kind, "part": name, **fit})
    return found


def _line(point: dict[str, Any]) -> str:
    if point["errors"]:
        return f"{len(point['errors'])} errors: {point['errors'][0]}"
    times = percentiles(point["seconds"])
    shown = ", ".join(f"{name} {seconds:.3f} s" for name, seconds in times.items())
    return f"{shown}, first text {statistics.median(point['first_seconds']):.3f} s"


def main() -> None:
    """Measure, fit, write the report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--form", choices=["bundled", "opus"], default="bundled")
    parser.add_argument("--longest", type=int, default=1024)
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--repeat", type=int, default=5, help="requests of a point, at least two for each client")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("runs/peers"), help="of the random checkpoint")
    parser.add_argument("--output", type=Path, default=_REPORTS / "sweep", help="path of the report, without ending")
    parser.add_argument("--compare", type=Path, help="JSON of an earlier run")
    arguments = parser.parse_args()
    end_in_order()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    form = {"bundled": bundled_form, "opus": opus_form}[arguments.form](arguments.folder)
    report = asyncio.run(measure(form, arguments))
    if arguments.compare:
        report["compared"] = compare(json.loads(arguments.compare.read_text(encoding="utf-8")), report)
    write_report(report, arguments.output)
    for one in report["overhead"]:
        around, whole = (1e3 * statistics.median(one[key]) for key in ("overhead_seconds", "seconds"))
        sys.stdout.write(f"around the engine, {one['tokens']} tokens: {around:.1f} ms of {whole:.1f} (medians)\n")
    for fit in report["fits"]:
        sys.stdout.write(
            f"{fit['kind']}, {fit['part']}: exponent {fit['exponent']:.2f} ({fit['low']:.2f} to {fit['high']:.2f})\n"
        )
    num_errors = sum(len(point["errors"]) for point in [*report["points"], *report["attention"]])
    slower = [point for point in report.get("compared", []) if point["slower"]]
    sys.stdout.write(f"{arguments.output}.html, .md, .json; {num_errors} errors, {len(slower)} points slower\n")
    sys.exit(bool(num_errors or slower))


if __name__ == "__main__":
    main()
