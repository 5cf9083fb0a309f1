"""What looking inside costs: those who translate meanwhile, and those who look.

    python -m loadtests.looking                        # the bundled model, four minutes; the machine must be idle
    python -m loadtests.looking --browser              # and the page, in Chromium by Playwright

Prints one line for people and one of JSON for each of:

- fairness: translations arrive at a rate of their own (open loop, Poisson), in turns with and without a stream of
  attention requests beside them, which translate, replay, and get every map as JSON. The p99 of the translations with
  the stream is set against the p99 without. Their texts must be the same.
- maps: all maps of a pair of 100 tokens each as safetensors.
- first map and hover (`--browser`): a sentence of 32 tokens from the click to the threads; the longest task of the
  page while a pointer goes over a map of 128 x 128.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import statistics
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from loadtests.client import Client
from loadtests.servers import ServerProcess, end_in_order, gossamer_server

SENTENCES = (
    "Ninja moved the plant near the window because it needed more sunlight.",
    "Where is the train station?",
    "They would rather walk than wait another hour for the bus, even if it rains.",
    "The committee met in the old library behind the town hall.",
    "Good morning.",
    "She had already counted the chairs, chosen the colour and written to all of them.",
)
LOOKED_AT = "The spider sits in the middle of its web and feels which thread pulls, how hard, and from where it comes."
THIRTY_TWO = "The spider sits in the middle of its web and feels which thread pulls, how hard, and from where it came."
WORDS = "the house and the garden of my old friend are small but they are green and full of light in summer "


async def fairness(client: Client, args: argparse.Namespace) -> dict[str, Any]:
    """Latencies of translations in turns without and with a stream of attention requests."""
    seconds: dict[bool, list[float]] = {False: [], True: []}
    texts: dict[bool, dict[str, set[str]]] = {False: {}, True: {}}
    looks: list[float] = []
    failures: dict[str, int] = {}

    async def translate(text: str, with_looks: bool) -> None:
        started = time.perf_counter()
        answer = await client.post("/v1/translate", {"text": text})
        seconds[with_looks].append(time.perf_counter() - started)
        if answer.status == 200:
            texts[with_looks].setdefault(text, set()).add(answer.json()["translations"][0]["text"])
        else:
            failures[f"translate {answer.status}"] = failures.get(f"translate {answer.status}", 0) + 1

    async def look() -> None:
        started = time.perf_counter()
        answer = await client.post("/v1/attention", {"text": LOOKED_AT})
        if answer.status == 200:
            looks.append(time.perf_counter() - started)
        else:
            failures[f"attention {answer.status}"] = failures.get(f"attention {answer.status}", 0) + 1

    async def arrive(
        source: random.Random, rate: float, until: float, what: Callable[[], Coroutine[Any, Any, None]], limit: int
    ) -> None:
        """Calls at random moments, `rate` a second, at most `limit` at once."""
        running: set[asyncio.Task[None]] = set()
        while (wait := source.expovariate(rate)) + time.perf_counter() < until:
            await asyncio.sleep(wait)
            running = {task for task in running if not task.done()}
            if len(running) < limit:
                running.add(asyncio.create_task(what()))
        await asyncio.gather(*running)

    async def turn(number: int, with_looks: bool, length: float) -> None:
        source = random.Random(f"{args.seed} {number}")  # the same texts at the same moments in both turns
        until = time.perf_counter() + length
        arrivals = [arrive(source, args.rate, until, lambda: translate(source.choice(SENTENCES), with_looks), 1000)]
        if with_looks:
            arrivals.append(arrive(random.Random(number), args.looks, until, look, 2))
        await asyncio.gather(*arrivals)

    for with_looks in (False, True):
        await turn(-1, with_looks, 3)
    for kept in (seconds[False], seconds[True], looks):
        kept.clear()  # that was the warm-up
    for number in range(args.rounds):
        for with_looks in (False, True):
            await turn(number, with_looks, args.seconds)
    same = all(texts[False][text] == texts[True][text] for text in texts[False].keys() & texts[True].keys())
    alone, beside = percentile(seconds[False], 99), percentile(seconds[True], 99)
    return {
        "measure": "fairness",
        "p99_without_seconds": round(alone, 4),
        "p99_with_seconds": round(beside, 4),
        "p99_ratio": round(beside / alone, 3),
        "p50_ratio": round(percentile(seconds[True], 50) / percentile(seconds[False], 50), 3),
        "translations": [len(seconds[False]), len(seconds[True])],
        "looks": len(looks),
        "look_median_seconds": round(statistics.median(looks), 4) if looks else None,
        "failures": failures,
        "texts_are_the_same": same,
    }


def maps_of_a_long_pair(address: str, times: int) -> dict[str, Any]:
    """All maps of 100 source and 100 target tokens as safetensors."""
    model = get_json(address, "/v1/models")["models"][0]
    facts = get_json(address, f"/v1/models/{urllib.parse.quote(model['name'])}")
    body = {"text": token_text(address, 100), "target_ids": [*range(100, 199), facts["special_ids"]["eos"]]}
    seconds, size, shapes = [], 0, []
    for _ in range(times + 2):
        started = time.perf_counter()
        content = post(address, "/v1/attention", body, "application/vnd.safetensors")
        seconds.append(time.perf_counter() - started)
        size = len(content)
        header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
        shapes = [item["shape"] for name, item in header.items() if name != "__metadata__"]
    seconds = seconds[2:]
    return {
        "measure": "maps",
        "median_seconds": round(statistics.median(seconds), 4),
        "longest_seconds": round(max(seconds), 4),
        "bytes": size,
        "shapes": shapes,
    }


def token_text(address: str, num_tokens: int) -> str:
    """A text that has so many source tokens."""
    words = (WORDS * num_tokens).split()
    low, high = 1, num_tokens  # no word is less than a token
    while low < high:
        middle = (low + high) // 2
        body = {"text": " ".join(words[:middle]), "target_text": "la", "kinds": ["cross"], "layers": [0]}
        answer = json.loads(post(address, "/v1/attention", body, "application/json"))
        if len(answer["segments"][0]["source_tokens"]) < num_tokens:
            low = middle + 1
        else:
            high = middle
    return " ".join(words[:low])


def page(address: str, times: int) -> list[dict[str, Any]]:
    """The page in a real browser."""
    from playwright.sync_api import sync_playwright

    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=flags)
        tab = browser.new_page(viewport={"width": 1440, "height": 900})
        tab.set_default_timeout(300_000)
        tab.goto(address)
        tab.wait_for_selector("#station .checks li")
        took = []
        for turn in range(times):
            tab.fill("#text", f"{THIRTY_TWO[:-1]}{'' if turn % 2 else ' today'}.")
            took.append(tab.evaluate(_FIRST_MAP))
            tab.wait_for_selector("#station .parts:not([aria-busy])")
        num_tokens = tab.locator(".words.keys .word").count()
        tab.goto(f"{address}/#{urllib.parse.urlencode({'t': WORDS * 6, 'y': WORDS * 6, 's': 15, 'h': 2})}")
        tab.reload()
        tab.wait_for_selector("#map canvas.base")
        tab.wait_for_selector("#station .parts:not([aria-busy])")
        hovered = tab.evaluate(_HOVER)
        browser.close()
    return [
        {
            "measure": "first map",
            "source_tokens": num_tokens,
            "median_seconds": round(statistics.median(took), 3),
            "longest_seconds": round(max(took), 3),
        },
        {"measure": "hover", **hovered},
    ]


# From the click until the new words' threads have been painted.
_FIRST_MAP = """() => new Promise((done) => {
    const before = document.querySelector('#web .word');
    const started = performance.now();
    const look = () => {
        const now = document.querySelector('#web .word');
        if (now && now !== before) {
            requestAnimationFrame(() => done((performance.now() - started) / 1000));
        } else {
            requestAnimationFrame(look);
        }
    };
    document.querySelector('#send').click();
    requestAnimationFrame(look);
})"""

# 300 hovers; how long each held the page, and the browser's own count of tasks above 50 ms.
_HOVER = """async () => {
    const canvas = document.querySelector('#map canvas.base');
    canvas.scrollIntoView({ block: 'center' });
    const box = canvas.getBoundingClientRect();
    const long = [];
    const painted = () => new Promise((done) => {
        const { port1, port2 } = new MessageChannel();
        port1.onmessage = done;
        port2.postMessage(0);
    });
    new PerformanceObserver((list) => long.push(...list.getEntries())).observe({ type: 'longtask' });
    const held = [];
    for (let i = 0; i < 300; i += 1) {
        const clientX = box.left + 5 + ((i * 7919) % (box.width - 10));
        const clientY = box.top + 5 + ((i * 104729) % (box.height - 10));
        canvas.dispatchEvent(new PointerEvent('pointermove', { clientX, clientY, bubbles: true }));
        const started = performance.now();
        await new Promise(requestAnimationFrame);
        await painted();
        held.push(performance.now() - started);
    }
    held.sort((a, b) => a - b);
    await new Promise((done) => setTimeout(done, 200));
    return {
        map: ['queries', 'keys'].map((name) => document.querySelectorAll(`#web .${name} .word`).length),
        median_milliseconds: held[150], p99_milliseconds: held[297], longest_milliseconds: held[299],
        tasks_above_50_milliseconds: long.length,
    };
}"""


def percentile(values: list[float], share: int) -> float:
    """The value that `share` per cent do not exceed; infinite for none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, len(ordered) * share // 100)] if ordered else float("inf")


