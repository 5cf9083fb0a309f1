r"""Pairs whose other side a model wrote: sequence-level distillation, and back-translation.

    python -m model.training.distill runs/distilled.en-fr.tsv.gz ../shared/data/train.en-fr.tsv.gz --sources tatoeba \
        --models model/pretrained/en-fr runs/b/checkpoint

Each text that the models read is translated with a beam by each of them. ``--keep nearest`` (the default) writes, for
each pair, of all hypotheses the one with the best sentence BLEU against the reference (Kim and Rush 2016, section 3.3,
sequence-level interpolation); ``--keep best`` the one that the first model likes best (section 3.2). The sides of a new
pair stand as in the corpus; which one is synthetic follows from the models' languages:

- teachers from English to French write the French side: distillation for en-fr;
- a model from French to English writes the English side: back-translation for en-fr (Sennrich et al. 2016), with a real
  target and a synthetic source; ``--keep best`` is meant for it. Its source name gives it a weight of its own.

The work is done in parts of ``--part`` pairs; after an interruption the same command goes on with the first part that
is not done. The output appears when all are.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import torch
from sacrebleu.metrics.bleu import BLEU

from model.checkpoint import Checkpoint, load_checkpoint
from model.decoding import DecodingOptions, Hypothesis
from model.generation import forbidden_outputs, generate
from model.training.data import SentencePair, read_pairs, write_pairs

SOURCE = "distilled"
MAX_SOURCE_TOKENS = 128


class DistillError(ValueError):
    """Models, or a started output, that do not fit."""


def translate_side(checkpoint: Checkpoint, texts: Sequence[str], options: DecodingOptions) -> list[list[str]]:
    """The finished hypotheses of each text, best first; none for a text that is too long or has no words."""
    tokenizer = checkpoint.tokenizer
    ids = [tokenizer.encode(text, checkpoint.source_language, add_eos=True).ids for text in texts]
    chosen = [index for index, found in enumerate(ids) if 1 < len(found) <= MAX_SOURCE_TOKENS]
    generated = generate(
        checkpoint.model,
        [ids[index] for index in chosen],
        options,
        forbidden_ids=forbidden_outputs(checkpoint.config, tokenizer),
        max_batch_rows=128,
    )
    results: list[list[str]] = [[] for _ in texts]
    for index, hypotheses in zip(chosen, generated, strict=True):
        # A data file has no place for tabs and line breaks.
        results[index] = [
            " ".join(tokenizer.decode(found.tokens_without_eos).split()) for found in hypotheses if _is_finished(found)
        ]
    return results


def _is_finished(hypothesis: Hypothesis) -> bool:
    return hypothesis.finish_reason == "stop" and bool(hypothesis.tokens_without_eos)


def nearest(hypotheses: Sequence[str], reference: str) -> str:
    """The hypothesis with the highest sentence BLEU; of equals the first."""
    bleu = BLEU(effective_order=True)
    return max(hypotheses, key=lambda text: bleu.sentence_score(text, [reference]).score)


def distilled_pairs(
    checkpoints: Sequence[Checkpoint], pairs: Sequence[SentencePair], options: DecodingOptions, keep: str, name: str
) -> Iterator[SentencePair]:
    """The pairs with one side written anew by the models, as ``name``; pairs that no model finished are left out.

    Args:
        checkpoints: Of one direction.
        pairs: English first.
        options: ``num_hypotheses`` of each model are looked at.
        keep: ``nearest`` to the side that stands there, or ``best``: the first hypothesis of the first model.
        name: The source name.
    """
    language = checkpoints[0].source_language
    sides = [pair.as_read(language) for pair in pairs]
    sources = [source for source, _ in sides]
    by_model = [translate_side(checkpoint, sources, options) for checkpoint in checkpoints]
    for (source, reference), *found in zip(sides, *by_model, strict=True):
        hypotheses = list(dict.fromkeys(text for texts in found for text in texts if text))
        if not hypotheses:
            continue
        text = nearest(hypotheses, reference) if keep == "nearest" else hypotheses[0]
        yield SentencePair(name, *SentencePair(name, source, text).as_read(language))


def _load(folders: Sequence[Path], precision: str) -> list[Checkpoint]:
    checkpoints = [load_checkpoint(folder) for folder in folders]
    directions = {(checkpoint.source_language, checkpoint.target_language) for checkpoint in checkpoints}
    if len(directions) > 1:
        raise DistillError(f"the models translate {sorted(directions)}; one direction is needed")
    if directions.pop() not in (("en", "fr"), ("fr", "en")):
        raise DistillError("the data hold English and French; the models translate something else")
    for checkpoint in checkpoints:
        checkpoint.model.set_precision(precision)  # type: ignore[arg-type]
    return checkpoints


def _parts(folder: Path, recipe: dict[str, object]) -> Path:
    """The folder of parts, new or of the same work."""
    path = folder / "recipe.json"
    if path.exists():
        started = json.loads(path.read_text(encoding="utf-8"))
        if started != recipe:
            changed = ", ".join(name for name in recipe if started.get(name) != recipe[name])
            raise DistillError(f"{folder} holds parts made with another {changed}; remove it, or choose another output")
    else:
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(recipe, indent=1), encoding="utf-8")
    return folder


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the pairs, part by part."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("corpus", type=Path, nargs="+")
    parser.add_argument("--models", type=Path, nargs="+", required=True, help="checkpoints of one direction")
    parser.add_argument("--sources", nargs="+", required=True, help="source names whose pairs are taken")
    parser.add_argument("--name", default=SOURCE, help="source name of the new pairs")
    parser.add_argument("--keep", choices=("nearest", "best"), default="nearest")
    parser.add_argument("--beam-size", type=int, default=4)
    parser.add_argument("--limit", type=int, help="take only the first so many pairs")
    parser.add_argument("--part", type=int, default=2000)
    parser.add_argument("--precision", default="auto", choices=("auto", "float32", "int8", "bfloat16", "float16"))
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    checkpoints = _load(options.models, options.precision)
    pairs = list(
        islice(
            (pair for path in options.corpus for pair in read_pairs(path) if pair.source_name in options.sources),
            options.limit,
        )
    )
    recipe: dict[str, object] = {
        "models": [checkpoint.revision for checkpoint in checkpoints],
        "pairs": hashlib.sha256(repr(pairs).encode()).hexdigest(),
        **{name: getattr(options, name) for name in ("keep", "beam_size", "part", "name", "precision")},
    }
    folder = _parts(options.output.with_name(f"{options.output.name}.parts"), recipe)
    decoding = DecodingOptions(
        beam_size=options.beam_size, num_hypotheses=options.beam_size if options.keep == "nearest" else 1
    )
    done, seconds, files = 0, 0.0, []
    for number, start in enumerate(range(0, len(pairs), options.part)):
        path = folder / f"{number:05}.tsv.gz"
        files.append(path)
        if path.exists():
            continue
        begin = time.monotonic()
        some = pairs[start : start + options.part]
        unfinished = path.with_suffix(".unfinished")
        write_pairs(unfinished, distilled_pairs(checkpoints, some, decoding, options.keep, options.name))
        unfinished.replace(path)
        done, seconds = done + len(some), seconds + time.monotonic() - begin
        print(f"{start + len(some):,} of {len(pairs):,} pairs, {60 * done / seconds:,.0f} a minute", flush=True)  # noqa: T201
    write_pairs(options.output, (pair for path in files for pair in read_pairs(path)))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
