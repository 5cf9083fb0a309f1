"""A list of sentences in one request, against the same sentences one by one: seconds, and their ratio, in one run.

    python -m loadtests.quality.batches --count 100 --rounds 3

The server runs in this process, so that its processor time can be told from that of others: a machine that is busy
with something else stretches seconds, and hardly processor time. With several threads seconds are what counts, for a
list is computed on all cores, and a sentence with this model on one. Rounds are interleaved; a ratio is the median of
theirs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time

from starlette.testclient import TestClient

from loadtests.quality.noise import SENTENCES
from service.app import create_app
from service.server import SWITCH_INTERVAL_SECONDS
from service.settings import Settings


def sentences(count: int) -> list[str]:
    """Different ones, as many as wanted."""
    return [f"{SENTENCES[index % len(SENTENCES)][:-1]}, said number {index}." for index in range(count)]


def main() -> None:
    """Prints one line a round, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--beam-size", type=int, default=4)
    parser.add_argument("--threads", type=int, help="Of the kernels; default: as the server's, one a core.")
    parser.add_argument("--single-count", type=int, help="Measure only so many one by one, and scale up.")
    arguments = parser.parse_args()
    texts = sentences(arguments.count)
    singles = texts[:: max(1, arguments.count // (arguments.single_count or arguments.count))]
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)  # as the server does
    app = create_app(Settings(torch_threads=arguments.threads, request_timeout_seconds=600.0))
    ratios: list[tuple[float, float]] = []
    with TestClient(app) as client:
        while client.get("/readyz").status_code != 200:
            time.sleep(0.1)

        def seconds(bodies: list[str | list[str]]) -> tuple[float, float]:
            started = time.monotonic(), time.process_time()
            for text in bodies:
                body = {"text": text, "target": "fr", "decoding": {"beam_size": arguments.beam_size}}
                response = client.post("/v1/translate", json=body)
                response.raise_for_status()
            return time.monotonic() - started[0], time.process_time() - started[1]

        seconds([texts[:4]])  # warm
        for _ in range(arguments.rounds):
            together = seconds([texts])
            alone = [value * len(texts) / len(singles) for value in seconds(list(singles))]
            ratios.append((together[0] / alone[0], together[1] / alone[1]))
            sys.stdout.write(
                f"{len(texts)} together: {together[0]:.2f} s, of processor {together[1]:.2f} s; one by one: "
                f"{alone[0]:.2f} s, {alone[1]:.2f} s; ratios {ratios[-1][0]:.3f}, {ratios[-1][1]:.3f}\n"
            )
            sys.stdout.flush()
    wall, processor = (statistics.median(values) for values in zip(*ratios, strict=True))
    sys.stdout.write(f"ratio: {wall:.3f} of the seconds, {processor:.3f} of the processor's\n")


if __name__ == "__main__":
    main()
