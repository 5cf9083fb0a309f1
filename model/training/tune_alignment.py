"""Find the alignment recipe of a checkpoint on sentences aligned by hand, and judge it on others.

    python -m model.training.tune_alignment runs/en-fr/checkpoint tests/data/alignment_gold.jsonl
    python -m model.training.tune_alignment runs/fr-en/checkpoint tests/data/alignment_gold.jsonl --reverse

The gold set is cut in two, every second pair: one half chooses the recipe, the other says how good it is.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from model.alignment import (
    METHODS,
    TRAINING_KEY,
    AlignmentRecipe,
    GoldAlignment,
    Pairs,
    Row,
    align,
    alignment_error_rate,
    link_words,
    links_between,
)
from model.checkpoint import Checkpoint, load_checkpoint
from model.description import CONFIG_FILE
from model.maps import merge_words
from model.selection import Selection
from model.trace import Measure, replay
from model.words import TokenText, Word, source_text

_THRESHOLDS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
_STARTS = 6  # how many of the best simple recipes are bettered head by head


def read_gold(path: Path, *, reverse: bool = False) -> list[GoldAlignment]:
    """The pairs of a gold file, one JSON object a line; reversed if the model translates the other way."""
    pairs = [GoldAlignment.from_dict(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
    return [pair.reversed() for pair in pairs] if reverse else pairs


def halves(gold: Sequence[GoldAlignment]) -> tuple[list[GoldAlignment], list[GoldAlignment]]:
    """The pairs to tune on and those to judge on: every second one each."""
    return list(gold[0::2]), list(gold[1::2])


@dataclass(frozen=True)
class _Prepared:
    """One gold pair with every head's word matrix: (L, H, W, U) by measure and row."""

    gold: GoldAlignment
    source_words: tuple[Word, ...]
    target_words: tuple[Word, ...]
    matrices: dict[tuple[Measure, Row], NDArray[np.float32]]

    def links(self, recipe: AlignmentRecipe) -> Pairs:
        layers, heads = zip(*recipe.heads, strict=True)
        matrix = self.matrices[recipe.measure, recipe.row][list(layers), list(heads)].mean(axis=0)
        found = link_words(matrix, self.source_words, self.target_words, recipe)
        return links_between(found, self.gold.source_words, self.gold.target_words)


@dataclass(frozen=True)
class _Ids:
    source: tuple[int, ...]
    source_text: TokenText
    target: tuple[int, ...]
    target_text: TokenText


def _encode(checkpoint: Checkpoint, gold: GoldAlignment) -> _Ids:
    """The reference as the model would have to write it, end of sentence included."""
    source = checkpoint.tokenizer.encode(gold.source, checkpoint.source_language, add_eos=True)
    target = checkpoint.tokenizer.encode(gold.target, checkpoint.target_language, add_eos=True)
    for side, encoding, text in (("source", source, gold.source), ("target", target, gold.target)):
        if encoding.normalized.text != text:
            raise ValueError(f"gold {side} {text!r} is not normalised: its spans would not fit")
    return _Ids(source.ids, source_text(source), target.ids, source_text(target))


def _prepare(checkpoint: Checkpoint, gold: GoldAlignment) -> _Prepared:
    ids = _encode(checkpoint, gold)
    source_words, target_words = ids.source_text.words(), ids.target_text.words()
    matrices: dict[tuple[Measure, Row], NDArray[np.float32]] = {}
    measures: tuple[Measure, ...] = ("weights", "value_norm")
    for measure in measures:
        maps = replay(
            checkpoint.model,
            ids.source,
            ids.target,
            selection=Selection.of(checkpoint.config, ["cross"]),
            measure=measure,
            logits=False,
            memory=False,
            open_end=True,
        ).maps("cross")
        maps = maps / np.maximum(maps.sum(axis=-1, keepdims=True), 1e-30)
        matrices[measure, "input"] = merge_words(maps[:, :, 1:], target_words, source_words)
        matrices[measure, "predicted"] = merge_words(maps[:, :, :-1], target_words, source_words)
    return _Prepared(gold, source_words, target_words, matrices)


def _error_rate(pairs: Iterable[_Prepared], recipe: AlignmentRecipe) -> float:
    return alignment_error_rate((pair.links(recipe), pair.gold) for pair in pairs)


def tune(checkpoint: Checkpoint, gold: Sequence[GoldAlignment]) -> tuple[AlignmentRecipe, float]:
    """The recipe with the lowest error rate, and that rate.

    First every single head, every layer and all heads together, with every way to decide; then the best of these gain
    or lose a head, as long as that helps.
    """
    pairs = [_prepare(checkpoint, item) for item in gold]
    config = checkpoint.config
    every = [(layer, head) for layer in range(config.num_decoder_layers) for head in range(config.num_heads)]
    by_layer = [tuple(pair for pair in every if pair[0] == layer) for layer in range(config.num_decoder_layers)]
    head_sets: list[tuple[tuple[int, int], ...]] = [*((pair,) for pair in every), *by_layer, tuple(every)]
    candidates = [
        AlignmentRecipe(heads=heads, row=row, method=method, threshold=threshold, special=special, measure=measure)
        for heads, (measure, row) in itertools.product(head_sets, pairs[0].matrices)
        for special in ("keep", "renormalise")
        for method in METHODS
        for threshold in (_THRESHOLDS if method == "threshold" else (0.0, 0.1, 0.2))
    ]
    rated = sorted(((_error_rate(pairs, recipe), index) for index, recipe in enumerate(candidates)))
    grown = [_climb(pairs, candidates[index], rate, every) for rate, index in rated[:_STARTS]]
    rate, recipe = min(grown, key=lambda item: item[0])
    return recipe, rate


