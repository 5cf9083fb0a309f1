"""Ours, CTranslate2 and Hugging Face on the same random weights, token ids and fixed output lengths, in one run.

    python -m loadtests.peers.decode_speed            # everything, about 15 minutes on two cores
    python -m loadtests.peers.decode_speed --work "1 greedy" --work "8 greedy" --rounds 7

Terms: a *work* is a number of sentences with their lengths and a beam; a *configuration* is one way to run a
system (number format, workers, threads). Every round runs every configuration of a work once, one after the other,
so that a slow minute of the machine hits all alike; a figure is the median over rounds, a ratio the median of the
rounds' ratios. Equal minimum and maximum lengths fix the work: random weights would end anywhere. Times include the
encoder, and for ours the whole engine: queue, scheduler, thread and event loop. Weights are random, so nothing is
said about quality here. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import platform
import random
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VOCAB_SIZE = 59_514
_PAUSE_SECONDS = 0.3  # OpenMP threads of the system before spin on for up to 200 ms


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
    generator = random.Random(7)
    mixed = tuple((source, source + 4) for source in (generator.randint(4, 64) for _ in range(256)))
    return [
        Work("1 greedy", ((24, 32),)),
        Work("8 greedy", ((24, 32),) * 8),
        Work("32 greedy", ((24, 32),) * 32),
        Work("256 mixed", mixed),
        Work("1 beam 4", ((24, 32),), beam_size=4),
        Work("32 beam 4", ((24, 32),) * 32, beam_size=4),
    ]


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


class Ours:
    """The engine of this repository, in this process."""

    def __init__(self, folder: Path, hf: Path, precision: str, threads: int) -> None:
        """Import the checkpoint once, load it, and start the engine on an event loop of its own."""
        from model.checkpoint import load_checkpoint
        from model.importers.marian import import_marian
        from service.engine.async_engine import AsyncEngine
        from service.engine.limits import EngineLimits
        from service.engine.runner import Runner

        checkpoint_folder = folder / "gossamer"
        if not checkpoint_folder.exists():
            import_marian(hf, checkpoint_folder, name="speed", source_language="en", target_language="fr")
        checkpoint = load_checkpoint(checkpoint_folder)
        if precision == "int8":
            checkpoint.model.quantize()
        limits = EngineLimits(max_rows=256, kv_cache_bytes=4 * 1024**3, max_encode_tokens_per_step=2_048)
        self._engine = AsyncEngine(lambda: Runner([checkpoint], limits, threads), limits)
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

    def __init__(self, folder: Path, hf: Path, compute_type: str, workers: int, threads: int, batch: int) -> None:
        """Convert the checkpoint once, and load it."""
        import ctranslate2

        converted = folder / "ctranslate2"
        if not converted.exists():
            ctranslate2.converters.TransformersConverter(str(hf)).convert(str(converted))
        self._names: list[str] = json.loads((converted / "shared_vocabulary.json").read_text(encoding="utf-8"))
        self._translator = ctranslate2.Translator(
            str(converted), device="cpu", compute_type=compute_type, inter_threads=workers, intra_threads=threads
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
    """``generate`` of transformers, float32."""

    def __init__(self, hf: Path, threads: int) -> None:
        """Load the model."""
        import torch
        from transformers import MarianMTModel

        torch.set_num_threads(threads)
        self._model = MarianMTModel.from_pretrained(hf).eval()

    def run(self, work: Work, sources: list[list[int]]) -> None:
        """Translate, sentences of one output length together."""
        import torch

        by_length: dict[int, list[list[int]]] = {}
        for source, (_, target) in zip(sources, work.lengths, strict=True):
            by_length.setdefault(target, []).append(source)
        for length, rows in by_length.items():
            width = max(map(len, rows))
            ids = torch.tensor([row + [VOCAB_SIZE - 1] * (width - len(row)) for row in rows])
            with torch.inference_mode():
                self._model.generate(
                    input_ids=ids, attention_mask=(ids != VOCAB_SIZE - 1).long(), num_beams=work.beam_size,
                    do_sample=False, min_new_tokens=length, max_new_tokens=length,
                )  # fmt: skip

    def close(self) -> None:
        """Nothing to stop."""


def configurations(folder: Path, hf: Path, threads: int, systems: list[str]) -> dict[str, Callable[[], Any]]:
    """Every way to run every system, by name; each starts when called."""
    found: dict[str, Callable[[], Any]] = {}
    if "ours" in systems:
        found["ours int8"] = lambda: Ours(folder, hf, "int8", threads)
        found["ours float32"] = lambda: Ours(folder, hf, "float32", threads)
    if "ctranslate2" in systems:
        for compute_type in ("int8", "int8_float32", "float32"):
            found[f"ct2 {compute_type} 1x{threads}"] = lambda kind=compute_type: CTranslate2(
                folder, hf, kind, 1, threads, 64
            )
            found[f"ct2 {compute_type} {threads}x1"] = lambda kind=compute_type: CTranslate2(
                folder, hf, kind, threads, 1, 64
            )
    if "huggingface" in systems:
        found["hf float32"] = lambda: HuggingFace(hf, threads)
    return found


def measure(systems: dict[str, Any], work: Work, rounds: int) -> dict[str, list[float]]:
    """Seconds of each round of each configuration; one round before does not count."""
    sources = sources_of(work)
    seconds: dict[str, list[float]] = {name: [] for name in systems}
    for number in range(rounds + 1):
        for name, system in systems.items():
            if name.startswith("hf") and number > 2:
                continue  # several times slower than the rest: two rounds tell enough
            time.sleep(_PAUSE_SECONDS)
            begin = time.perf_counter()
            system.run(work, sources)
            if number:
                seconds[name].append(time.perf_counter() - begin)
    return seconds


def main() -> None:
    """Measure, print a table and one line of JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", action="append", help="only these works (may be repeated)")
    parser.add_argument("--system", action="append", choices=["ours", "ctranslate2", "huggingface"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, default=Path("runs/peers"))
    arguments = parser.parse_args()
    hf = make_checkpoint(arguments.folder)
    starters = configurations(
        arguments.folder, hf, arguments.threads, arguments.system or ["ours", "ctranslate2", "huggingface"]
    )
    systems = {}
    for name, start in starters.items():
        systems[name] = start()
    gc.collect()
    report: dict[str, Any] = {"machine": platform.processor() or platform.machine(), "threads": arguments.threads}
    for work in works():
        if arguments.work and work.name not in arguments.work:
            continue
        seconds = measure(systems, work, arguments.rounds)
        speeds = {name: work.target_tokens / statistics.median(times) for name, times in seconds.items() if times}
        line = "  ".join(f"{name} {speed:,.0f}" for name, speed in sorted(speeds.items(), key=lambda item: -item[1]))
        sys.stdout.write(f"{work.name} (target tok/s): {line}\n")
        rivals = [name for name in speeds if name.startswith("ct2")]
        if rivals and "ours int8" in speeds:
            best = max(rivals, key=lambda name: speeds[name])
            ratio = statistics.median(
                theirs / mine for mine, theirs in zip(seconds["ours int8"], seconds[best], strict=True)
            )
            sys.stdout.write(f"    ours int8 against {best}: {ratio:.2f}x\n")
            report[work.name] = {"speeds": speeds, "rival": best, "ratio": ratio}
        sys.stdout.flush()
    for system in systems.values():
        system.close()
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
