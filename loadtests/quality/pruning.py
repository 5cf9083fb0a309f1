"""What giving up hopeless hypotheses saves, and what it costs: thresholds side by side.

    python -m loadtests.quality.pruning ../shared/data/test/tatoeba.en-fr.tsv.gz --limit 500
    python -m loadtests.quality.pruning FILE --model models/opus --thresholds 1 2 3

Sentences are decoded eight at a time by the kernels with a beam of 4, once without a threshold and once with each.
Rows are those of decode steps, of all sentences together; BLEU is sacrebleu's, of single sentences without the
service's pipeline.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import sacrebleu

from model.checkpoint import load_checkpoint
from model.decoding import DecodingOptions
from model.generation import forbidden_outputs
from model.native.batch import NativeBatch, Wanted
from model.native.library import set_threads
from model.training.data import read_pairs

if TYPE_CHECKING:
    from model.checkpoint import Checkpoint

_SENTENCES_AT_ONCE = 8
"""Of a beam of 4: 32 rows."""
_MAX_TARGET_TOKENS = 200


@dataclass(frozen=True)
class Figures:
    """Of one threshold; None is none."""

    threshold: float | None
    rows: int
    steps: int
    processor_seconds: float
    bleu: float
    chrf: float
    same: float


def _decode(
    checkpoint: Checkpoint, sources: list[tuple[int, ...]], options: DecodingOptions
) -> tuple[list[str], int, int]:
    book = checkpoint.model.native_book()
    if book is None:
        raise SystemExit("this needs the compiled kernels, and a model that they can run")
    batch: NativeBatch = checkpoint.model.native_batch(book, forbidden_outputs(checkpoint.config, checkpoint.tokenizer))
    texts = [""] * len(sources)
    rows = steps = 0
    waiting = iter(enumerate(sources))
    num_running = 0
    while True:
        newcomers = list(itertools.islice(waiting, _SENTENCES_AT_ONCE - num_running))
        if newcomers:
            batch.join([Wanted(place, ids, options, _MAX_TARGET_TOKENS) for place, ids in newcomers])
            num_running += len(newcomers)
        if not num_running:
            return texts, rows, steps
        advance = batch.advance(max_steps=1 << 20)
        rows, steps = rows + advance.num_rows, steps + advance.num_steps
        for ended in advance.ended:
            texts[ended.key] = checkpoint.tokenizer.decode(list(ended.hypotheses[0].tokens_without_eos))
            num_running -= 1


def measure(
    checkpoint: Checkpoint, pairs: list[tuple[str, str]], thresholds: list[float], beam_size: int
) -> list[Figures]:
    """Figures without a threshold, and with each of them."""
    sources = [checkpoint.tokenizer.encode(source, checkpoint.source_language, add_eos=True).ids for source, _ in pairs]
    # The best first: neighbours in a batch are of like length, as a scheduler would have it.
    order = sorted(range(len(sources)), key=lambda place: len(sources[place]))
    sources = [tuple(sources[place]) for place in order]
    references = [pairs[place][1] for place in order]
    found: list[Figures] = []
    plain: list[str] = []
    for threshold in (None, *thresholds):
        options = DecodingOptions(beam_size=beam_size, beam_threshold=threshold)
        began = time.process_time()
        texts, rows, steps = _decode(checkpoint, sources, options)
        seconds = time.process_time() - began
        plain = plain or texts
        found.append(
            Figures(
                threshold, rows, steps, seconds,
                sacrebleu.corpus_bleu(texts, [references]).score, sacrebleu.corpus_chrf(texts, [references]).score,
                sum(a == b for a, b in zip(texts, plain, strict=True)) / len(texts),
            )
        )  # fmt: skip
    return found


def main() -> None:
    """Reads the pairs, prints a line for each threshold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", type=Path, help="lines of source name, English, French, as in the corpus")
    parser.add_argument("--model", type=Path, default=Path("model/pretrained/en-fr"))
    parser.add_argument("--limit", type=int, default=500, help="of sentences")
    parser.add_argument("--beam-size", type=int, default=4)
    parser.add_argument("--thresholds", type=float, nargs="+", default=[1.0, 1.5, 2.0, 2.5, 3.0, 4.0])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    checkpoint = load_checkpoint(arguments.model)
    checkpoint.model.eval().set_precision("int8")
    set_threads(1)
    read = itertools.islice(read_pairs(arguments.pairs), arguments.limit)
    turned = checkpoint.source_language == "fr"
    pairs = [(pair.second, pair.first) if turned else (pair.first, pair.second) for pair in read]
    for each in measure(checkpoint, pairs, arguments.thresholds, arguments.beam_size):
        if arguments.json:
            print(json.dumps(asdict(each)))  # noqa: T201
        else:
            threshold = "none" if each.threshold is None else f"{each.threshold:g}"
            print(  # noqa: T201
                f"threshold {threshold:>5}  rows {each.rows:7}  steps {each.steps:6}  "
                f"{each.processor_seconds:6.2f} s of the processor  "
                f"BLEU {each.bleu:.2f}  chrF {each.chrf:.2f}  same {each.same:.1%}"
            )


if __name__ == "__main__":
    main()
