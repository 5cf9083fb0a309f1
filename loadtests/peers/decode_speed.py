"""Ours, CTranslate2 and Hugging Face on the same random weights, token ids and fixed output lengths, in one run.

    python -m loadtests.peers.decode_speed            # everything, under five minutes on two idle cores
    python -m loadtests.peers.decode_speed --work "1 greedy" --work "8 greedy" --rounds 7

Terms: a *work* is a number of sentences with their lengths and a beam; a *configuration* is one way to run a
system (number format, workers, threads). Every round runs every configuration of a work once, one after the other,
so that a slow minute of the machine hits all alike; a figure is the median over rounds, a ratio the median of the
rounds' ratios. Equal minimum and maximum lengths fix the work: random weights would end anywhere. Times include the
encoder, and for ours the whole engine: queue, scheduler, thread and event loop. Weights are random, so nothing is
said about quality here. Run it on an idle machine.

The rivals get their best. CTranslate2 takes one output length a call, and a call is what it batches: so `256 mixed`
has only 8 output lengths, of 32 sentences each, and those are sentences of like lengths, as its own documentation
advises. All calls are made at once (`asynchronous`), and several workers share them. A configuration that in a work's
first round, which does not count otherwise, takes over 2.5 times as long as the best is not run again, and that round
is its figure.

Peak memory is that of a process of its own for each system, which loads the model and does `32 greedy` twice.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import math
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from model.checkpoint import Checkpoint
    from model.config import Precision

OURS = "ours int8"
VOCAB_SIZE = 59_514
_PAUSE_SECONDS = 0.25  # OpenMP threads of the system before spin on for up to 200 ms
_HOPELESS = 2.5
_ROUNDS, _ROUNDS_OF_LONG_WORKS, _LONG_WORK_TOKENS = 5, 3, 2_000
_KV_CACHE_BYTES = 1024**3


@dataclass(frozen=True)
class Work:
    """What is translated at once.

    Attributes:
        name: For the table.
        lengths: (source tokens, target tokens) of each sentence, end of sentence included in both.
        beam_size: 1 is greedy.
    """

    name: str
    lengths: tuple[tuple[int, int], ...]
    beam_size: int = 1

    @property
    def target_tokens(self) -> int:
        """Tokens that every system must write."""
        return sum(target for _, target in self.lengths)


def works() -> list[Work]:
    """The works of the table in docs/experiments.md."""
    return [
        Work("1 greedy", ((24, 32),)),
        Work("8 greedy", ((24, 32),) * 8),
        Work("32 greedy", ((24, 32),) * 32),
        Work("256 mixed", mixed_lengths(256, 8)),
        Work("1 beam 4", ((24, 32),), beam_size=4),
        Work("32 beam 4", ((24, 32),) * 32, beam_size=4),
    ]


def mixed_lengths(count: int, num_targets: int) -> tuple[tuple[int, int], ...]:
    """Sources of 4 to 64 tokens, any of them as likely, in a random order; few different target lengths.

    By length, sources fall in equal groups; the targets of a group are all as long as its middle source and 4 more.
    """
    generator = random.Random(7)
    sources = sorted(generator.randint(4, 64) for _ in range(count))
    size = count // num_targets
    lengths = [(source, sources[place // size * size + size // 2] + 4) for place, source in enumerate(sources)]
    generator.shuffle(lengths)
    return tuple(lengths)


def sources_of(work: Work) -> list[list[int]]:
    """Random ids, the end-of-sentence id (0) last: the same for every system and run."""
    generator = random.Random(work.name)
    return [[generator.randrange(400, VOCAB_SIZE - 1) for _ in range(source - 1)] + [0] for source, _ in work.lengths]


def make_checkpoint(folder: Path) -> Path:
    """An OPUS-MT-shaped MarianMT folder with random weights (6+6 layers, 512 wide, 75 M parameters)."""
    import sentencepiece
    import torch
    from transformers import MarianConfig, MarianMTModel

    hf = folder / "hf"
    if (hf / "model.safetensors").exists():
        return hf
    hf.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    config = MarianConfig(
        vocab_size=VOCAB_SIZE, d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8,
        decoder_attention_heads=8, encoder_ffn_dim=2048, decoder_ffn_dim=2048, max_position_embeddings=512,
        activation_function="swish", scale_embedding=True, static_position_embeddings=True,
        share_encoder_decoder_embeddings=True, tie_word_embeddings=True, pad_token_id=VOCAB_SIZE - 1, eos_token_id=0,
        bos_token_id=0, decoder_start_token_id=VOCAB_SIZE - 1, forced_eos_token_id=None,
        bad_words_ids=[[VOCAB_SIZE - 1]],
    )  # fmt: skip
    model = MarianMTModel(config)
    model.save_pretrained(hf)
    words = [f"{a}{b}" for a in "bcdfghjklmnpqrstvwxz" for b in ("a", "e", "i", "o", "u", "an", "er")]
    generator = random.Random(1)
    lines = [" ".join(generator.choice(words) for _ in range(12)) for _ in range(2_000)]
    for side in ("source", "target"):
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_prefix=str(hf / side), vocab_size=160, minloglevel=2
        )
        (hf / f"{side}.model").rename(hf / f"{side}.spm")
        (hf / f"{side}.vocab").unlink()
    processor = sentencepiece.SentencePieceProcessor(model_file=str(hf / "source.spm"))
    pieces = [processor.id_to_piece(index) for index in range(3, processor.get_piece_size())]
    names = ["</s>", "<unk>", *pieces]
    names += [f"▁filler{index}" for index in range(VOCAB_SIZE - 1 - len(names))] + ["<pad>"]
    (hf / "vocab.json").write_text(json.dumps({name: index for index, name in enumerate(names)}), encoding="utf-8")
    (hf / "tokenizer_config.json").write_text(
        json.dumps({"source_lang": "en", "target_lang": "fr", "tokenizer_class": "MarianTokenizer"}), encoding="utf-8"
    )
    return hf


def imported(folder: Path, hf: Path, precision: Precision, device: torch.device | str = "cpu") -> Checkpoint:
    """The same weights as a checkpoint of ours, imported once."""
    from model.checkpoint import load_checkpoint
    from model.importers.marian import import_marian
    from service.heap import reading_a_model

    checkpoint_folder = folder / "gossamer"
    if not checkpoint_folder.exists():
        import_marian(hf, checkpoint_folder, name="speed", source_language="en", target_language="fr")
    with reading_a_model():  # as the server does it
        return load_checkpoint(checkpoint_folder, device, precision=precision)


class Ours:
    """The engine of this repository, in this process."""

    def __init__(self, checkpoint: Checkpoint, threads: int | None, **how: Any) -> None:
        """Start the engine on an event loop of its own; ``how`` goes to its runner."""
        from service.engine.async_engine import AsyncEngine
        from service.engine.limits import EngineLimits
        from service.engine.runner import Runner

        limits = EngineLimits(
            max_rows=256,
            kv_cache_bytes=_KV_CACHE_BYTES,
            max_encode_tokens_per_step=2_048,
            max_wait_seconds=math.inf,
        )
        self._engine = AsyncEngine(lambda: Runner([checkpoint], limits, threads, **how), limits)
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._engine.start())
        self._count = 0

    def run(self, work: Work, sources: list[list[int]]) -> None:
        """Translate, all sentences as one request."""
        from model.decoding import DecodingOptions
        from service.engine.request import EngineRequest, SequenceRequest

        self._count += 1
        sequences = tuple(
            SequenceRequest(
                tuple(source),
                DecodingOptions(beam_size=work.beam_size, max_target_tokens=target, min_target_tokens=target),
            )
            for source, (_, target) in zip(sources, work.lengths, strict=True)
        )
        request = EngineRequest(f"r{self._count}", "speed", sequences)
        result = self._loop.run_until_complete(self._engine.submit(request))
        assert result.num_target_tokens == work.target_tokens, (result.num_target_tokens, work.target_tokens)

    def close(self) -> None:
        """Stop the engine's thread."""
        self._loop.run_until_complete(self._engine.stop(1.0))


