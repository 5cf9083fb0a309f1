"""Ours and CTranslate2 behind the same HTTP front, on the same weights, texts and arrivals, in one run.

    python -m loadtests.peers.http_load                         # both forms, under three minutes on two idle cores
    python -m loadtests.peers.http_load --form bundled --requests 256 --rounds 5

Systems:

    ours            `gossamer serve`, the real server, as it comes (int8 where it runs)
    ct2 1x2, 2x1    CTranslate2 int8 behind FastAPI with an 8 ms dynamic batcher of at most 64 requests: workers x
                    threads of each, as many batches at once as workers; the better of the two is the rival
    ct2 single      as many workers as threads, one request a call
    huggingface     `generate` of transformers behind FastAPI, one request a call
    libretranslate  the real one, see loadtests/peers/libretranslate.py; bundled form only

Forms: `bundled` is the model of the repository and its export, with real held-out sentences, each answered in full.
`opus` is a random checkpoint of OPUS-MT's shape (75 M parameters): random weights never end, so every target is as
long as its source. Ours is told so by `decoding.max_target_tokens` (the HTTP API has no minimum; the count of tokens
in every answer is checked), Hugging Face by the lengths of the call, CTranslate2 by these and its callback, which ends
each row at its own length, so that rows of different lengths share a batch. All search greedily.

Loads (loadtests/scenarios.py has more, and the rate that each can bear):

    mix      N requests (64) of 4-400 tokens, log-uniform, come as a Poisson process faster than anybody answers them:
             requests per second are N / (last answer - first arrival), times run from when a request was due
    short    Poisson arrivals of requests of at most 16 tokens: first alone, then while eight clients keep eight
             requests of 400 tokens running; ours and the rival only

/healthz is asked ten times a second all the while. Open loop: see loadtests/arrivals.py. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import platform
import random
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadtests.arrivals import Seen, closed_loop, open_loop, percentile, percentiles, poisson_times
from loadtests.peers import libretranslate
from loadtests.peers.decode_speed import make_checkpoint
from loadtests.servers import ServerProcess, end_in_order, gossamer_server
from loadtests.texts import Texts
from model.description import describe, open_tokenizer
from service.settings import BUNDLED_MODELS

_PAUSE_SECONDS = 0.3  # OpenMP threads of the server before spin on for a while
_PROBES_PER_SECOND = 10.0
_NUM_LONG = 8

SINGLE, HUGGINGFACE, LIBRETRANSLATE = "ct2 single", "huggingface", "libretranslate"


@dataclass(frozen=True)
class Form:
    """A model in all the formats, and texts for it.

    Attributes:
        name: For the table.
        checkpoint: Ours.
        converted: CTranslate2's.
        huggingface: Theirs, written when it is needed.
        fixed_lengths: Whether every target is made as long as its source.
        max_segment_tokens: Longest segment; what is longer is windowed, on both sides alike.
    """

    name: str
    checkpoint: Path
    converted: Path
    huggingface: Path
    fixed_lengths: bool
    max_segment_tokens: int

    def texts(self, seed: int) -> Texts:
        """Draws its texts."""
        description = describe(self.checkpoint)
        tokenizer = open_tokenizer(self.checkpoint, description)
        sentences = None
        if self.fixed_lengths:  # the random checkpoint's tokenizer knows only the words that it was made of
            words = [f"{a}{b}" for a in "bcdfghjklmnpqrstvwxz" for b in ("a", "e", "i", "o", "u", "an", "er")]
            generator = random.Random(seed)
            sentences = [" ".join(generator.choice(words) for _ in range(12)) for _ in range(200)]
        # Nor does it know a full stop, around which the server would part each text and translate it a second time.
        full_stop = "" if self.fixed_lengths else "."
        return Texts(tokenizer, description.source_language, sentences, seed, full_stop=full_stop)


@dataclass
class System:
    """A server under load, and what was seen of it."""

    name: str
    server: ServerProcess
    form: Form
    seconds: list[list[float]] = field(default_factory=list)
    spans: list[float] = field(default_factory=list)
    shorts: dict[str, list[float]] = field(default_factory=dict)
    probes: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    outputs: dict[str, str] = field(default_factory=dict)
    target_tokens: int = 0
    too_short: int = 0
    decoded_tokens: int | None = None

    @property
    def is_ours(self) -> bool:
        """Whether it is this repository's."""
        return self.name == "ours"

    async def translate(self, text: str, num_tokens: int) -> tuple[bool, None]:
        """One request; what it answers is kept, what fails is noted."""
        return await self.ask(text, num_tokens), None

    async def ask(
        self,
        text: str | list[str],
        num_tokens: int | None = None,
        *,
        attention: Mapping[str, Any] | None = None,
        upload_seconds: float = 0.0,
    ) -> bool:
        """One request; what it answers is kept, what fails is noted.

        Args:
            text: A text, or some.
            num_tokens: How many to write, of a form with fixed lengths.
            attention: What to look at beside it; ours only.
            upload_seconds: As `Client.post`.
        """
        body: dict[str, Any] = {"text": text}
        if self.is_ours:
            body |= {"source": "en", "target": "fr", "decoding": {"beam_size": 1}}
            if self.form.fixed_lengths:
                body["decoding"]["max_target_tokens"] = num_tokens
            if attention is not None:
                body["attention"] = attention
        elif self.name == LIBRETRANSLATE:
            body = {"q": text, "source": "en", "target": "fr", "format": "text"}
        elif self.form.fixed_lengths:
            body["target_tokens"] = num_tokens
        path = "/v1/translate" if self.is_ours else "/translate"
        answer = await self.server.client.post(path, body, upload_seconds=upload_seconds)
        if answer.status != 200:
            self.errors.append(f"{answer.status} {answer.body[:200]!r}")
            return False
        found = answer.json()
        written: str | list[str]
        if self.is_ours:
            self._count(found["usage"]["target_tokens"], num_tokens)
            translations = [one["text"] for one in found["translations"]]
            written = translations if isinstance(text, list) else translations[0]
        elif self.name == LIBRETRANSLATE:
            written = found["translatedText"]
        else:
            self._count(found["target_tokens"], num_tokens)
            written = found["text"]
        if isinstance(text, str) and isinstance(written, str):
            self.outputs[text] = written
        elif len(written) != len(text):
            self.errors.append(f"{len(text)} texts were asked, {len(written)} answered")
            return False
        return True

    def _count(self, written: int, num_tokens: int | None) -> None:
        self.target_tokens += written
        self.too_short += self.form.fixed_lengths and written != num_tokens

    async def count_decoded(self) -> None:
        """Ours alone: how many tokens the server has decoded for what it answered, what it tried again included."""
        metrics = (await self.server.client.get("/metrics")).body.decode()
        found = re.search(r"^gossamer_decoded_tokens_total (\S+)", metrics, re.MULTILINE)
        self.decoded_tokens = int(float(found[1])) if found else None

    async def probe(self, until: asyncio.Event) -> None:
        """Ask /healthz again and again, on schedule."""
        tasks: list[asyncio.Task[None]] = []
        loop = asyncio.get_running_loop()

        async def once(due: float) -> None:
            answer = await self.server.client.get("/health" if self.name == LIBRETRANSLATE else "/healthz")
            self.probes.append(loop.time() - due)
            if answer.status != 200:
                self.errors.append(f"/healthz {answer.status}")

        due = loop.time()
        while not until.is_set():
            tasks.append(asyncio.create_task(once(due)))
            due += 1 / _PROBES_PER_SECOND
            await asyncio.sleep(max(0.0, due - loop.time()))
        await asyncio.gather(*tasks)


