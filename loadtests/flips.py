"""How often a translation changes with what is translated beside it: the flip rate.

    python -m loadtests.flips                                  # the bundled model
    python -m loadtests.flips --mode float32 --model models/en-fr --texts sentences.txt

Terms: a sentence *flips* if its tokens in an arrangement are not those that it gets alone, in the same number format.
An *arrangement* says what runs when: batches that are filled, run empty and filled again (2, 8, 32), or sentences that
join a running batch at random moments, in random order, without and with beams of 4 beside them (whose own tokens are
then compared with those of a beam alone). Everything runs through the engine's scheduler and runner, on one thread.

Which sums a processor rounds in which order depends on the shape of a product, and the shape on the batch; so a flip is
no error, but two answers that are nearly as probable. In int8 the linear layers do not depend on it (docs/adr/0001).
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from model.checkpoint import load_checkpoint
from model.decoding import DecodingOptions
from service.engine.limits import EngineLimits
from service.engine.request import EngineRequest, SequenceRequest
from service.engine.runner import Runner
from service.engine.scheduler import Scheduler

ROOT = Path(__file__).resolve().parents[1]
GREEDY, BEAM = DecodingOptions(), DecodingOptions(beam_size=4)

Arrival = tuple[int, str, EngineRequest]
"""At which step, under which name, what."""


def decode(runner: Runner, limits: EngineLimits, arrivals: Sequence[Arrival]) -> dict[str, tuple[int, ...]]:
    """Runs the engine's loop without its thread: the same arrivals give the same batches every time.

    Args:
        runner: Its models are loaded.
        limits: Of the scheduler.
        arrivals: Sorted by their step; each request has one sequence.

    Returns:
        The tokens of the best hypothesis, by name.
    """
    scheduler = Scheduler(runner.models(), limits)
    waiting, step = list(arrivals), 0
    tokens: dict[str, tuple[int, ...]] = {}
    while waiting or not scheduler.is_idle:
        while waiting and waiting[0][0] <= step:
            scheduler.submit(waiting.pop(0)[2])
        for update in runner.execute(scheduler.schedule()).updates:
            if update.is_final:
                owner = scheduler.owner(update.sequence_id)
                assert owner is not None and update.failure is None, update.failure
                tokens[owner[0]] = update.hypotheses[0].tokens
                scheduler.finish(update.sequence_id)
        step += 1
    return tokens


def arrangements(
    model: str, sources: Sequence[tuple[int, ...]]
) -> Iterator[tuple[str, EngineLimits, list[list[Arrival]]]]:
    """Every arrangement: its name, its limits, and what is run one after the other."""

    def request(kind: str, index: int, options: DecodingOptions) -> tuple[str, EngineRequest]:
        name = f"{kind} {index}"
        return name, EngineRequest(name, model, (SequenceRequest(sources[index], options),))

    everything = range(len(sources))
    limits = EngineLimits(max_rows=64)
    for size in (2, 8, 32):
        batches = [
            [(0, *request("greedy", index, GREEDY)) for index in everything[first : first + size]]
            for first in range(0, len(sources), size)
        ]
        yield f"batches of {size}", limits, batches
    for seed in (1, 2, 3):
        generator = random.Random(seed)
        order = generator.sample(everything, len(sources))
        joining = sorted((generator.randrange(300), *request("greedy", index, GREEDY)) for index in order)  # type: ignore[type-var]
        yield f"joining at random, {seed}", limits, [joining]
    for seed in (4, 5):
        generator = random.Random(seed)
        beams = [(generator.randrange(300), *request("beam", index, BEAM)) for index in everything]
        greedy = [(generator.randrange(300), *request("greedy", index, GREEDY)) for index in everything]
        yield f"beams beside them, {seed}", limits, [sorted([*beams, *greedy], key=lambda arrival: arrival[:2])]


def measure(folder: Path, texts: Sequence[str], precision: str, *, batch_invariant: bool) -> list[dict[str, object]]:
    """All arrangements in one number format: one result each."""
    checkpoint = load_checkpoint(folder)
    sources = [checkpoint.tokenizer.encode(text, checkpoint.source_language, add_eos=True).ids for text in texts]
    runner = Runner([checkpoint], EngineLimits(), 1, precision, batch_invariant=batch_invariant)
    mode = f"{runner.models()[0].precision}{', batch-invariant' if batch_invariant else ''}"
    alone: dict[str, tuple[int, ...]] = {}
    results: list[dict[str, object]] = []
    for options, kind in ((GREEDY, "greedy"), (BEAM, "beam")):
        for index, source in enumerate(sources):
            request = EngineRequest(f"{kind} {index}", checkpoint.name, (SequenceRequest(source, options),))
            alone |= decode(runner, EngineLimits(), [(0, request.request_id, request)])
    for name, limits, runs in arrangements(checkpoint.name, sources):
        started = time.perf_counter()
        tokens: dict[str, tuple[int, ...]] = {}
        for arrivals in runs:
            tokens |= decode(runner, limits, arrivals)
        seconds = time.perf_counter() - started
        for kind in ("greedy", "beam"):
            names = [one for one in tokens if one.startswith(kind)]
            if names:
                flips = sum(tokens[one] != alone[one] for one in names)
                results.append(
                    {"mode": mode, "arrangement": name, "search": kind, "sentences": len(names), "flips": flips}
                    | {"flip_ratio": flips / len(names), "seconds": round(seconds, 1)}
                )
                print(f"| {mode} | {name} | {kind} | {flips} of {len(names)} | {seconds:.1f} |", flush=True)  # noqa: T201
    return results


def main() -> None:
    """Prints a table for people, then one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=ROOT / "model/pretrained/en-fr")
    parser.add_argument("--texts", type=Path, default=ROOT / "tests/data/everyday.en-fr.tsv", help="One a line.")
    parser.add_argument("--limit", type=int, default=200, help="Only so many sentences.")
    parser.add_argument("--mode", action="append", help="float32, invariant, bfloat16, int8, ...; repeatable.")
    arguments = parser.parse_args()
    lines = arguments.texts.read_text(encoding="utf-8").splitlines()[: arguments.limit]
    texts = [line.partition("\t")[0] for line in lines]
    torch.set_num_threads(1)
    print("| mode | arrangement | search | flips | seconds |\n| --- | --- | --- | ---: | ---: |")  # noqa: T201
    results = []
    for mode in arguments.mode or ("float32", "invariant", "int8"):
        invariant = mode == "invariant"
        results += measure(arguments.model, texts, "float32" if invariant else mode, batch_invariant=invariant)
    facts = {
        "model": arguments.model.name,
        "torch": torch.__version__,
        "machine": platform.processor() or platform.machine(),
    }
    json.dump({"flips": results} | facts, sys.stdout)
    print()  # noqa: T201


if __name__ == "__main__":
    main()