class CTranslate2:
    """CTranslate2's Translator, called as its documentation says."""

    def __init__(
        self, folder: Path, hf: Path, compute_type: str, workers: int, threads: int, batch: int, device: str = "cpu"
    ) -> None:
        """Convert the checkpoint once, and load it."""
        import ctranslate2

        converted = folder / "ctranslate2"
        if not converted.exists():
            ctranslate2.converters.TransformersConverter(str(hf)).convert(str(converted))
        self._names: list[str] = json.loads((converted / "shared_vocabulary.json").read_text(encoding="utf-8"))
        self._translator = ctranslate2.Translator(
            str(converted), device=device, compute_type=compute_type, inter_threads=workers, intra_threads=threads
        )
        self._batch = batch

    def run(self, work: Work, sources: list[list[int]]) -> None:
        """Translate; sentences of one output length go in one call, since a call has one length."""
        by_length: dict[int, list[list[str]]] = {}
        for source, (_, target) in zip(sources, work.lengths, strict=True):
            by_length.setdefault(target, []).append([self._names[token] for token in source])
        pending = []
        for length, batch in sorted(by_length.items()):
            pending += self._translator.translate_batch(
                batch, beam_size=work.beam_size, max_batch_size=self._batch, max_decoding_length=length,
                min_decoding_length=length, asynchronous=True,
            )  # fmt: skip
        for result in pending:
            result.result()

    def close(self) -> None:
        """Free its memory and threads."""
        self._translator.unload_model()