def bundled_form(folder: Path) -> Form:
    """The model of the repository, exported again if it is another than last time."""
    from model.exporters.ctranslate2 import export_ctranslate2

    checkpoint = BUNDLED_MODELS / "en-fr"
    stat = (checkpoint / "model.safetensors").stat()
    converted = folder / f"ctranslate2-en-fr-{stat.st_size}-{stat.st_mtime_ns}"
    if not converted.exists():
        export_ctranslate2(checkpoint, converted)
    theirs = folder / f"huggingface-en-fr-{stat.st_size}-{stat.st_mtime_ns}"
    return Form("bundled", checkpoint, converted, theirs, fixed_lengths=False, max_segment_tokens=128)


def opus_form(folder: Path) -> Form:
    """The random checkpoint of decode_speed.py, made if it is not there."""
    hf = make_checkpoint(folder)
    ours, converted = folder / "gossamer", folder / "ctranslate2"
    if not ours.exists():
        from model.importers.marian import import_marian

        import_marian(hf, ours, name="speed", source_language="en", target_language="fr")
    if not converted.exists():
        import ctranslate2

        ctranslate2.converters.TransformersConverter(str(hf)).convert(str(converted))
    return Form("opus", ours, converted, hf, fixed_lengths=True, max_segment_tokens=512)