def _climb(
    pairs: Sequence[_Prepared], recipe: AlignmentRecipe, rate: float, every: Sequence[tuple[int, int]]
) -> tuple[float, AlignmentRecipe]:
    """Add or drop the one head that helps most, until none does."""
    while True:
        head_sets = [tuple(sorted({*recipe.heads} ^ {pair})) for pair in every]
        neighbours = [dataclasses.replace(recipe, heads=heads) for heads in head_sets if heads]
        rates = [_error_rate(pairs, neighbour) for neighbour in neighbours]
        if not rates or min(rates) >= rate:
            return rate, recipe
        rate, recipe = min(rates), neighbours[rates.index(min(rates))]


def judge(checkpoint: Checkpoint, gold: Sequence[GoldAlignment], recipe: AlignmentRecipe) -> float:
    """The error rate of a recipe, by the code that serves."""
    judged = []
    for item in gold:
        ids = _encode(checkpoint, item)
        found = align(checkpoint.model, ids.source, ids.source_text, ids.target, ids.target_text, recipe)
        judged.append((links_between(found, item.source_words, item.target_words), item))
    return alignment_error_rate(judged)


def diagonal(gold: GoldAlignment) -> Pairs:
    """Each target word with the source word as far through its sentence: what needs no model."""
    num_source, num_target = len(gold.source_words), len(gold.target_words)
    scale = (num_source - 1) / max(num_target - 1, 1)
    return {(round(index * scale), index) for index in range(num_target)}


def baselines(num_layers: int, num_heads: int) -> dict[str, AlignmentRecipe]:
    """What other tools take: the row that predicted the word, and its best source token."""
    last = num_layers - 1
    rest: dict[str, Any] = {"row": "predicted", "method": "argmax", "special": "keep"}
    return {
        "last layer, head 0": AlignmentRecipe(heads=((last, 0),), **rest),
        "last layer, mean of heads": AlignmentRecipe(heads=tuple((last, head) for head in range(num_heads)), **rest),
        "all layers, mean of heads": AlignmentRecipe(
            heads=tuple((layer, head) for layer in range(num_layers) for head in range(num_heads)), **rest
        ),
    }


def report(checkpoint: Checkpoint, gold: Sequence[GoldAlignment]) -> dict[str, Any]:
    """Tune on one half and judge on the other.

    Returns:
        ``recipe``, and ``aer``: by name the rate on the tuning half and on the other.
    """
    tuning, judging = halves(gold)
    recipe, _ = tune(checkpoint, tuning)
    config = checkpoint.config
    recipes = {"tuned recipe": recipe, **baselines(config.num_decoder_layers, config.num_heads)}
    rates = {
        name: [judge(checkpoint, half, candidate) for half in (tuning, judging)] for name, candidate in recipes.items()
    }
    rates["diagonal"] = [alignment_error_rate((diagonal(item), item) for item in half) for half in (tuning, judging)]
    return {
        "model": checkpoint.name,
        "revision": checkpoint.revision,
        "recipe": recipe.to_dict(),
        "aer": {name: {"tuned_on": first, "judged_on": second} for name, (first, second) in rates.items()},
    }


def write_recipe(folder: Path, recipe: AlignmentRecipe) -> None:
    """Store a recipe with a checkpoint, among its training facts; its revision changes with it."""
    path = folder / CONFIG_FILE
    content = json.loads(path.read_text(encoding="utf-8"))
    content["training"] = {**content.get("training", {}), TRAINING_KEY: recipe.to_dict()}
    unfinished = path.with_name(f".{path.name}.unfinished")
    unfinished.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(unfinished, path)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkpoint", type=Path, help="folder of the checkpoint")
    parser.add_argument("gold", type=Path, help="gold alignments, JSON lines")
    parser.add_argument("--reverse", action="store_true", help="the checkpoint translates from target to source")
    parser.add_argument("--int8", action="store_true", help="hold the matrices in int8, as the server does")
    parser.add_argument("--write", action="store_true", help="store the recipe in the checkpoint's config.json")
    parser.add_argument("--threads", type=int, default=1, help="torch threads")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    checkpoint = load_checkpoint(options.checkpoint)
    if options.int8:
        checkpoint.model.quantize()
    found = report(checkpoint, read_gold(options.gold, reverse=options.reverse))
    console = Console()
    table = Table("alignment", "AER, tuned on", "AER, judged on", title=f"{found['model']} {found['revision']}")
    for name, rates in found["aer"].items():
        table.add_row(name, f"{100 * rates['tuned_on']:.1f} %", f"{100 * rates['judged_on']:.1f} %")
    console.print(table)
    console.print_json(json.dumps(found["recipe"]))
    if options.write:
        write_recipe(options.checkpoint, AlignmentRecipe.from_dict(found["recipe"]))


if __name__ == "__main__":
    main()