class HuggingFace:
    """``generate`` of transformers."""

    def __init__(self, hf: Path, threads: int, device: str = "cpu", precision: str = "float32") -> None:
        """Load the model."""
        import torch
        from transformers import MarianMTModel

        torch.set_num_threads(threads)
        self._device = device
        self._model = MarianMTModel.from_pretrained(hf).to(device, getattr(torch, precision)).eval()

    def run(self, work: Work, sources: list[list[int]]) -> None:
        """Translate, sentences of one output length together."""
        import torch

        by_length: dict[int, list[list[int]]] = {}
        for source, (_, target) in zip(sources, work.lengths, strict=True):
            by_length.setdefault(target, []).append(source)
        for length, rows in by_length.items():
            width = max(map(len, rows))
            ids = torch.tensor([row + [VOCAB_SIZE - 1] * (width - len(row)) for row in rows], device=self._device)
            with torch.inference_mode():
                self._model.generate(
                    input_ids=ids, attention_mask=(ids != VOCAB_SIZE - 1).long(), num_beams=work.beam_size,
                    do_sample=False, min_new_tokens=length, max_new_tokens=length,
                )  # fmt: skip

    def close(self) -> None:
        """Nothing to stop."""


def configurations(folder: Path, hf: Path, threads: int) -> dict[str, Callable[[], Any]]:
    """Every way to run every system, by name; each starts when called."""
    found: dict[str, Callable[[], Any]] = {
        "ours int8": lambda: Ours(imported(folder, hf, "int8"), threads),
        "ours float32": lambda: Ours(imported(folder, hf, "float32"), threads),
        "hf float32": lambda: HuggingFace(hf, threads),
    }
    for compute_type in ("int8", "int8_float32", "float32"):
        for workers, per_worker in dict.fromkeys([(1, threads), (threads, 1)]):
            found[f"ct2 {compute_type} {workers}x{per_worker}"] = (
                lambda kind=compute_type, workers=workers, per_worker=per_worker: CTranslate2(
                    folder, hf, kind, workers, per_worker, 64
                )
            )
    return found


def measure(systems: dict[str, Any], work: Work, rounds: int) -> dict[str, list[float]]:
    """Seconds of each round of each configuration; of a hopeless one those of the first, which else does not count."""
    sources = sources_of(work)

    def run(name: str) -> float:
        time.sleep(_PAUSE_SECONDS)
        begin = time.perf_counter()
        systems[name].run(work, sources)
        return time.perf_counter() - begin

    first = {name: run(name) for name in systems}
    limit = _HOPELESS * min(first.values())
    contenders = [name for name in systems if first[name] <= limit or name == OURS]
    seconds: dict[str, list[float]] = {name: [] if name in contenders else [first[name]] for name in systems}
    for _ in range(rounds):
        for name in contenders:
            seconds[name].append(run(name))
    return seconds