def start(name: str, form: Form, threads: int) -> System:
    """Start one of the systems."""
    if name == "ours":
        environment = {
            "GOSSAMER_TORCH_THREADS": str(threads),
            "GOSSAMER_MAX_SEGMENT_TOKENS": str(form.max_segment_tokens),
            # Peers wait as long as it takes and refuse nobody.
            "GOSSAMER_REQUEST_TIMEOUT_SECONDS": "600",
            "GOSSAMER_MAX_WAIT_SECONDS": "3600",
            "GOSSAMER_MAX_WAITING_INSPECTIONS": "64",
        }
        return System(name, gossamer_server(form.checkpoint, environment, name, untrained=form.fixed_lengths), form)
    if name == LIBRETRANSLATE:
        folder = form.converted.parent / LIBRETRANSLATE
        libretranslate.set_up(folder)
        return System(name, libretranslate.start(folder, threads), form)
    command = [sys.executable, "-m", "loadtests.peers.server", "--port", "{port}"]
    command += ["--checkpoint", str(form.checkpoint), "--max-segment-tokens", str(form.max_segment_tokens)]
    if name == HUGGINGFACE:
        if not form.huggingface.exists():
            from loadtests.peers.huggingface import convert

            convert(form.checkpoint, form.huggingface)
        command += ["--system", name, "--converted", str(form.huggingface)]
        command += ["--workers", "1", "--threads", str(threads), "--max-requests", "1"]
    else:
        is_batched = name != SINGLE
        workers, per_worker = name.removeprefix("ct2 ").split("x") if is_batched else (str(threads), "1")
        command += ["--system", "ctranslate2", "--converted", str(form.converted)]
        command += ["--workers", workers, "--threads", per_worker, "--max-requests", "64" if is_batched else "1"]
    return System(name, ServerProcess(name, command), form)


def system_names(threads: int) -> list[str]:
    """All the systems there are on so many cores."""
    return list(dict.fromkeys(["ours", f"ct2 1x{threads}", f"ct2 {threads}x1", SINGLE, HUGGINGFACE, LIBRETRANSLATE]))


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def mixed_lengths(count: int, seed: int) -> list[int]:
    """Lengths from 4 to 400 tokens, log-uniform: as many from 4 to 40 as from 40 to 400."""
    generator = random.Random(seed)
    return [round(math.exp(generator.uniform(math.log(4), math.log(400)))) for _ in range(count)]


async def run_mix(system: System, texts: Sequence[tuple[str, int]], times: Sequence[float]) -> list[Seen]:
    """One round of the mix."""
    until = asyncio.Event()
    probing = asyncio.create_task(system.probe(until))
    seen, span = await open_loop(times, lambda index: system.translate(*texts[index]))
    until.set()
    await probing
    system.seconds.append([one.seconds for one in seen if one.ok])
    system.spans.append(span)
    return seen


async def run_shorts(
    system: System, shorts: Sequence[tuple[str, int]], longs: Sequence[tuple[str, int]], rate: float, seed: int
) -> None:
    """Short requests alone, then beside long ones."""
    times = poisson_times(rate, len(shorts), seed)
    for name in ("idle", "loaded"):
        until = asyncio.Event()
        others = [asyncio.create_task(system.probe(until))]
        if name == "loaded":
            others.append(
                asyncio.create_task(
                    closed_loop(_NUM_LONG, until, lambda index: system.translate(*longs[index % len(longs)]))
                )
            )
            await asyncio.sleep(0.2)
        seen, _ = await open_loop(times, lambda index: system.translate(*shorts[index]))
        until.set()
        await asyncio.gather(*others)
        system.shorts[name] = [one.seconds for one in seen if one.ok]
        await asyncio.sleep(_PAUSE_SECONDS)