def post(address: str, path: str, body: object, accept: str) -> bytes:
    """POST, and what comes back."""
    headers = {"Content-Type": "application/json", "Accept": accept}
    request = urllib.request.Request(address + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=300) as response:
        content: bytes = response.read()
    return content


def get_json(address: str, path: str) -> Any:
    """GET, parsed."""
    with urllib.request.urlopen(address + path, timeout=300) as response:
        return json.loads(response.read())


def _says(found: dict[str, Any]) -> str:
    if found["measure"] == "fairness":
        return (
            f"fairness: p99 of translations {1000 * found['p99_with_seconds']:.0f} ms with attention requests beside "
            f"them, {1000 * found['p99_without_seconds']:.0f} ms without: {found['p99_ratio']:.2f} times "
            f"(goal: at most 1.5); texts {'the same' if found['texts_are_the_same'] else 'DIFFER'}"
        )
    if found["measure"] == "hover":
        return (
            f"hover over {found['map'][0]} x {found['map'][1]}: median {found['median_milliseconds']:.1f} ms, longest "
            f"{found['longest_milliseconds']:.1f} ms; above 50 ms: {found['tasks_above_50_milliseconds']} (goal: 0)"
        )
    return (
        f"{found['measure']}: median {found['median_seconds']:.3f} s, longest {found['longest_seconds']:.3f} s "
        "(goal: below 1 s)"
    )