def compare(work: Work, seconds: dict[str, list[float]]) -> dict[str, Any]:
    """Print and return the speeds of a work, and ours against the best of each rival."""
    speeds = {name: work.target_tokens / statistics.median(times) for name, times in seconds.items()}
    line = "  ".join(f"{name} {speed:,.0f}" for name, speed in sorted(speeds.items(), key=lambda item: -item[1]))
    sys.stdout.write(f"{work.name} (target tok/s): {line}\n")
    result: dict[str, Any] = {"speeds": speeds, "rounds": {name: len(times) for name, times in seconds.items()}}
    for rival in ("ct2", "hf"):
        known = [name for name in speeds if name.startswith(rival)]
        if known and OURS in speeds:
            best = max(known, key=lambda name: speeds[name])
            if len(seconds[best]) == len(seconds[OURS]):
                pairs = zip(seconds[OURS], seconds[best], strict=True)
                ratio = statistics.median(theirs / mine for mine, theirs in pairs)
            else:
                ratio = speeds[OURS] / speeds[best]
            sys.stdout.write(f"    {OURS} against {best}: {ratio:.2f}x\n")
            result[rival] = {"best": best, "ratio": ratio}
    sys.stdout.flush()
    return result


def measure_memory(names: list[str], arguments: argparse.Namespace) -> dict[str, int]:
    """Peak memory in bytes of each configuration, in a process of its own."""
    command = [sys.executable, "-m", "loadtests.peers.decode_speed", "--folder", str(arguments.folder)]
    command += ["--threads", str(arguments.threads), "--memory-of"]
    found = {}
    for name in names:
        output = subprocess.run([*command, name], check=True, capture_output=True, text=True).stdout
        found[name] = int(output.split()[-1])
        against = f" ({found[OURS] / found[name]:.2f} times as much for {OURS})" if OURS in found else ""
        sys.stdout.write(f"peak memory: {name} {found[name] / 2**20:,.0f} MiB{against}\n")
    return found


def run_for_memory(start: Callable[[], Any]) -> None:
    """In the process of its own: work, and print the peak."""
    from loadtests.servers import peak_memory_bytes

    system = start()
    work = works()[2]
    for _ in range(2):
        system.run(work, sources_of(work))
    sys.stdout.write(f"{peak_memory_bytes() or 0}\n")
    system.close()


def main() -> None:
    """Measure, print a table and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", action="append", help="only these works (may be repeated)")
    parser.add_argument("--system", action="append", help="only configurations whose names begin so (may be repeated)")
    parser.add_argument("--all", action="store_true", help="ours in float32 too, and Hugging Face in every work")
    parser.add_argument(
        "--rounds", type=int, help=f"default: {_ROUNDS}, {_ROUNDS_OF_LONG_WORKS} where a work has many tokens"
    )
    parser.add_argument("--no-memory", action="store_true", help="do not measure peak memory")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, default=Path("runs/peers"))
    parser.add_argument("--memory-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    starters = configurations(arguments.folder, make_checkpoint(arguments.folder), arguments.threads)
    if arguments.memory_of:
        run_for_memory(starters[arguments.memory_of])
        return
    wanted = tuple(arguments.system or ["ours" if arguments.all else OURS, "ct2", "hf"])
    systems = {name: start() for name, start in starters.items() if name.startswith(wanted)}
    gc.collect()
    report: dict[str, Any] = {"machine": platform.processor() or platform.machine(), "threads": arguments.threads}
    for work in works():
        if arguments.work and work.name not in arguments.work:
            continue
        is_long = work.target_tokens * work.beam_size > _LONG_WORK_TOKENS
        rounds = arguments.rounds or (_ROUNDS_OF_LONG_WORKS if is_long else _ROUNDS)
        # Hugging Face is far behind, and each of its rounds here would take as long as all others together.
        chosen = {
            name: system
            for name, system in systems.items()
            if arguments.all or not is_long or not name.startswith(("hf", "ct2 float32"))
        }
        report[work.name] = compare(work, measure(chosen, work, rounds))
    for system in systems.values():
        system.close()
    if not arguments.no_memory:
        asked = [OURS, f"ct2 int8 1x{arguments.threads}", f"ct2 int8 {arguments.threads}x1", "hf float32"]
        names = [name for name in dict.fromkeys(asked) if name in systems]
        report["peak_memory_bytes"] = measure_memory(names, arguments)
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