async def measure(form: Form, arguments: argparse.Namespace) -> dict[str, Any]:
    """All systems on one form."""
    texts = form.texts(arguments.seed)
    names = [name for name in arguments.system if name != LIBRETRANSLATE or not form.fixed_lengths]
    systems: list[System] = []
    try:
        for name in names:  # one after the other: loading would disturb loading
            systems.append(start(name, form, arguments.threads))
            await systems[-1].server.wait_until_ready()
            _tell(f"{form.name}: {name} is ready")
        draw = texts.sentence if form.fixed_lengths else texts.sentences
        for system in systems:  # what is slow only once
            for length in (8, 40):
                await system.translate(draw(length), length)
        await run_all_mixes(systems, draw, arguments)
        shorts = [(texts.sentence(length), length) for length in _short_lengths(arguments)]
        longs = [(draw(arguments.long_tokens), arguments.long_tokens) for _ in range(2 * _NUM_LONG)]
        for system in [one for one in systems if one.name in ("ours", best_rival(systems))]:
            await run_shorts(system, shorts, longs, arguments.short_rate, arguments.seed)
        for system in [one for one in systems if one.is_ours]:
            await system.count_decoded()
        return report(form, systems)
    finally:
        for system in systems:
            with suppress(ProcessLookupError):
                system.server.stop()


async def run_all_mixes(systems: Sequence[System], draw: Any, arguments: argparse.Namespace) -> None:
    """Rounds of all systems, one after the other within each; other texts and arrivals each round, the same for all."""
    for number in range(arguments.rounds):
        seed = arguments.seed + number
        mix = [(draw(length), length) for length in mixed_lengths(arguments.requests, seed)]
        times = poisson_times(arguments.rate, arguments.requests, seed)
        for system in systems:
            if number and system.name in (SINGLE, HUGGINGFACE):
                continue  # several times slower than the rest: one round tells enough
            await asyncio.sleep(_PAUSE_SECONDS)
            await run_mix(system, mix, times)
            _tell(f"{system.name}: round {number + 1} of the mix in {system.spans[-1]:.1f} s")


def _short_lengths(arguments: argparse.Namespace) -> list[int]:
    generator = random.Random(arguments.seed)
    return [generator.randint(4, 16) for _ in range(arguments.shorts)]


def best_rival(systems: Sequence[System]) -> str | None:
    """The batched configuration of CTranslate2 with the most requests per second."""
    batched = [system for system in systems if system.name.startswith("ct2") and system.name != SINGLE]
    return min(batched, key=lambda system: statistics.median(system.spans)).name if batched else None


def report(form: Form, systems: Sequence[System]) -> dict[str, Any]:
    """Figures of one form, also printed as a table."""
    write = sys.stdout.write
    write(f"\n{form.name}: {form.checkpoint.name}\n")
    write(f"{'':14}{'req/s':>7}{'p50':>8}{'p95':>8}{'p99':>8}{'short p99':>11}{'loaded':>8}{'ratio':>7}")
    write(f"{'healthz p99':>13}{'peak RSS':>10}{'errors':>8}\n")
    found: dict[str, Any] = {}
    for system in systems:
        rates = [len(seconds) / span for seconds, span in zip(system.seconds, system.spans, strict=True)]
        times = percentiles([one for seconds in system.seconds for one in seconds])
        shorts = {name: percentile(seconds, 0.99) for name, seconds in system.shorts.items()}
        entry: dict[str, Any] = {
            "requests_per_second": statistics.median(rates),
            "requests_per_second_rounds": rates,
            "seconds": times,
            "short_p99_seconds": shorts,
            "healthz_p99_seconds": percentile(system.probes, 0.99),
            "peak_memory_bytes": system.server.peak_memory_bytes(),
            "target_tokens": system.target_tokens,
            "answers_shorter_than_asked": system.too_short,
            "decoded_tokens": system.decoded_tokens,
            "errors": len(system.errors),
        }
        found[system.name] = entry
        write(f"{system.name:14}{entry['requests_per_second']:7.1f}")
        write("".join(f"{times[name]:8.3f}" for name in ("p50", "p95", "p99")))
        if shorts:
            write(f"{shorts['idle']:11.3f}{shorts['loaded']:8.3f}{shorts['loaded'] / shorts['idle']:7.1f}")
        else:
            write(f"{'-':>11}{'-':>8}{'-':>7}")
        write(f"{entry['healthz_p99_seconds']:13.4f}{(entry['peak_memory_bytes'] or 0) / 2**20:8.0f}Mi")
        write(f"{entry['errors']:8}\n")
        for error in system.errors[:3]:
            write(f"    {error}\n")
        if form.fixed_lengths and (system.decoded_tokens or 0) > system.target_tokens:
            write(f"    decoded {system.decoded_tokens:,} tokens for {system.target_tokens:,} answered: unequal work\n")
        if system.too_short:
            write(f"    {system.too_short} answers were shorter than asked: the model ended by itself\n")
    return {"systems": found, "against": compare(systems, found)}


