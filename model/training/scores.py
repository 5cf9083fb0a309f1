r"""How probable each training pair is to a model we have: the worst ones are often no translations.

    python -m model.training.scores model/pretrained/en-fr ../shared/data/train.en-fr.tsv.gz runs/scores \
        --sources tatoeba

A pair's score is the mean of -log p over its target tokens, the end included, in nats (as in Junczys-Dowmunt 2018, one
direction): high is bad. ``[data]`` in a training file leaves out the worst share of each source.
"""

from __future__ import annotations

import argparse
import math
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from rich.progress import track
from torch.nn import functional

from model.checkpoint import Checkpoint, load_checkpoint
from model.training.beside import read_beside, write_beside
from model.training.data import DataError, read_pairs
from model.transformer import pad_sequences

KIND = "scores"


@torch.inference_mode()
def score_pairs(
    checkpoint: Checkpoint, pairs: Sequence[tuple[str, str]], *, batch_tokens: int = 2000, max_tokens: int = 200
) -> Iterator[tuple[int, float]]:
    """The score of each pair (source, target), with its index, in the order of their lengths.

    Pairs with more than ``max_tokens`` on a side come not at all.
    """
    config, tokenizer = checkpoint.config, checkpoint.tokenizer
    languages = (checkpoint.source_language, checkpoint.target_language)
    encoded = [
        [[*tokenizer.encode(text, language).ids, config.eos_id] for text, language in zip(pair, languages, strict=True)]
        for pair in pairs
    ]
    lengths = [max(map(len, sides)) for sides in encoded]
    order = sorted(
        (index for index, length in enumerate(lengths) if length <= max_tokens), key=lambda index: lengths[index]
    )
    start = 0
    while start < len(order):
        size = 1
        while start + size < len(order) and (size + 1) * lengths[order[start + size]] <= batch_tokens:
            size += 1
        rows = order[start : start + size]
        start += size
        source_ids, source_mask = pad_sequences([encoded[index][0] for index in rows], config.pad_id)
        outputs, _ = pad_sequences([encoded[index][1] for index in rows], config.pad_id)
        inputs = torch.cat((torch.full((len(rows), 1), config.decoder_start_id), outputs[:, :-1]), dim=1)
        logits = checkpoint.model(source_ids, source_mask, inputs).float()
        nats = functional.cross_entropy(
            logits.transpose(1, 2), outputs, ignore_index=config.pad_id, reduction="none"
        ).sum(dim=1)  # fmt: skip
        for index, total in zip(rows, nats.tolist(), strict=True):
            yield index, total / len(encoded[index][1])


def worst_pairs(paths: Sequence[Path], folder: Path, shares: Mapping[str, float]) -> frozenset[tuple[str, str]]:
    """The texts of the pairs with the worst scores, a share of each source's pairs that have one.

    Args:
        paths: Data files, of which those with scored sources have a file in ``folder``.
        folder: Where :func:`main` wrote the scores.
        shares: By source name.

    Raises:
        DataError: For a damaged file, or a source without any score.
    """
    scored: dict[str, list[tuple[float, str, str]]] = defaultdict(list)
    for path in paths:
        pairs = list(read_pairs(path))
        if not any(pair.source_name in shares for pair in pairs):
            continue
        for number, (pair, line) in enumerate(zip(pairs, read_beside(folder, path, KIND), strict=True), start=1):
            if pair.source_name in shares and line:
                try:
                    score = float(line)
                except ValueError:
                    raise DataError(f"{path}, line {number}: its score is {line!r}, not a number") from None
                scored[pair.source_name].append((score, pair.first, pair.second))
    worst: set[tuple[str, str]] = set()
    for name, share in shares.items():
        if not scored[name]:
            raise DataError(f"{folder} has no score of the source {name}")
        count = math.floor(share * len(scored[name]))
        worst.update((first, second) for _, first, second in sorted(scored[name], reverse=True)[:count])
    return frozenset(worst)


def main() -> None:
    """Score the pairs of a data file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("output", type=Path, help="folder")
    parser.add_argument("--sources", nargs="+", required=True, help="source names whose pairs are scored")
    parser.add_argument("--sample", type=int, help="score at most so many pairs of each source, drawn by chance")
    parser.add_argument("--precision", default="auto", choices=("auto", "float32", "int8", "bfloat16"))
    parser.add_argument("--show", type=int, default=0, help="print so many pairs, drawn from the worst 1 %%")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    checkpoint = load_checkpoint(arguments.checkpoint)
    checkpoint.model.set_precision(arguments.precision)
    pairs = list(read_pairs(arguments.corpus))
    generator = random.Random(arguments.seed)
    chosen: list[int] = []
    for name in arguments.sources:
        numbers = [number for number, pair in enumerate(pairs) if pair.source_name == name]
        if not numbers:
            parser.error(f"{arguments.corpus} has no pair of the source {name}")
        few = arguments.sample is not None and arguments.sample < len(numbers)
        chosen += sorted(generator.sample(numbers, arguments.sample)) if few else numbers
    texts = [pairs[number].as_read(checkpoint.source_language) for number in chosen]
    lines = [""] * len(pairs)
    for index, score in track(score_pairs(checkpoint, texts), "scores", total=len(texts)):
        lines[chosen[index]] = f"{score:.3f}"
    print(write_beside(arguments.output, arguments.corpus, KIND, lines))  # noqa: T201
    worst = sorted((number for number in chosen if lines[number]), key=lambda number: -float(lines[number]))
    worst = worst[: max(1, len(worst) // 100)]
    for number in generator.sample(worst, min(arguments.show, len(worst))):
        print(lines[number], pairs[number].first, "|||", pairs[number].second)  # noqa: T201


if __name__ == "__main__":
    main()