async def _measured(server: ServerProcess, args: argparse.Namespace) -> list[dict[str, Any]]:
    await server.wait_until_ready()
    address = f"http://127.0.0.1:{server.port}"
    found = [await asyncio.to_thread(maps_of_a_long_pair, address, args.times)]
    if args.browser:
        found += await asyncio.to_thread(page, address, args.times)
    if args.rounds:
        found.append(await fairness(server.client, args))
    await server.client.close()
    return found


def main() -> None:
    """Starts a server, measures, stops it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "-m", "--model", type=Path, help="a checkpoint's folder instead of the bundled model from English"
    )
    parser.add_argument("--rate", type=float, default=6.0, help="translations a second")
    parser.add_argument("--looks", type=float, default=2.0, help="attention requests a second, at most two at once")
    parser.add_argument("--rounds", type=int, default=6, help="turns without and with them; 0 measures no fairness")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of a turn")
    parser.add_argument("--times", type=int, default=20, help="repetitions of what is measured alone")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--browser", action="store_true", help="measure the page, too")
    args = parser.parse_args()
    end_in_order()
    server = gossamer_server(args.model)
    try:
        found = asyncio.run(_measured(server, args))
    finally:
        server.stop()
    machine = f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.1f} at the end"
    lines = [f"{machine}; {args.rate:g} translations and {args.looks:g} attention requests a second"]
    for item in found:
        lines += [_says(item), json.dumps(item)]
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