def compare(systems: Sequence[System], found: dict[str, Any]) -> dict[str, Any]:
    """Ours against each other system: ratios round by round, and how alike the outputs are."""
    against: dict[str, Any] = {}
    by_name = {system.name: system for system in systems}
    if "ours" not in by_name:
        return against
    ours = by_name.pop("ours")
    for name, other in by_name.items():
        ratio = statistics.median(theirs / mine for mine, theirs in zip(ours.spans, other.spans, strict=False))
        memory = [found[one]["peak_memory_bytes"] for one in ("ours", name)]
        entry: dict[str, Any] = {
            "requests_per_second": ratio,
            "p99": found[name]["seconds"]["p99"] / found["ours"]["seconds"]["p99"],
            "peak_memory": memory[0] / memory[1] if all(memory) else None,
        }
        line = f"ours against {name}: {ratio:.2f}x requests per second, p99 {entry['p99']:.2f}x shorter, "
        line += f"{entry['peak_memory'] or math.nan:.2f}x its memory"
        if not ours.form.fixed_lengths:
            both = sorted(ours.outputs.keys() & other.outputs.keys())
            same = [ours.outputs[text] == other.outputs[text] for text in both]
            entry |= {"identical_share": statistics.mean(same), "bleu": _bleu(ours, other, both)}
            line += f"; {100 * entry['identical_share']:.0f} % of texts the same"
            line += f", BLEU {entry['bleu']:.1f} of its output against ours" if entry["bleu"] is not None else ""
        sys.stdout.write(f"    {line}\n")
        against[name] = entry
    return against


def _bleu(ours: System, other: System, texts: Sequence[str]) -> float | None:
    """How near the outputs are; None without sacrebleu (extra train)."""
    try:
        import sacrebleu
    except ModuleNotFoundError:
        return None
    score: float = sacrebleu.corpus_bleu(
        [other.outputs[text] for text in texts], [[ours.outputs[text] for text in texts]]
    ).score
    return score


def main() -> None:
    """Measure, print tables and one line of JSON."""
    threads = os.cpu_count() or 1
    known = system_names(threads)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--form", action="append", choices=["bundled", "opus"])
    parser.add_argument("--system", action="append", choices=known, help="default: all but libretranslate")
    parser.add_argument("--requests", type=int, default=64, help="of the mix")
    parser.add_argument("--rate", type=float, default=40.0, help="arrivals a second in the mix")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shorts", type=int, default=120, help="short requests, idle and loaded")
    parser.add_argument("--short-rate", type=float, default=20.0, help="arrivals of short requests a second")
    parser.add_argument("--long-tokens", type=int, default=400, help="of the eight beside the short ones")
    parser.add_argument("--threads", type=int, default=threads)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("runs/peers"))
    arguments = parser.parse_args()
    end_in_order()
    arguments.system = arguments.system or [name for name in known if name != LIBRETRANSLATE]
    forms = {"bundled": bundled_form, "opus": opus_form}
    arguments.folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {"machine": platform.processor() or platform.machine(), "threads": arguments.threads}
    results |= {
        name: getattr(arguments, name) for name in ("requests", "rate", "rounds", "shorts", "short_rate", "seed")
    }
    failed = False
    for name in arguments.form or list(forms):
        results[name] = asyncio.run(measure(forms[name](arguments.folder), arguments))
        failed |= any(entry["errors"] for entry in results[name]["systems"].values())
    sys.stdout.write(json.dumps(results) + "\n")
    sys.exit(failed)


if __name__ == "__main__":
    main()
